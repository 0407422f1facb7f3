# SPDX-License-Identifier: Apache-2.0
"""An object as a file."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any, Optional, Union

from os2g import _core
from os2g._buffer import core_target

if TYPE_CHECKING:
    from os2g._client import Client


class File(io.RawIOBase):
    """An object version, opened by Client.open: a change at the store is OSError(ESTALE), never a
    mixture. pread and pread_into leave the position alone and may run in many threads. For many
    small reads wrap it: io.BufferedReader(file, 1 << 20)."""

    mode = "rb"

    def __init__(self, client: Client, path: Union[str, bytes], handle: _core.Handle) -> None:
        super().__init__()
        self._client, self._path, self._handle = client, path, handle
        self._size, self._mtime, self._etag = handle.stat()
        self._at = 0

    @property
    def name(self) -> Union[str, bytes]:
        return self._path

    @property
    def size(self) -> int:
        return self._size

    @property
    def mtime(self) -> int:
        return self._mtime

    @property
    def etag(self) -> str:
        return self._etag

    @property
    def client(self) -> Client:
        return self._client

    def readable(self) -> bool:
        return self._open()

    def seekable(self) -> bool:
        return self._open()

    def _open(self) -> bool:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        return True

    def tell(self) -> int:
        self._open()
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._open()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}
        if whence not in base:
            raise ValueError(f"whence {whence}")
        if base[whence] + offset < 0:
            raise ValueError("a position before the file's beginning")
        self._at = base[whence] + offset
        return self._at

    def pread(self, size: int, offset: int) -> bytes:
        """Up to size bytes (-1: up to the end) from offset."""
        try:
            return self._handle.read(-1 if size is None else size, offset)
        finally:
            self._client._notice()

    def pread_into(self, into: Any, offset: int) -> int:
        """As many bytes as there are from offset and into has room for; how many."""
        try:
            return self._handle.read_into(core_target(into), 0, -1, offset)
        finally:
            self._client._notice()

    def read(self, size: Optional[int] = -1) -> bytes:
        data = self.pread(-1 if size is None else size, self._at)
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, into: Any) -> int:
        n = self.pread_into(into, self._at)
        self._at += n
        return n

    def write(self, data: Any) -> int:
        raise io.UnsupportedOperation("objects are read here, not written")

    def close(self) -> None:
        if not self.closed:
            self._handle.close()
        super().close()

    def __repr__(self) -> str:
        return f"<os2g.File {self._path!r}{', closed' if self.closed else ''}>"

    def __reduce__(self) -> Any:
        raise TypeError("a file does not pickle; its client does")
