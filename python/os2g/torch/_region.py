# SPDX-License-Identifier: Apache-2.0
"""Regions that batches land in, used again when nobody looks at them any more."""

import collections
import contextlib
import os
import weakref
from typing import Any, Callable, ContextManager, Deque, List, Set

import torch

import os2g

_ROUND = 2 << 20  # what memory comes in

# A daemon takes 128 pieces of memory of one client, which may have several loaders.
UNDER_WAY_MAX = 32
_KEPT_MAX = 16


class _CudaBytes:
    """GPU memory as torch.as_tensor takes it; lives as long as a tensor looks at it."""

    def __init__(self, buffer: os2g.Buffer) -> None:
        self.__cuda_array_interface__ = buffer.__cuda_array_interface__
        self._buffer = buffer


class Region:
    def __init__(self, buffer: os2g.Buffer, tensor: torch.Tensor, back: "weakref.finalize[Any, Any]",
                 end: Callable[[os2g.Buffer], None]) -> None:
        self.buffer = buffer
        self.tensor = tensor  # all of it, uint8
        self._back, self._end = back, end

    def discard(self) -> None:
        """It is not used again."""
        self._back.detach()
        self._end(self.buffer)


class Regions:
    """Of one client and device. A region is free again when the last tensor over it has gone."""

    def __init__(self, client: os2g.Client, device: torch.device, spare: int,
                 pin_memory: bool = False) -> None:
        self.pid = os.getpid()
        self._client = client
        self._device = device
        self._cuda = device.type == "cuda"
        self._spare = spare  # free ones to keep
        self._pin = pin_memory and not self._cuda
        self._free: List[os2g.Buffer] = []
        # filled by whichever thread drops the last tensor
        self._returned: Deque[os2g.Buffer] = collections.deque()
        self._lent: Set[int] = set()
        self._closed = False

    @property
    def crowded(self) -> bool:
        """So much is lent that what has landed is better kept elsewhere."""
        return len(self._lent) > self._spare + _KEPT_MAX

    def context(self) -> ContextManager[Any]:
        """In which memory of the device is made and landed in."""
        return torch.cuda.device(self._device) if self._cuda else contextlib.nullcontext()

    def take(self, size: int) -> Region:
        """At least size bytes."""
        self._collect()
        for i, buffer in enumerate(self._free):
            if len(buffer) >= size:
                return self._lend(self._free.pop(i))
        while self._free and len(self._free) >= self._spare:
            self._end(self._free.pop(0))
        return self._lend(self._new(-(-max(size, 1) // _ROUND) * _ROUND))

    def _new(self, size: int) -> os2g.Buffer:
        if self._cuda:
            torch.cuda.synchronize(self._device)  # torch's context is the current one from now on
            return self._client.buffer(size, "cuda", self._device.index)
        buffer = self._client.buffer(size)
        if self._pin:
            torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(buffer.address, size, 0))
        return buffer

    def _end(self, buffer: os2g.Buffer) -> None:
        self._lent.discard(id(buffer))
        if self._pin:
            torch.cuda.cudart().cudaHostUnregister(buffer.address)
        buffer.close()

    def _lend(self, buffer: os2g.Buffer) -> Region:
        if self._cuda:
            bytes_: Any = _CudaBytes(buffer)
            tensor = torch.as_tensor(bytes_, device=self._device)
        else:
            bytes_ = buffer.view()
            tensor = torch.frombuffer(bytes_, dtype=torch.uint8)
        # the tensors' storage holds bytes_
        back = weakref.finalize(bytes_, self._back, buffer)
        back.atexit = False
        self._lent.add(id(buffer))
        return Region(buffer, tensor, back, self._end)

    def _back(self, buffer: os2g.Buffer) -> None:
        if self._closed:
            self._end(buffer)
        else:
            self._lent.discard(id(buffer))
            self._returned.append(buffer)

    def close(self) -> None:
        """Frees what is free, and the rest when nobody looks at it any more."""
        self._closed, self._spare = True, 0
        self._collect()

    def _collect(self) -> None:
        if self._returned and self._cuda:
            # a tensor may have gone before the kernels that read it
            torch.cuda.synchronize(self._device)
        while self._returned:
            self._free.append(self._returned.popleft())
        while len(self._free) > self._spare:
            self._end(self._free.pop(0))
