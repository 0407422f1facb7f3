# SPDX-License-Identifier: Apache-2.0
"""Copies of a part of the data set, for who does not read it object by object from the store: tar
shards for WebDataset, and files in memory, as the ceiling of what any loader can do with files.
"""

import io
import pathlib
import subprocess
import tarfile
import tempfile

import synthetic

from .dataset import BUCKET, SAMPLE, Dataset

SHARD = 64  # samples of each


def shard(members):
    """The bytes of a tar file of (name, bytes)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Part(Dataset):
    """Its first classes, over and over: who reads it keeps nothing from one epoch to the next, or has
    everything in memory anyway. In order, from the beginning of a shard on; nothing is to be listed."""

    CLASSES = 16

    def __init__(self):
        super().__init__(self.CLASSES)

    def take(self, samples, seed=0):
        first, self._next = self._next, self._next + -(-samples // SHARD) * SHARD
        return [(first + i) % len(self.keys) for i in range(samples)], []

    def contents(self):
        """(key, bytes) of all."""
        return ((key, synthetic.expected(BUCKET, key, 0, SAMPLE)) for key in self.keys)


class Copy:
    """Is used as mounts are; runs nothing on any side."""

    def __init__(self, store, side=None):
        self._store, self.data = store, Part()


class Shards(Copy):
    """In the store, beside the rest. path: the URL of where they are, for everybody to read."""

    def __enter__(self):
        s = self._store
        self._client = s.s3_client()
        contents = self.data.contents()
        self._keys = [f"shards/{i:06d}.tar" for i in range(len(self.data.keys) // SHARD)]
        for key in self._keys:
            members = [next(contents) for _ in range(SHARD)]
            self._client.put_object(Bucket=s.bucket, Key=key, Body=shard(members), ACL="public-read")
        self.path = f"{s.endpoint}/{s.bucket}/shards"
        return self

    def __exit__(self, *_):
        for key in self._keys:
            self._client.delete_object(Bucket=self._store.bucket, Key=key)


class Local(Copy):
    """On a file system in memory. A disk's with a warm cache does the same; caches are dropped here."""

    def __enter__(self):
        self._dir = tempfile.TemporaryDirectory(prefix="os2g-bench-")
        self.path = pathlib.Path(self._dir.name, "files")
        self.path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "os2g-bench", self.path], check=True)
        for key, data in self.data.contents():
            file = self.path / key
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(data)
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", self.path], check=True)
        self._dir.cleanup()
