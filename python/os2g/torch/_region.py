# SPDX-License-Identifier: Apache-2.0
"""Regions that batches land in, used again when nobody looks at them any more."""

import contextlib
import os
import weakref
from typing import Any, ContextManager, List, Optional, Tuple

import torch

import os2g
from os2g import _core

_ROUND = 2 << 20  # what memory comes in

# A daemon takes 128 pieces of memory of one client, which may have several loaders.
UNDER_WAY_MAX = 32
_KEPT_MAX = 16
_SETTLED_MAX = 4  # pinned regions that GPUs are waited for at once: so much more memory it takes


class _CudaBytes:
    """GPU memory as torch.as_tensor takes it; lives as long as a tensor looks at it."""

    def __init__(self, buffer: os2g.Buffer) -> None:
        self.__cuda_array_interface__ = buffer.__cuda_array_interface__
        self._buffer = buffer


class Region:
    """Memory that one batch after the other lands in."""

    def __init__(self, client: os2g.Client, buffer: os2g.Buffer) -> None:
        self._client = client
        self.buffer = buffer
        self._asked: Optional[_core.Batch] = None
        self._most = 0  # objects that it takes

    def asking(self, objects: int) -> _core.Batch:
        """What asks for so many. It ends what is under way when it goes, so it is not kept here
        meanwhile."""
        asked, self._asked = self._asked, None
        if asked is None or self._most < objects:
            asked, self._most = _core.Batch(self._client._core, self.buffer, objects), objects
        return asked

    def landed(self, asked: _core.Batch) -> None:
        """All that was asked for has, and it may ask for the next batch."""
        self._asked = asked


def _settle_gpus() -> None:
    """Waits for all that this process has asked of GPUs so far, on whichever stream. A GPU that it
    does not use is left alone: the wait would make a context there, which takes memory."""
    for number in range(torch.cuda.device_count()):
        if torch._C._cuda_hasPrimaryContext(number):
            torch.cuda.synchronize(number)


def _unpin(pid: int, address: int) -> None:
    if os.getpid() != pid:  # a child's is its parent's
        return
    try:
        _settle_gpus()  # a copy from there may be under way
    finally:
        torch.cuda.cudart().cudaHostUnregister(address)


class Regions:
    """Of one client and device. A region is free again when the last tensor over it has gone and,
    where a GPU may read it, the GPU has done all that was asked of it before that was seen.

    torch's own pinned memory has an event for each copy, which memory that is registered does not
    get (its allocator does not know it), and an event of ours would be on one stream, while a copy
    may be on any. So GPUs are waited for as a whole; for pinned memory not for each region, as that
    would keep the CPU from running ahead of the GPU."""

    def __init__(self, client: os2g.Client, device: torch.device, spare: int,
                 pin_memory: bool = False) -> None:
        self.pid = os.getpid()
        self.client = client
        self._device = device
        self._cuda = device.type == "cuda"
        self._spare = spare  # free ones to keep
        self._pin = pin_memory and not self._cuda
        # of those left, how many are settled at a time; 0: nothing but the CPU reads them
        self._together = 1 if self._cuda else min(spare, _SETTLED_MAX) if self._pin else 0
        self._free: List[Region] = []
        self._left: List[Region] = []  # nobody looks at them, but a GPU may still read them
        self._lent: List[Tuple["weakref.ref[Any]", Region]] = []  # with what tensors look at it by
        # in which memory of the device is made and landed in
        self.context: ContextManager[Any] = (
            torch.cuda.device(device) if self._cuda else contextlib.nullcontext())

    @property
    def crowded(self) -> bool:
        """So much is lent that what has landed is better kept elsewhere."""
        return len(self._lent) > self._spare + _KEPT_MAX

    def take(self, size: int) -> Tuple[Region, Any]:
        """At least size bytes, and what tensor() looks at them by: for as long as that or a tensor
        is left nobody else takes them."""
        self._collect()
        for region in self._free:
            if len(region.buffer) >= size:
                self._free.remove(region)
                break
        else:
            while self._free and len(self._free) >= self._spare:
                self._free.pop(0)
            region = Region(self.client, self._new(-(-max(size, 1) // _ROUND) * _ROUND))
        view = _CudaBytes(region.buffer) if self._cuda else memoryview(region.buffer)
        self._lent.append((weakref.ref(view), region))
        return region, view

    def tensor(self, view: Any, size: int) -> torch.Tensor:
        """The first bytes, one at least, uint8."""
        # its storage holds the view
        if self._cuda:
            return torch.as_tensor(view, device=self._device)[:size]
        return torch.frombuffer(view, dtype=torch.uint8, count=size)

    def _new(self, size: int) -> os2g.Buffer:
        if self._cuda:
            torch.cuda.synchronize(self._device)  # torch's context is the current one from now on
            return self.client.buffer(size, "cuda", self._device.index)
        buffer = self.client.buffer(size)
        if self._pin:
            torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(buffer.address, size, 0))
            # before it is freed, which is when nobody looks at it any more
            weakref.finalize(buffer, _unpin, self.pid, buffer.address).atexit = False
        return buffer

    def discard(self, region: Region) -> None:
        """It is not used again."""
        self._lent = [one for one in self._lent if one[1] is not region]

    def close(self) -> None:
        """Frees what is free, and the rest when nobody looks at it any more."""
        self._collect()
        self._free.clear()
        self._left.clear()
        self._lent.clear()

    def _collect(self) -> None:
        lent, self._lent = self._lent, []
        for view, region in lent:
            if view() is None:
                self._left.append(region)
            else:
                self._lent.append((view, region))
        if self._left and len(self._left) >= self._together:
            self._settle()

    def _settle(self) -> None:
        if os.getpid() != self.pid:
            pass  # a child has no GPU, and what it is given up by is its parent's
        elif self._cuda:
            torch.cuda.synchronize(self._device)
        elif self._pin:
            _settle_gpus()
        self._free += self._left
        self._left.clear()
        del self._free[: max(0, len(self._free) - self._spare)]
