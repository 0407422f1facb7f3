# SPDX-License-Identifier: Apache-2.0
"""What a transform receives: an object that is fetched when it is read."""

import errno
import io
from typing import Any, Dict, Optional, Union

from ._source import Objects, named

# Objects up to this size come whole with the first read, larger ones as they are read.
WHOLE = 8 << 20
_PIECE = 1 << 20


class Reader(io.BufferedIOBase):
    """An object, as a file opened for reading: .bucket, .key, .read(), seek, tell, readinto.

    Nothing is asked of the store before the first read or seek to the end; what a listing has said
    of its size is not relied on. read() of a fresh one is one FETCH; in
    parts, an object of up to 8 MiB comes whole, and of a larger one what is read."""

    def __init__(self, objects: Objects, index: int, data: Optional[Any] = None) -> None:
        super().__init__()
        self._objects = objects
        # what a listing says of the size may not be so any more: a hint of how to fetch
        self._name, self._hint = objects.listed[index]
        self._size: Optional[int] = None
        self._position = 0
        self._data: Optional[memoryview] = None
        self._file: Optional[io.BufferedReader] = None
        if data is not None:
            self._have(data)

    @property
    def bucket(self) -> str:
        return self._objects.place.bucket

    @property
    def key(self) -> str:
        return self._objects.place.prefix + self._name

    @property
    def name(self) -> str:
        return self.key

    def __getstate__(self) -> Dict[str, Any]:
        """To another process go the bytes that are there; an open object is opened there again."""
        data = None if self._data is None else bytes(self._data)
        return {**self.__dict__, "_data": data, "_file": None}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._data is not None:
            self._data = memoryview(self._data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.bucket}/{self.key}>"

    def _have(self, data: Any) -> None:
        self._data = memoryview(data)
        self._size = len(self._data)

    def _fetch(self) -> bytes:
        with named(self.key):
            return self._objects.client.fetch(self._name, size=self._hint)

    def _check(self) -> None:
        if self.closed:
            raise ValueError(f"{self.key}: I/O operation on a closed reader")

    def _ready(self) -> None:
        """Makes bytes readable: all of them in _data, or the object opened as _file."""
        self._check()
        if self._data is not None or self._file is not None:
            return
        if self._hint is not None and self._hint <= WHOLE:
            self._have(self._fetch())
            return
        with named(self.key):
            raw = self._objects.client.open(self._name)
        self._size = raw.size
        if raw.size <= WHOLE:
            with raw, named(self.key):
                self._have(raw.read())
        else:
            self._file = io.BufferedReader(raw, _PIECE)

    def read(self, size: Optional[int] = -1) -> bytes:
        self._check()
        if self._at_end():
            return b""
        whole = size is None or size < 0
        if whole and self._data is None and self._file is None:
            self._have(self._fetch())
        self._ready()
        if self._file is not None:
            with named(self.key):
                self._file.seek(self._position)
                data = self._file.read(-1 if whole else size)
        else:
            assert self._data is not None
            data = self._part(len(self._data) if whole else size)
        self._position += len(data)
        return data

    def _part(self, size: Any) -> bytes:
        assert self._data is not None
        if self._position == 0 and size >= len(self._data) and isinstance(self._data.obj, bytes):
            return self._data.obj  # the very bytes that were fetched
        return bytes(self._data[self._position : self._position + size])

    def read1(self, size: int = -1) -> bytes:
        return self.read(size if size >= 0 else _PIECE)

    def _at_end(self) -> bool:
        return self._size is not None and self._position >= self._size

    def readinto(self, into: Any) -> int:
        self._check()
        room = memoryview(into).cast("B")
        if self._at_end():
            return 0
        if self._position == 0 and self._data is None and self._file is None:
            got = self._land(room)
            if got is not None:
                return got
        data = self.read(len(room))
        room[: len(data)] = data
        return len(data)

    readinto1 = readinto

    def _land(self, room: memoryview) -> Optional[int]:
        """The whole object, straight to where it is wanted; None if it is larger."""
        if self._hint is not None and self._hint > len(room):
            return None
        try:
            with named(self.key):
                got = len(self._objects.client.fetch(self._name, room))
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            self._hint = getattr(error, "object_size", None)
            return None
        self._size = self._position = got
        return got

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check()
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence == io.SEEK_END:
            if self._size is None:
                self._ready()
            offset += self._size or 0
        elif whence != io.SEEK_SET:
            raise ValueError(f"whence is {whence}")
        if offset < 0:
            raise ValueError(f"{self.key}: seek to before the beginning")
        self._position = offset
        return offset

    def tell(self) -> int:
        self._check()
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._data = None
        super().close()


def identity(reader: Reader) -> Union[Reader, Any]:
    return reader
