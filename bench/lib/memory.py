# SPDX-License-Identifier: Apache-2.0
"""memory: 64 readers of 64 large objects with --memory 256M; then a million names looked up.

peak_mib is the highest sum of anonymous and shared resident memory of the daemon (the pool is in it)
seen while they read. bytes_per_name is what the daemon's resident memory grew by for each name after a
walk over all of them.
"""

import os
import tempfile
import threading

import stores
from measure import GIB, MIB, reader, show, status_kib
from clients import Os2g

READERS, POOL_MIB = 64, 256


class Peak:
    """Samples a process's memory every 20 ms."""

    def __init__(self, pid):
        self.pid, self.kib, self._stop = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self):
        while not self._stop.wait(0.02):
            self.kib = max(self.kib, status_kib(self.pid, "RssAnon", "RssShmem"))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def streams(store, size):
    with Os2g(store, "--memory", f"{POOL_MIB}M") as mount, \
            tempfile.NamedTemporaryFile("w", prefix="os2g-bench-") as names:
        names.write("".join(f"o{i:02d}.bin\n" for i in range(READERS)))
        names.flush()
        with Peak(mount.pid) as peak:
            r = reader("streams", mount.path, names.name)
        pool = mount.status()["cache"]["peak_bytes"]
        if r["errors"] or r["bytes"] != READERS * size:
            raise RuntimeError(f"{r['errors']} errors, {r['bytes']} bytes")
    return {"peak_mib": peak.kib / 1024, "pool_mib": pool / MIB,
            "gibps": r["bytes"] / GIB / r["seconds"]}


def walk(top):
    """Looks up every name below top."""
    n = 0
    for entry in os.scandir(top):
        n += 1
        if entry.is_dir():
            n += walk(entry.path)
        else:
            entry.stat()
    return n


def names(store):
    with Os2g(store, "--memory", f"{POOL_MIB}M") as mount:
        before = status_kib(mount.pid, "RssAnon", "RssShmem")
        n = walk(mount.path)
        after = status_kib(mount.pid, "RssAnon", "RssShmem")
        node_bytes = mount.status()["fs"]["node_bytes"]
    return {"names": n, "bytes_per_name": (after - before) * 1024 / n,
            "node_bytes_per_name": node_bytes / n}


def main(quick):
    size = 64 * MIB if quick else GIB
    count = 1000 # directories of 1,000
    with stores.development([f"bench: o%02d.bin {size} x {READERS}",
                             f"names: d%03d/some-name-%06d.bin 1K x {count} x 1000"]) as store:
        got = streams(store, size)
        show("streams", **got)
        many = names(store.on("names"))
        show("names", **many)
    return {"readers": READERS, **got, **many}
