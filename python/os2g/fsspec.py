# SPDX-License-Identifier: Apache-2.0
"""Buckets for what reads through fsspec: pandas, pyarrow, torch.load, Hugging Face datasets.

    pandas.read_parquet("os2g://bucket/table.parquet", storage_options={"endpoint_url": "http://…"})

"os2g" is known to fsspec once the package is installed; register(s3=True) also takes "s3" and
"s3a". Read-only."""

from __future__ import annotations

import errno
import io
from typing import Any, Dict, Iterable, List, Optional, Tuple

import fsspec
from fsspec.utils import stringify_path

from os2g._client import Client, Entry
from os2g._file import File

BLOCK = 1 << 20  # of small reads; the daemon reads ahead by itself


class OS2GFile(io.BufferedReader):
    """An object, opened: with what fsspec's users look for in a file."""

    def __init__(self, fs: OS2GFileSystem, path: str, raw: File, block_size: int) -> None:
        super().__init__(raw, block_size)
        self.fs, self.path, self.size = fs, path, raw.size
        self.details = {"name": path, "size": raw.size, "type": "file", "ETag": raw.etag}

    def info(self) -> Dict[str, Any]:
        return self.details


def _client_options(options: Dict[str, Any]) -> Dict[str, Any]:
    """Options of s3fs, as far as they say the same, in our words."""
    given = dict(options)
    client = dict(given.pop("client_kwargs", None) or {})
    if given.pop("anon", False):
        given["no_sign_request"] = True
    for theirs, ours in (("endpoint_url", "endpoint_url"), ("region_name", "region")):
        if theirs in client:
            given.setdefault(ours, client.pop(theirs))
    for name in ("key", "secret", "token"):
        if given.pop(name, None) is not None:
            raise ValueError(f"{name}: the daemon finds credentials itself (environment, profile)")
    if client:
        raise ValueError(f"client_kwargs: {', '.join(client)} is not known")
    return given


