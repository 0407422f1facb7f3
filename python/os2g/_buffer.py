# SPDX-License-Identifier: Apache-2.0
"""Memory that objects land in, and what else they can land in."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Tuple

from os2g import _core

KINDS = {"host": 0, "cuda": 1, "bar": 2}
_NAMES = {number: name for name, number in KINDS.items()}


def _range(length: int, offset: int, size: Optional[int]) -> Tuple[int, int]:
    if size is None:
        size = length - offset
    if offset < 0 or size < 0 or offset + size > length:
        raise ValueError(f"{size} bytes at {offset} are not in memory of {length}")
    return offset, size


def _check_dlpack(device: Tuple[int, int], dl_device: Any, copy: Optional[bool]) -> None:
    if copy:
        raise BufferError("a view is never a copy")
    if dl_device is not None and tuple(dl_device) != device:
        raise BufferError(f"the memory is on device {device}, not {tuple(dl_device)}")


def _interface(address: int, size: int, version: int) -> Dict[str, Any]:
    return {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": version}


class DeviceView:
    """A part of GPU memory: __dlpack__ (of a Buffer's) and __cuda_array_interface__, as one row of
    uint8."""

    def __init__(self, owner: Any, offset: int, size: int, address: int) -> None:
        self._owner, self._offset, self._size, self._address = owner, offset, size, address

    @property
    def buffer(self) -> Any:
        """What it is a part of."""
        return self._owner

    @property
    def address(self) -> int:
        return self._address

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, item: slice) -> DeviceView:
        start, stop, step = item.indices(self._size)
        if step != 1:
            raise ValueError("bytes that follow each other")
        return DeviceView(self._owner, self._offset + start, max(0, stop - start),
                          self._address + start)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if isinstance(self._owner, Buffer):
            self._owner._lend()
        return _interface(self._address, self._size, 3)

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Any = None, copy: Optional[bool] = None) -> Any:
        if not isinstance(self._owner, Buffer):
            raise BufferError("memory of others: use __cuda_array_interface__")
        _check_dlpack(self.__dlpack_device__(), dl_device, copy)
        return self._owner._dlpack(self._offset, self._size, _versioned(max_version))

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (2, self._owner.device) if isinstance(self._owner, Buffer) else (2, 0)


def _versioned(max_version: Optional[Tuple[int, int]]) -> bool:
    return max_version is not None and max_version[0] >= 1


class Buffer(_core.Memory):
    """Memory that the daemon lands bytes in; Client.buffer makes it. Host memory has the buffer
    protocol (numpy.frombuffer, torch.frombuffer, memoryview); all has DLPack (torch.from_dlpack),
    and GPU memory __cuda_array_interface__: one row of uint8. It is freed when the last view of it
    has gone, and only then."""

    @property
    def memory(self) -> str:
        """ "host", "cuda" or "bar"."""
        return _NAMES[self._kind]

    def view(self, offset: int = 0, size: Optional[int] = None) -> Any:
        """A part of it: a memoryview, or a DeviceView for "cuda"."""
        offset, size = _range(len(self), offset, size)
        if self.memory == "cuda":
            return DeviceView(self, offset, size, self.address + offset)
        return memoryview(self)[offset:offset + size]

    def __getitem__(self, item: slice) -> Any:
        return self.view()[item]

    def __setitem__(self, item: Any, value: Any) -> None:
        self.view()[item] = value

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Any = None, copy: Optional[bool] = None) -> Any:
        # what has landed is there: no stream has anything to wait for
        _check_dlpack(self.__dlpack_device__(), dl_device, copy)
        return self._dlpack(0, len(self), _versioned(max_version))

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (2, self.device) if self.memory == "cuda" else (1, 0)

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        if self.memory == "cuda":
            raise AttributeError("__array_interface__")
        return _interface(self._lend(), len(self), 3)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if self.memory != "cuda":
            raise AttributeError("__cuda_array_interface__")
        return _interface(self._lend(), len(self), 3)

    def __repr__(self) -> str:
        if self.closed:
            return "<os2g.Buffer, closed>"
        return f"<os2g.Buffer of {len(self)} bytes, {self.memory}>"


# --- targets: a Buffer, a DeviceView, GPU memory of others, anything with the buffer protocol ---


def _cuda(obj: Any) -> Optional[Tuple[int, int]]:
    """(address, bytes) of an object in GPU memory."""
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is None:
        return None
    item = int(interface["typestr"][2:])
    size = math.prod(interface["shape"]) * item
    strides = interface.get("strides")
    if strides is not None:
        expected = item
        for length, stride in zip(reversed(interface["shape"]), reversed(strides)):
            if length > 1 and stride != expected:
                raise ValueError("GPU memory with gaps")
            expected *= length
    address, read_only = interface["data"]
    if read_only:
        raise ValueError("GPU memory that is read-only")
    return address, size


def core_target(obj: Any) -> Any:
    """What _core takes for it."""
    if isinstance(obj, Buffer):
        return obj
    if isinstance(obj, DeviceView):
        return (obj.address, len(obj), obj.buffer)
    cuda = _cuda(obj)
    return obj if cuda is None else (*cuda, obj)


def size_of(obj: Any) -> int:
    if isinstance(obj, (Buffer, DeviceView)):
        return len(obj)
    cuda = _cuda(obj)
    return memoryview(obj).nbytes if cuda is None else cuda[1]


def part_of(obj: Any, offset: int, size: int) -> Any:
    """A memoryview or a DeviceView."""
    if isinstance(obj, Buffer):
        return obj.view(offset, size)
    if isinstance(obj, DeviceView):
        return obj[offset:offset + size]
    cuda = _cuda(obj)
    if cuda is None:
        return memoryview(obj).cast("B")[offset:offset + size]
    return DeviceView(obj, offset, size, cuda[0] + offset)


def adopt(connection: _core.Connection, obj: Any, fd: int, offset: int) -> Buffer:
    """Memory that is there already, as a Buffer."""
    cuda = _cuda(obj)
    if cuda is not None:
        device = getattr(getattr(obj, "device", None), "index", None) or 0
        return Buffer(connection, cuda[1], KINDS["cuda"], device, obj, cuda[0])
    if fd < 0:
        raise ValueError("host memory is registered with the descriptor that it is mapped from")
    return Buffer(connection, 0, KINDS["host"], 0, obj, 0, fd, offset)
