# SPDX-License-Identifier: Apache-2.0
"""A connection to the daemon that serves a bucket."""

from __future__ import annotations

import collections
import errno
import functools
import logging
import os
import time
from typing import (Any, Callable, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional,
                    Sequence, Tuple, Union, overload)

from os2g import _core, _stalls
from os2g._buffer import KINDS, Buffer, adopt, core_target, part_of, size_of
from os2g._fetch import ALIGN, Fetched, Landed, fetches, in_a_row, reads, rooms, several, up
from os2g._file import File
from os2g._plan import Plan

# A key below the client's prefix, taken literally (str as UTF-8, with surrogateescape), or a path
# below it, as in a mount.
Key = Union[str, bytes]
# What bytes can land in: a Buffer, a writable object with the buffer protocol (bytearray, numpy
# array), or one with __cuda_array_interface__. Host memory that is no Buffer costs one copy.
Target = Any

ROOM_MIN, ROOM_MAX = 256 << 10, 8 << 20  # for an object whose size is not known
EVENTS_KEPT = 64

log = logging.getLogger("os2g")


class Stat(NamedTuple):
    size: int
    mtime: int  # seconds since 1970
    directory: bool
    etag: str  # "" if not known


class Entry(NamedTuple):
    name: str  # list(): in the directory; walk(): the path below the client
    size: int
    mtime: int
    directory: bool


class Stats(NamedTuple):
    requests: int
    bytes: int
    errors: int
    bounced_bytes: int  # with one copy, for memory that is no Buffer
    reconnects: int
    cuda_bytes: int
    way: str  # how bytes come: "shared memory", "guest BAR"
    release: str  # of the daemon


class Event(NamedTuple):
    kind: str  # "lost", "reconnected", "fallback"
    text: str  # a sentence for people
    time: float  # when it was noticed


def _option(name: str, value: object) -> Optional[bytes]:
    name = name.replace("_", "-")
    if value is None or value is False:
        return None
    return os.fsencode(name if value is True else f"{name}={value}")


def _connect_again(where: str, arguments: Dict[str, Any]) -> Client:
    return Client(where, **arguments)