class OS2GFileSystem(fsspec.AbstractFileSystem):
    """where: a socket or a directory in a mount (os2g.Client); paths are then below it. Without it a
    path begins with the bucket. Other options are those of os2g.Client."""

    protocol = ("os2g", "s3", "s3a")
    root_marker = ""

    def __init__(self, where: Optional[str] = None, *, default_block_size: int = BLOCK,
                 skip_instance_cache: bool = False, use_listings_cache: bool = False,
                 **options: Any) -> None:
        super().__init__(skip_instance_cache=skip_instance_cache)
        self._where, self._block_size = where, default_block_size
        self._options = _client_options(options)
        self._clients: Dict[str, Client] = {}

    # --- names ---

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        for protocol in cls.protocol:
            if path.startswith(protocol + "://"):
                path = path[len(protocol) + 3:]
                break
        return path.strip("/") if path.endswith("/") or path.startswith("/") else path

    def _split(self, path: str) -> Tuple[Client, str, str]:
        """The client that path is of, what comes before its keys, and the key."""
        path = self._strip_protocol(path)
        if self._where is not None:
            return self._client(self._where), "", path
        bucket, _, key = path.partition("/")
        if not bucket:
            raise OSError(errno.EINVAL, "a path begins with a bucket", path)
        return self._client(f"s3://{bucket}/"), bucket + "/", key

    def _client(self, where: str) -> Client:
        client = self._clients.get(where)
        if client is None:
            client = self._clients.setdefault(where, Client(where, **self._options))
        return client

    # --- looking ---

    @staticmethod
    def _info(before: str, entry: Entry) -> Dict[str, Any]:
        return {"name": before + entry.name, "size": entry.size, "mtime": entry.mtime,
                "type": "directory" if entry.directory else "file"}

    def info(self, path: str, **kwargs: Any) -> Dict[str, Any]:
        client, before, key = self._split(path)
        stat = client.stat(key)
        info = self._info(before, Entry(key, stat.size, stat.mtime, stat.directory))
        info["name"] = info["name"].rstrip("/")
        if not stat.directory:
            info["ETag"] = stat.etag
        return info

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> List[Any]:
        client, before, key = self._split(path)
        try:
            found = [self._info(before + (key and key + "/"), entry) for entry in client.list(key)]
        except NotADirectoryError:
            found = [self.info(path)]
        return found if detail else [one["name"] for one in found]

    def find(self, path: str, maxdepth: Optional[int] = None, withdirs: bool = False,
             detail: bool = False, **kwargs: Any) -> Any:
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        client, before, key = self._split(path)
        try:
            found = [self._info(before, entry) for entry in client.walk(key)]
        except NotADirectoryError:
            found = [self.info(path)]
        except FileNotFoundError:
            found = []
        return {one["name"]: one for one in found} if detail else [one["name"] for one in found]

    def modified(self, path: str) -> Any:
        import datetime

        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], datetime.timezone.utc)

    def checksum(self, path: str) -> int:
        info = self.info(path)
        return hash((info["name"], info["size"], info.get("ETag")))

    # --- reading ---

    def _open(self, path: str, mode: str = "rb", block_size: Optional[int] = None,
              **kwargs: Any) -> OS2GFile:
        if mode != "rb":
            raise OSError(errno.EROFS, "objects are read here, not written", path)
        client, before, key = self._split(path)
        size = self._block_size if block_size in (None, "default") else int(block_size or 0)
        return OS2GFile(self, before + key, client.open(key), max(size, 1))

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None,
                 **kwargs: Any) -> bytes:
        client, _, key = self._split(path)
        if start is None and end is None:
            return client.fetch(key)
        with client.open(key) as file:
            start, stop, _ = slice(start, end).indices(file.size)
            return file.pread(max(0, stop - start), start)

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise",
            **kwargs: Any) -> Any:
        if kwargs:
            return super().cat(path, recursive=recursive, on_error=on_error, **kwargs)
        paths = self.expand_path(path, recursive=recursive)
        if not (len(paths) > 1 or isinstance(path, list) or paths[0] != self._strip_protocol(path)):
            return self.cat_file(paths[0])
        return self._cat_many([one for one in paths if not recursive or self.isfile(one)], on_error)

    def _cat_many(self, paths: Iterable[str], on_error: str) -> Dict[str, Any]:
        """Whole objects, many at a time."""
        groups: Dict[int, Tuple[Client, List[str], List[str]]] = {}
        for path in paths:
            client, _, key = self._split(path)
            group = groups.setdefault(id(client), (client, [], []))
            group[1].append(path)
            group[2].append(key)
        contents: Dict[str, Any] = {}
        for client, names, keys in groups.values():
            fetched = client.fetch_many(keys, errors="return")
            for i, name in enumerate(names):
                error = fetched.errors[i]
                if error is None:
                    contents[name] = bytes(fetched[i])
                elif on_error == "raise":
                    raise error
                elif on_error == "return":
                    contents[name] = error
        return contents

    def cat_ranges(self, paths: List[str], starts: Any, ends: Any,
                   max_gap: Optional[int] = None, on_error: str = "return",
                   **kwargs: Any) -> List[Any]:
        n = len(paths)
        starts = starts if isinstance(starts, (list, tuple)) else [starts] * n
        ends = ends if isinstance(ends, (list, tuple)) else [ends] * n
        if len(starts) != n or len(ends) != n:
            raise ValueError("as many paths as starts and ends")
        results: List[Any] = [b""] * n
        files: Dict[str, Any] = {}
        try:
            for path in dict.fromkeys(paths):
                client, _, key = self._split(path)
                try:
                    files[path] = client.open(key)
                except OSError as error:
                    if on_error == "raise":
                        raise
                    files[path] = error
            self._read_ranges(paths, starts, ends, files, on_error, results)
        finally:
            for file in files.values():
                if isinstance(file, File):
                    file.close()
        return results

    @staticmethod
    def _read_ranges(paths: List[str], starts: Any, ends: Any, files: Dict[str, Any],
                     on_error: str, results: List[Any]) -> None:
        groups: Dict[int, Tuple[Client, List[int], List[Tuple[File, int, int, int]], int]] = {}
        for i, path in enumerate(paths):
            file = files[path]
            if not isinstance(file, File):
                results[i] = file
                continue
            start, stop, _ = slice(starts[i], ends[i]).indices(file.size)
            client, numbers, reads, at = groups.get(id(file.client), (file.client, [], [], 0))
            size = max(0, stop - start)
            numbers.append(i)
            reads.append((file, start, size, at))
            groups[id(client)] = (client, numbers, reads, at + size)
        for client, numbers, reads, size in groups.values():
            read = client.read_many(reads, client.buffer(max(1, size)), errors=on_error)
            for i, number in enumerate(numbers):
                results[number] = read.errors[i] or bytes(read[i])


def register(s3: bool = False) -> None:
    """Has fsspec take this file system for "os2g", and for "s3" and "s3a", too."""
    for protocol in ("os2g", "s3", "s3a") if s3 else ("os2g",):
        fsspec.register_implementation(protocol, OS2GFileSystem, clobber=True)
