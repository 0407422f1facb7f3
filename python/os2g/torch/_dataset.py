# SPDX-License-Identifier: Apache-2.0
"""Data sets of objects, one sample each."""

import errno
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence

import torch.utils.data

import os2g

from . import _order
from ._plan import Declared
from ._reader import WHOLE, Reader, identity
from ._source import Objects, objects_from_prefix, objects_from_uris

Transform = Callable[[Reader], Any]

# What __getitems__ has in memory at a time.
_TOGETHER = 256 << 20


class _Keys(Sequence[str]):
    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def __len__(self) -> int:
        return len(self._objects)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._objects.key(i) for i in range(*index.indices(len(self)))]
        return self._objects.key(index)


class _Objects:
    """What both kinds of data sets have."""

    def __init__(self, objects: Objects, transform: Transform = identity) -> None:
        self._objects = objects
        self._transform = transform

    @property
    def keys(self) -> Sequence[str]:
        """Of the objects in the bucket, in their order. Listed when they are first asked for."""
        return _Keys(self._objects)

    @property
    def client(self) -> os2g.Client:
        return self._objects.client


class MapDataset(_Objects, torch.utils.data.Dataset):
    """Objects by number; __getitem__ gives transform(Reader).

        MapDataset.from_prefix("s3://bucket/train/", region="eu-west-1", transform=load)

    options: of os2g.Client. In place of s3:// also a path in a mount, or a socket (all of its
    export). Then keys are those of the mount or export."""

    @classmethod
    def from_prefix(
        cls,
        object_uri: str,
        *,
        region: Optional[str] = None,
        endpoint: Optional[str] = None,
        transform: Transform = identity,
        **options: object,
    ) -> "MapDataset":
        """All objects whose URI begins with this, in the order of their keys. Left out are keys that
        no file can have: with a component of more than 255 bytes, ".", ".." or none ("a//b", "a/"), and
        "a" where there is "a/b", too; from_objects reads these."""
        return cls(objects_from_prefix(object_uri, region, endpoint, options), transform)

    @classmethod
    def from_objects(
        cls,
        object_uris: Iterable[str],
        *,
        region: Optional[str] = None,
        endpoint: Optional[str] = None,
        transform: Transform = identity,
        **options: object,
    ) -> "MapDataset":
        """These objects of one bucket, in this order."""
        return cls(objects_from_uris(object_uris, region, endpoint, options), transform)

    def __len__(self) -> int:
        return len(self._objects)

    def __getitem__(self, index: int) -> Any:
        return self._transform(Reader(self._objects, self._index(index)))

    def _index(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"object {index} of {len(self)}")
        return index % len(self)

    def __getitems__(self, indices: List[int]) -> List[Any]:
        """A batch (torch 2 asks so): its small objects are fetched at once."""
        indices = [self._index(index) for index in indices]
        sizes = [size for size in (self._objects.listed[index].size for index in indices)
                 if size is not None and size <= WHOLE]
        if len(sizes) < len(indices) or sum(sizes) > _TOGETHER:
            return [self[index] for index in indices]
        keys = [self._objects.listed[index].key for index in indices]
        fetched = self.client.fetch_many(keys, sizes=sizes, errors="return")
        items = []
        for i, index in enumerate(indices):
            error = fetched.errors[i]
            if error is not None and error.errno != errno.EFBIG:
                error.filename = self._objects.key(index)
                raise error
            # one that has grown since it was listed is fetched by its reader
            data = fetched[i] if error is None else None
            items.append(self._transform(Reader(self._objects, index, data)))
        return items


class IterableDataset(_Objects, torch.utils.data.IterableDataset):
    """Objects one after the other, fetched ahead in that order. enable_sharding: each worker of each
    rank has its share, in turn; otherwise each has all of them.

    window: bytes to fetch ahead; 0: what readers turn out to need; None: nothing before it is read,
    for those who only look at keys, or at the beginnings of large objects."""

    def __init__(
        self,
        objects: Objects,
        transform: Transform = identity,
        enable_sharding: bool = False,
        window: Optional[int] = 0,
    ) -> None:
        super().__init__(objects, transform)
        self._sharding = enable_sharding
        self._window = window

    @classmethod
    def from_prefix(
        cls,
        object_uri: str,
        *,
        region: Optional[str] = None,
        endpoint: Optional[str] = None,
        transform: Transform = identity,
        enable_sharding: bool = False,
        window: Optional[int] = 0,
        **options: object,
    ) -> "IterableDataset":
        objects = objects_from_prefix(object_uri, region, endpoint, options)
        return cls(objects, transform, enable_sharding, window)

    @classmethod
    def from_objects(
        cls,
        object_uris: Iterable[str],
        *,
        region: Optional[str] = None,
        endpoint: Optional[str] = None,
        transform: Transform = identity,
        enable_sharding: bool = False,
        window: Optional[int] = 0,
        **options: object,
    ) -> "IterableDataset":
        objects = objects_from_uris(object_uris, region, endpoint, options)
        return cls(objects, transform, enable_sharding, window)

    def __iter__(self) -> Iterator[Any]:
        mine, shards = _order.shard() if self._sharding else (0, 1)
        indices = range(mine, len(self._objects), shards)
        if self._window is None or not indices:
            yield from (self._transform(Reader(self._objects, index)) for index in indices)
            return
        keys = (self._objects.listed[index].key for index in indices)
        plan = Declared(lambda: self.client, keys, self._window)
        try:
            for index in indices:
                plan.keep()
                yield self._transform(Reader(self._objects, index))
        finally:
            plan.close()