class Client:
    """A connection to the daemon that serves where: "s3://bucket/prefix/" (OS2G_SOCKET's daemon if
    that is set: OSError (EINVAL) when it serves something else; or a private one of this user's,
    which is started when it is not there and ends with the last process that uses it), the path of an
    export's socket, or a directory in a mount of os2g's (its keys are the mount's then, whichever
    directory was named).

    depth: requests under way at a time (at most 1024). timeout: seconds that a call waits, and that
    the daemon may be away. start=False: never start a daemon. program: the os2gd to start. event:
    called with each Event, by the thread whose call noticed it; without it they are logged.
    options: of the export, for a daemon that is started, as os2g(1) has them:
    endpoint_url="http://…", region="…", memory="1G", no_sign_request=True."""

    def __init__(self, where: Union[str, os.PathLike[str]], *, depth: int = 256,
                 timeout: float = 90.0, start: bool = True, program: Optional[str] = None,
                 event: Optional[Callable[[Event], object]] = None, **options: object) -> None:
        self._connection: Optional[_core.Connection] = None
        self._where = os.fspath(where)
        self._arguments: Dict[str, Any] = {"depth": depth, "timeout": timeout, "start": start,
                                           "program": program, "event": event, **options}
        self._depth, self._timeout, self._event = depth, timeout, event
        self._events: Deque[Event] = collections.deque(maxlen=EVENTS_KEPT)
        self._room = ROOM_MIN
        given = (_option(name, value) for name, value in options.items())
        self._connection = _core.Connection(
            os.fsencode(self._where), depth, max(1, round(timeout * 1000)), start, program,
            tuple(option for option in given if option is not None))
        self._notice()

    @property
    def where(self) -> str:
        return self._where

    @property
    def closed(self) -> bool:
        return self._connection is None

    @property
    def events(self) -> Sequence[Event]:
        """The last 64."""
        return tuple(self._events)

    def close(self) -> None:
        """Ends this client. Files, buffers and plans made from it go on until they are closed or
        gone, and the connection with them."""
        self._connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> Tuple[Any, ...]:
        return _connect_again, (self._where, self._arguments)

    def __repr__(self) -> str:
        return f"<os2g.Client {self._where!r}{', closed' if self.closed else ''}>"

    @property
    def _core(self) -> _core.Connection:
        if self._connection is None:
            raise ValueError("a client that is closed")
        return self._connection

    def _notice(self) -> None:
        """Passes on what has happened since the last call."""
        if self._connection is None:
            return
        for kind, text in self._connection.events():
            event = Event(kind, text, time.time())
            self._events.append(event)
            if self._event is not None:
                self._event(event)
            else:
                log.warning("%s: %s", self._where, text)

    def _why(self) -> str:
        """What is known of a daemon that does not answer, to be put behind a sentence that says so."""
        self._notice()
        last = next((one for one in reversed(self._events) if one.kind != "fallback"), None)
        return f": {last.text}" if last is not None and last.kind == "lost" else ""

    # --- files ---

    def open(self, path: Key) -> File:
        try:
            return File(self, path, self._core.open(path))
        finally:
            self._notice()

    def read(self, path: Key, offset: int = 0, size: int = -1) -> bytes:
        """open, read and close; size -1: up to the end."""
        with self.open(path) as file:
            return file.pread(size, offset)

    def stat(self, path: Key) -> Stat:
        try:
            return Stat(*self._core.stat(path))
        finally:
            self._notice()

    def list(self, path: Key = "") -> List[Entry]:
        """A directory's names, in the byte order of keys."""
        try:
            return [Entry(*entry) for entry in self._core.list(path)]
        finally:
            self._notice()

    def walk(self, path: str = "") -> Iterator[Entry]:
        """All objects below a directory, in that order; names are paths below the client, which are
        keys for fetch()."""
        path = path.strip("/")
        for entry in self.list(path):
            below = f"{path}/{entry.name}" if path else entry.name
            if entry.directory:
                yield from self.walk(below)
            else:
                yield entry._replace(name=below)

    def read_into(self, file: File, into: Target, offset: int = 0, *, file_offset: int = 0,
                  size: Optional[int] = None) -> int:
        """Up to size bytes (None: what there is room for) of file from file_offset to into[offset:];
        how many, fewer only at the object's end."""
        try:
            return file._handle.read_into(core_target(into), offset, -1 if size is None else size,
                                          file_offset)
        finally:
            self._notice()

    def read_many(self, ranges: Iterable[Tuple[File, int, int, int]], into: Target, *,
                  depth: Optional[int] = None, errors: str = "raise") -> Fetched:
        """Reads (file, file_offset, size, offset in into), depth under way at a time; returns when
        all are done. errors: as for fetch_many."""
        ranges = list(ranges)
        files, starts, sizes, offsets = map(list, zip(*ranges)) if ranges else ([], [], [], [])
        names = [file.name for file in files]
        landed = reads(self._core, [file._handle for file in files], names, starts, into, offsets,
                       sizes, depth or self._depth, self._timeout)
        return self._gather(landed, Fetched(into, names, offsets), errors)

    # --- whole objects ---

    @overload
    def fetch(self, key: Key, *, size: Optional[int] = None) -> bytes: ...

    @overload
    def fetch(self, key: Key, into: Target, offset: int = 0, *,
              size: Optional[int] = None) -> Any: ...

    def fetch(self, key: Key, into: Optional[Target] = None, offset: int = 0, *,
              size: Optional[int] = None) -> Any:
        """A whole object: as bytes (size: what it has, as far as is known); or landed at into[offset:],
        where there is room for size bytes (None: up to its end). Then the part of into that it fills
        is returned: a memoryview, or a DeviceView for GPU memory. OSError(EFBIG), with object_size,
        when it is larger."""
        if size is not None and size < 0:
            raise ValueError(f"a size of {size} bytes")
        try:
            if into is None:
                return self._fetch_bytes(key, size)
            room = size_of(into) - offset if size is None else size
            landed, length = self._core.fetch_into(key, core_target(into), offset, max(room, 0))
        finally:
            self._notice()
        if not landed:
            error = _core.error(errno.EFBIG, key)
            error.object_size = length  # type: ignore[attr-defined]
            raise error
        return part_of(into, offset, length)

    def _fetch_bytes(self, key: Key, size: Optional[int]) -> bytes:
        data = self._core.fetch(key) if size is None else self._core.fetch_sized(key, size)
        while isinstance(data, int):  # how large it is: it may have changed by now
            data = self._core.fetch_sized(key, data)
        return data

    def _learn(self, size: int) -> None:
        self._room = max(self._room, min(ROOM_MAX, 1 << (size - 1).bit_length()))

    def fetch_many(self, keys: Iterable[Key], into: Optional[Target] = None, *,
                   offsets: Optional[Sequence[int]] = None, sizes: Optional[Sequence[int]] = None,
                   align: int = ALIGN, depth: Optional[int] = None,
                   errors: str = "raise") -> Fetched:
        """Whole objects, depth (None: the client's) under way at a time; returns when all are done.

        into None: a new host Buffer that all of them fit in. Else object i lands at offsets[i], with
        room for sizes[i] bytes; without offsets, rooms follow each other, each at a multiple of
        align; without sizes, all are equal parts of into, or go up to the next offset. errors
        "raise": the first failure is raised, when nothing is under way any more; "return": they are
        in Fetched.errors."""
        keys = list(several(keys))
        if into is None:
            return self._fetch_many_anywhere(keys, sizes, align, depth or self._depth, errors)
        at, room = rooms(len(keys), size_of(into), offsets, sizes, align)
        landed = fetches(self._core, keys, into, at, room, depth or self._depth, self._timeout,
                         False)
        return self._gather(landed, Fetched(into, keys, at), errors)

    def as_completed(self, keys: Iterable[Key], into: Optional[Target] = None, *,
                     offsets: Optional[Sequence[int]] = None,
                     sizes: Optional[Sequence[int]] = None, align: int = ALIGN,
                     depth: Optional[int] = None, errors: str = "raise") -> Iterator[Landed]:
        """As fetch_many, each object when it is there. into None: a new host Buffer with rooms of
        sizes bytes, which are needed then. An iterator that is closed cancels the rest."""
        keys = list(several(keys))
        if into is None:
            if sizes is None:
                raise ValueError("objects of sizes that are not known, and no memory to land in")
            into = self.buffer(max(1, in_a_row(sizes, align)[1]))
        at, room = rooms(len(keys), size_of(into), offsets, sizes, align)
        landed = fetches(self._core, keys, into, at, room, depth or self._depth, self._timeout,
                         True)
        return self._each(landed, errors)

    def _each(self, landed: Iterator[Landed], errors: str) -> Iterator[Landed]:
        for one in landed:
            self._notice()
            if one.error is not None and errors == "raise":
                raise one.error
            yield one

    def _gather(self, landed: Iterator[Landed], into: Fetched, errors: str) -> Fetched:
        first: Optional[OSError] = None
        try:
            for one in landed:
                into._note(one)
                first = first or one.error
        finally:
            self._notice()
        if first is not None and errors == "raise":
            raise first
        return into

    def _fetch_many_anywhere(self, keys: List[Key], sizes: Optional[Sequence[int]], align: int,
                             depth: int, errors: str) -> Fetched:
        if not keys:
            return Fetched(b"", [], [])
        room = list(sizes) if sizes is not None else [self._room] * len(keys)
        offsets, end = in_a_row(room, align)
        # memory is touched only where something lands: rooms that are too large cost nothing
        buffer = self.buffer(max(1, end))
        run = functools.partial(fetches, self._core, depth=depth, timeout=self._timeout, each=False)
        fetched = self._gather(run(keys, buffer, offsets, room), Fetched(buffer, keys, offsets),
                               "return")
        while True:
            large = {i: error.object_size for i, error in enumerate(fetched.errors)  # type: ignore
                     if error is not None and error.errno == errno.EFBIG}
            if not large or sizes is not None:
                break
            self._learn(max(large.values()))
            fetched = self._fetch_larger(fetched, large, align, run)
        first = next((error for error in fetched.errors if error is not None), None)
        if first is not None and errors == "raise":
            raise first
        return fetched

    def _fetch_larger(self, fetched: Fetched, large: Dict[int, int], align: int,
                      run: Callable[..., Iterator[Landed]]) -> Fetched:
        """All of it in larger memory, where these fit, too."""
        offsets, end = in_a_row([large.get(i, size) for i, size in enumerate(fetched.sizes)], align)
        buffer = self.buffer(max(1, end))
        moved = Fetched(buffer, fetched.keys, offsets)
        for i, error in enumerate(fetched.errors):
            moved.errors[i] = error
            if error is None:
                buffer.view(offsets[i], fetched.sizes[i])[:] = fetched[i]
                moved.sizes[i] = fetched.sizes[i]
        again = list(large)
        for one in run([fetched.keys[i] for i in again], buffer, [offsets[i] for i in again],
                       [large[i] for i in again]):
            moved._note(one._replace(index=again[one.index]))
        return moved

    # --- plans ---

    def plan(self, keys: Iterable[Key], window: int = 0) -> Plan:
        """Declares the order in which this and other processes are going to read whole objects:
        they are fetched ahead in it, up to window bytes (0: what readers turn out to need), each
        once."""
        try:
            return Plan(self, self._core, keys, window)
        finally:
            self._notice()

    # --- memory ---

    def buffer(self, size: int, memory: str = "host", device: int = 0) -> Buffer:
        """Zeroed memory that bytes land in without a copy: "host", "cuda" (of GPU device, in the
        current context) or "bar" (in a guest)."""
        if memory not in KINDS:
            raise ValueError(f"memory {memory!r} is none of {', '.join(KINDS)}")
        try:
            return Buffer(self._core, size, KINDS[memory], device)
        finally:
            self._notice()

    def register(self, obj: Any, *, fd: int = -1, offset: int = 0) -> Buffer:
        """Memory that is there already, as a Buffer over the same bytes that keeps obj alive: of
        anything with __cuda_array_interface__ (a tensor on a GPU), or, with fd, a writable shared
        mmap of fd at offset."""
        try:
            return adopt(self._core, obj, fd, offset)
        finally:
            self._notice()

    def stats(self) -> Stats:
        return Stats(*self._core.stats())

    def stalls(self) -> _stalls.Stalls:
        """How long readers of this export waited, all clients' and mounts', on which objects and
        why, by epochs. A fetch that waited need not have kept anybody waiting: see
        os2g.torch.DeviceLoader.stalls. FileNotFoundError: the daemon is of an earlier release."""
        try:
            text = self.read(_stalls.PATH)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            text = self.read(_stalls.PATH)  # another worker has taken over
        return _stalls.parse(text)
