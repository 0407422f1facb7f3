# SPDX-License-Identifier: Apache-2.0
"""A batch: while its objects are landing, and as people get it."""

import errno
import time
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import torch

from os2g import _core
from os2g._fetch import ALIGN, encode, in_a_row, up

from ._region import Regions
from ._source import Objects

_GUESS = 256 << 10  # of an object whose size nobody knows; the largest seen corrects it


class Rooms:
    """How much memory each object of a batch gets, and what its samples look like."""

    def __init__(self, objects: Objects, shape: Optional[Tuple[int, ...]],
                 dtype: torch.dtype) -> None:
        self.objects = objects
        self.shape, self.dtype = shape, dtype
        self._largest = 0
        self.sample = self._step = 0  # bytes of one, and from one to the next
        if shape is not None:
            if any(extent < 0 for extent in shape):
                raise ValueError(f"no sample has the shape {shape}")
            sample = torch.empty(shape, dtype=dtype, device="meta")
            self.sample = sample.numel() * sample.element_size()
            self._step = up(max(self.sample, 1), ALIGN)
            # of a batch's samples, in elements
            self.strides = (self._step // sample.element_size(), *sample.stride())

    def laid_out(self, indices: Sequence[int]) -> Tuple[List[int], List[int], int]:
        """The objects' sizes, where they go, and where the last one ends."""
        n = len(indices)
        if self.shape is not None:
            end = n * self._step
            return [self.sample] * n, list(range(0, end, self._step)), end
        guess = self._largest or _GUESS
        known = [self.objects.listed[index].size for index in indices]
        sizes = [max(guess if size is None else size, 1) for size in known]
        return (sizes, *in_a_row(sizes, ALIGN))

    def saw(self, sizes: Iterable[int]) -> None:
        if self.shape is None:  # a quarter more: sizes vary
            size = max(sizes, default=0)
            self._largest = max(self._largest, size + size // 4)


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
        rooms = self._rooms
        size = rooms.sample if rooms.shape is not None else self.sizes[0]
        if self.sizes.count(size) < len(self):
            index, found = next(one for one in zip(self.indices, self.sizes) if one[1] != size)
            raise ValueError(f"{rooms.objects.key(index)} has {found} bytes, not {size}")
        if rooms.shape is not None:
            data = self.data if rooms.dtype == torch.uint8 else self.data.view(rooms.dtype)
            return data.as_strided((len(self), *rooms.shape), rooms.strides)
        step = self.offsets[1] if len(self) > 1 else size
        if all(offset == i * step for i, offset in enumerate(self.offsets)):
            rows = self.data.as_strided((len(self), size), (step, 1))
        else:
            rows = torch.stack([self[i] for i in range(len(self))])
        return rows if rooms.dtype == torch.uint8 else rows.view(rooms.dtype)


class Landing:
    """A batch under way. All its requests are made here; nothing waits before finish()."""

    def __init__(self, regions: Regions, rooms: Rooms, indices: List[int]) -> None:
        self._regions, self._rooms = regions, rooms
        self._client = regions.client
        self.indices = indices
        listed = rooms.objects.listed
        self._keys = encode([listed[index].key for index in indices])
        self._room, self._offsets, self._end = rooms.laid_out(indices)
        self._sizes = [0] * len(indices)
        self._errors: List[Optional[OSError]] = [None] * len(indices)
        self._region, self._view = regions.take(self._end)
        self.blocked = 0.0  # seconds that finish() has waited
        self._asked = self._region.asking(len(indices))
        with regions.context:
            self._asked.fetch(self._keys, self._offsets, self._room, 0, len(indices))

    def _collect(self, left: int) -> Dict[int, int]:
        """Waits for so many, which are all; the sizes of those that had too little room."""
        larger = {}
        while left:
            begun = time.monotonic()
            with self._regions.context:
                ended, failed = self._asked.gather(self._sizes, left, self._client._timeout)
            self.blocked += time.monotonic() - begun
            if not ended:
                raise TimeoutError(errno.ETIMEDOUT, f"no answer in time{self._client._why()}")
            left -= ended
            for i, result, size in failed:
                self._errors[i] = self._error(i, -result, size)
                if -result == errno.EFBIG and size > self._room[i]:
                    larger[i] = size
        self._region.landed(self._asked)
        self._rooms.saw(self._sizes)
        self._client._notice()
        return larger

    def _error(self, i: int, number: int, size: int) -> OSError:
        error: OSError = _core.error(number, self._rooms.objects.key(self.indices[i]))
        error.object_size = size  # type: ignore[attr-defined]
        return error

    def finish(self) -> Batch:
        larger = self._collect(len(self.indices))
        # again only while they grow: somebody may be writing
        for _ in range(3):
            if not larger or self._rooms.shape is not None:
                break
            self._enlarge(larger)
            larger = self._collect(len(larger))
        data = self._regions.tensor(self._view, self._end)
        if self._regions.crowded:
            data = data.clone()
        return Batch(self._rooms, self.indices, data, self._offsets, self._sizes, self._errors)

    def _enlarge(self, larger: Dict[int, int]) -> None:
        """Asks again for these, into the end of a region that is large enough for them too."""
        used = self._end
        landed = self._regions.tensor(self._view, used)
        offsets, more = in_a_row(list(larger.values()), ALIGN)
        self._end = used + more
        self._region, self._view = self._regions.take(self._end)
        self._regions.tensor(self._view, used).copy_(landed)
        for (i, size), offset in zip(larger.items(), offsets):
            self._offsets[i], self._room[i], self._errors[i] = used + offset, size, None
        self._rooms.saw(larger.values())
        self._asked = self._region.asking(len(larger))
        with self._regions.context:
            for i in larger:
                self._asked.fetch(self._keys, self._offsets, self._room, i, i + 1)

    def cancel(self) -> None:
        del self._asked  # which waits for the end of what is under way
        # of a device that has not said so yet it might still be written
        self._regions.discard(self._region)
