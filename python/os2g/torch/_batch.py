# SPDX-License-Identifier: Apache-2.0
"""A batch: while its objects are landing, and as people get it."""

import errno
import time
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import torch

from os2g import _core
from os2g._fetch import encode

from ._region import Regions
from ._source import Objects

_ALIGN = 64
_GUESS = 256 << 10  # of an object whose size nobody knows; the largest seen corrects it


class Rooms:
    """How much memory each object of a batch gets, and what its samples look like."""

    def __init__(self, objects: Objects, shape: Optional[Tuple[int, ...]],
                 dtype: torch.dtype) -> None:
        self.objects = objects
        self.shape, self.dtype = shape, dtype
        self._largest = 0
        self.sample = 0  # bytes
        if shape is not None:
            if any(extent < 0 for extent in shape):
                raise ValueError(f"no sample has the shape {shape}")
            self.sample = torch.empty(0, dtype=dtype).element_size()
            for extent in shape:
                self.sample *= extent

    def sizes(self, indices: Sequence[int]) -> List[int]:
        if self.shape is not None:
            return [self.sample] * len(indices)
        guess = self._largest or _GUESS
        known = [self.objects.listed[index].size for index in indices]
        return [max(guess if size is None else size, 1) for size in known]

    def saw(self, sizes: Iterable[int]) -> None:
        if self.shape is None:  # a quarter more: sizes vary
            size = max(sizes, default=0)
            self._largest = max(self._largest, size + size // 4)


def _laid_out(sizes: Sequence[int], offset: int = 0) -> Tuple[List[int], int]:
    """Where objects of these sizes go from offset on, and the end."""
    offsets = []
    for size in sizes:
        offsets.append(offset)
        offset += -(-size // _ALIGN) * _ALIGN
    return offsets, offset


class Batch:
    """data: the region, uint8; sample i is data[offsets[i]:][:sizes[i]], which batch[i] is too."""

    def __init__(self, rooms: Rooms, indices: List[int], data: torch.Tensor, offsets: List[int],
                 sizes: List[int], errors: List[Optional[OSError]]) -> None:
        self._rooms = rooms
        self.indices = indices
        self.data = data
        self.offsets = offsets
        self.sizes = sizes
        self.errors = errors
        self.labels: Optional[List[Any]] = None

    @property
    def keys(self) -> List[str]:
        """In the bucket."""
        return [self._rooms.objects.key(index) for index in self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int) -> torch.Tensor:
        i = range(len(self))[i]
        return self.data[self.offsets[i] : self.offsets[i] + self.sizes[i]]

    @property
    def samples(self) -> torch.Tensor:
        """All as one tensor over the region: (B, *shape) of dtype, or (B, size) bytes. ValueError,
        with the key, if one has another size."""
        size = self._rooms.sample if self._rooms.shape is not None else self.sizes[0]
        for index, found in zip(self.indices, self.sizes):
            if found != size:
                raise ValueError(f"{self._rooms.objects.key(index)} has {found} bytes, not {size}")
        step = self.offsets[1] if len(self) > 1 else size
        if all(offset == i * step for i, offset in enumerate(self.offsets)):
            rows = self.data.as_strided((len(self), size), (step, 1))
        else:
            rows = torch.stack([self[i] for i in range(len(self))])
        if self._rooms.dtype != torch.uint8:
            rows = rows.view(self._rooms.dtype)
        return rows if self._rooms.shape is None else rows.unflatten(1, self._rooms.shape)


class Landing:
    """A batch under way. All its requests are made here; nothing waits before finish()."""

    def __init__(self, regions: Regions, rooms: Rooms, indices: List[int]) -> None:
        self._regions, self._rooms = regions, rooms
        self._client = rooms.objects.client
        self._indices = indices
        self._room = rooms.sizes(indices)
        self._offsets, self._end = _laid_out(self._room)
        self._sizes = [0] * len(indices)
        self._errors: List[Optional[OSError]] = [None] * len(indices)
        self._region = regions.take(self._end)
        self.blocked = 0.0  # seconds that finish() has waited
        self._ask(list(range(len(indices))))

    def _ask(self, numbers: List[int]) -> None:
        """Fetches these of the batch."""
        listed = self._rooms.objects.listed
        keys = encode([listed[self._indices[i]].key for i in numbers])
        self._numbers = numbers
        with self._regions.context():
            self._asked = _core.Batch(self._client._core, self._region.buffer, len(numbers))
            self._asked.fetch(keys, [self._offsets[i] for i in numbers],
                              [self._room[i] for i in numbers], 0, len(numbers))

    def _collect(self) -> Dict[int, int]:
        """Waits for all; the sizes of those that had too little room."""
        larger, left = {}, len(self._numbers)
        while left:
            begun = time.monotonic()
            with self._regions.context():
                ended = self._asked.wait(left, self._client._timeout)
            self.blocked += time.monotonic() - begun
            if not ended:
                raise TimeoutError(errno.ETIMEDOUT, "no answer in time")
            left -= len(ended)
            for number, result, size in ended:
                i = self._numbers[number]
                self._sizes[i] = max(result, 0)
                self._errors[i] = None if result >= 0 else self._error(i, -result, size)
                if -result == errno.EFBIG and size > self._room[i]:
                    larger[i] = size
        self._rooms.saw(self._sizes)
        self._asked.close()
        self._client._notice()
        return larger

    def _error(self, i: int, number: int, size: int) -> OSError:
        error: OSError = _core.error(number, self._rooms.objects.key(self._indices[i]))
        error.object_size = size  # type: ignore[attr-defined]
        return error

    def finish(self) -> Batch:
        larger = self._collect()
        # again only while they grow: somebody may be writing
        for _ in range(3):
            if not larger or self._rooms.shape is not None:
                break
            self._enlarge(larger)
            larger = self._collect()
        data = self._region.tensor[: self._end]
        if self._regions.crowded:
            data = data.clone()
        return Batch(self._rooms, self._indices, data, self._offsets, self._sizes, self._errors)

    def _enlarge(self, larger: Dict[int, int]) -> None:
        """Asks again for these, into the end of a region that is large enough for them too."""
        old, used = self._region, self._end
        offsets, self._end = _laid_out(list(larger.values()), used)
        self._region = self._regions.take(self._end)
        self._region.tensor[:used].copy_(old.tensor[:used])
        for (i, size), offset in zip(larger.items(), offsets):
            self._offsets[i], self._room[i] = offset, size
        self._rooms.saw(larger.values())
        self._ask(list(larger))

    def cancel(self) -> None:
        self._asked.close()
        # of a device that has not said so yet it might still be written
        self._region.discard()
