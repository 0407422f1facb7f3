# SPDX-License-Identifier: Apache-2.0
"""Many objects at a time: where each lands, and what becomes of it."""

from __future__ import annotations

import bisect
import errno
from typing import (Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple,
                    Union, overload)

from os2g import _core
from os2g._buffer import core_target, part_of

KEY_MAX = 1024
ALIGN = 64

Key = Union[str, bytes]


class Landed(NamedTuple):
    """One of as_completed's."""

    index: int  # type: ignore[assignment]
    key: Any
    buffer: Any
    offset: int
    size: int
    error: Optional[OSError]

    @property
    def data(self) -> Any:
        """The part of buffer that it fills."""
        return part_of(self.buffer, self.offset, self.size)


class Fetched(Sequence[Any]):
    """What has become of many objects; fetched[i] is the part of buffer that object i fills."""

    def __init__(self, buffer: Any, keys: Sequence[Any], offsets: Sequence[int]) -> None:
        self.buffer = buffer
        self.keys = keys
        self.offsets = offsets
        self.sizes = [0] * len(keys)
        self.errors: List[Optional[OSError]] = [None] * len(keys)

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, i: int) -> Any: ...

    @overload
    def __getitem__(self, i: slice) -> Sequence[Any]: ...

    def __getitem__(self, i: Union[int, slice]) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        error = self.errors[i]
        if error is not None:
            raise error
        return part_of(self.buffer, self.offsets[i], self.sizes[i])

    def _note(self, landed: Landed) -> None:
        self.sizes[landed.index] = landed.size
        self.errors[landed.index] = landed.error


# --- where they land ---


def several(keys: Iterable[Key]) -> Iterable[Key]:
    """keys, which are no single one: its letters would be keys, too."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"keys are several, not {keys!r}")
    return keys


def encode(keys: Sequence[Key]) -> List[bytes]:
    """Keys as they are at the store."""
    encoded = []
    for key in keys:
        if not isinstance(key, (str, bytes)):
            raise TypeError(f"a key is str or bytes, not {type(key)}")
        data = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
        if not 0 < len(data) <= KEY_MAX:
            raise OSError(errno.EINVAL, f"a key has 1 to {KEY_MAX} bytes", key)
        encoded.append(data)
    return encoded


def up(size: int, align: int) -> int:
    return -(-size // align) * align


def in_a_row(sizes: Sequence[int], align: int) -> Tuple[List[int], int]:
    """Offsets of rooms that follow each other, and where the last one ends."""
    offsets, at = [], 0
    for size in sizes:
        offsets.append(at)
        at = up(at + size, align)
    return offsets, at


def rooms(n: int, length: int, offsets: Optional[Sequence[int]], sizes: Optional[Sequence[int]],
          align: int) -> Tuple[List[int], List[int]]:
    """Offsets and sizes of the rooms for n objects in memory of a length."""
    for given in (offsets, sizes):
        if given is not None and len(given) != n:
            raise ValueError(f"{len(given)} rooms for {n} keys")
    if offsets is None and sizes is None:
        room = length // n // align * align if n else 0
        if n and not room:
            raise ValueError(f"no room for {n} objects in {length} bytes")
        return [i * room for i in range(n)], [room] * n
    if offsets is None:
        offsets, _ = in_a_row(sizes or (), align)
    if sizes is None:
        order = sorted({*offsets, length})
        sizes = [order[bisect.bisect_right(order, offset)] - offset if offset < length else 0
                 for offset in offsets]
    return [int(offset) for offset in offsets], [int(size) for size in sizes]


# --- carrying it out ---


def _drive(connection: _core.Connection, target: Any, n: int, depth: int, timeout: float,
           each: bool, submit: Callable[[_core.Batch, int, int], None]
           ) -> Iterator[Tuple[int, int, int]]:
    """Has n operations carried out, depth at a time: (number, result, object's size) in the order
    of their ends. each: told one by one rather than gathered."""
    depth = min(depth, n)
    batch = _core.Batch(connection, core_target(target), max(depth, 1))
    begun = under_way = 0
    try:
        while begun < n or under_way:
            more = min(n - begun, depth - under_way)
            if more:
                submit(batch, begun, begun + more)
                begun += more
                under_way += more
            # while there are more to begin, half of them: the device is never idle
            wanted = 1 if each else under_way if begun == n else max(1, under_way // 2)
            ended = batch.wait(wanted, timeout)
            if not ended:
                raise TimeoutError(errno.ETIMEDOUT, "no answer in time")
            under_way -= len(ended)
            yield from ended
    finally:
        batch.close()


def fetches(connection: _core.Connection, keys: Sequence[Key], into: Any, offsets: List[int],
            sizes: List[int], depth: int, timeout: float, each: bool) -> Iterator[Landed]:
    encoded = encode(keys)

    def submit(batch: _core.Batch, begin: int, end: int) -> None:
        batch.fetch(encoded, offsets, sizes, begin, end)

    for i, result, size in _drive(connection, into, len(keys), depth, timeout, each, submit):
        error = None
        if result < 0:
            error = _core.error(-result, keys[i])
            error.object_size = size  # type: ignore[attr-defined]
        yield Landed(i, keys[i], into, offsets[i], max(result, 0), error)


def reads(connection: _core.Connection, handles: List[_core.Handle], names: Sequence[Key],
          starts: List[int], into: Any, offsets: List[int], sizes: List[int], depth: int,
          timeout: float) -> Iterator[Landed]:

    def submit(batch: _core.Batch, begin: int, end: int) -> None:
        batch.read(handles, starts, offsets, sizes, begin, end)

    for i, result, _ in _drive(connection, into, len(handles), depth, timeout, False, submit):
        error = _core.error(-result, names[i]) if result < 0 else None
        yield Landed(i, names[i], into, offsets[i], max(result, 0), error)
