# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the worker while programs read: the next one goes on, nobody notices. (What users of
another client hit: mountpoint-s3-csi #576, the daemon dies and the mount stays dead.)"""

import mmap
import os
import random
import threading
import time

import pytest

import mounts
import synthetic

KILLS = 20
SPEC = "bench: big/one.bin 256M; big/two.bin 256M; small/%03d.bin 100K x 200; many/%04d 10 x 1000"


class Load:
    """Programs that read until stop(), each in a thread of its own; what went wrong is in errors."""

    def __init__(self, *readers):
        self.errors, self.rounds = [], {}
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(r,)) for r in readers]
        for t in self._threads:
            t.start()

    def _run(self, reader):
        rng = random.Random(reader.__name__)
        self.rounds[reader.__name__] = 0
        while not self._end.is_set():
            try:
                wrong = reader(rng)
            except OSError as error:
                wrong = repr(error)
            if wrong is not None:
                self.errors.append(f"{reader.__name__}: {wrong}")
                return
            self.rounds[reader.__name__] += 1

    def stop(self):
        self._end.set()
        for t in self._threads:
            t.join(timeout=60)
        assert not any(t.is_alive() for t in self._threads), "a reader hangs"


def check(data, key, offset):
    """What is wrong with data of key from offset on, or None."""
    at = synthetic.first_wrong(data, "bench", key, offset)
    return None if at is None else f"{key}: byte {offset + at} is wrong"


def readers(root):
    """All the ways to read that there are."""

    def stream(rng):
        key = f"big/{rng.choice(['one', 'two'])}.bin"
        start, pos = rng.randrange(0, 200 << 20), 0
        with open(root / key, "rb", buffering=0) as f:
            f.seek(start)
            while pos < 8 << 20:
                data = f.read(1 << 20)
                wrong = check(data, key, start + pos)
                if wrong or not data:
                    return wrong or "end of file too early"
                pos += len(data)
        return None

    def direct(rng):
        key = "big/two.bin"
        fd = os.open(root / key, os.O_RDONLY | os.O_DIRECT)
        try:
            offset = rng.randrange(0, 255 << 20) // 4096 * 4096
            buffer = mmap.mmap(-1, 256 << 10)
            n = os.preadv(fd, [buffer], offset)
            return check(buffer[:n], key, offset) if n else "nothing read"
        finally:
            os.close(fd)

    def mapped(rng):
        key = "big/one.bin"
        with open(root / key, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
            for _ in range(20):
                offset = rng.randrange(0, len(m) - 5000)
                wrong = check(m[offset:offset + 5000], key, offset)
                if wrong:
                    return wrong
        return None

    def whole_files(rng):
        key = f"small/{rng.randrange(200):03d}.bin"
        data = (root / key).read_bytes()
        return check(data, key, 0) if len(data) == 102400 else f"{key} has {len(data)} bytes"

    def listing(rng):
        names = os.listdir(root / "many")
        return None if len(names) == len(set(names)) == 1000 else f"{len(names)} names"

    def attributes(rng):
        for entry in os.scandir(root / "small"):
            if entry.stat().st_size != 102400:
                return f"{entry.name} has {entry.stat().st_size} bytes"
        return "a name that is not there is found" if (root / "small" / "none").exists() else None

    return [stream, direct, mapped, whole_files, listing, attributes]


def kill_often(m, load, pause):
    """For how long each killed worker had no successor that answers, sorted."""
    gaps = []
    for _ in range(KILLS):
        time.sleep(pause)
        start = time.monotonic()
        old = m.kill_worker()
        mounts.wait_until(lambda: m.child_pid() not in (None, old))
        m.worker_pid()
        gaps.append(time.monotonic() - start)
        if load.errors:
            break
    return sorted(gaps)


@pytest.mark.parametrize("options", [{}, {"direct_io": True}, {"metadata_ttl": "minimal"}],
                         ids=["cached", "direct", "minimal-ttl"])
def test_twenty_crashes_are_not_noticed(server, mount, options):
    m = mount("bench", server=server("--synthetic", SPEC, "--latency", "2ms"), **options)
    load = Load(*readers(m.path))
    try:
        gaps = kill_often(m, load, 0.3)
        time.sleep(0.5)
    finally:
        load.stop()
    assert not load.errors
    assert m.status()["worker"]["restarts"] == KILLS
    assert min(load.rounds.values()) > 0, load.rounds
    # asking takes a program's start, too, and the machine may be busy with other tests
    assert gaps[-3] < 2 * mounts.slowed_down(), gaps
    assert gaps[-1] < 10 * mounts.slowed_down(), gaps


def test_files_that_are_open_stay_open(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC))
    files = [open(m.path / f"small/{i:03d}.bin", "rb") for i in range(50)]
    with os.scandir(m.path / "many") as names:
        first = next(names).name
        for _ in range(3):
            m.kill_worker()
            m.worker_pid()
        rest = [e.name for e in names]
    assert len({first, *rest}) == 1000
    for i, f in enumerate(files):
        assert check(f.read(), f"small/{i:03d}.bin", 0) is None
        f.close()
    assert m.status()["fs"]["handles"] == 0


def test_a_worker_that_is_killed_at_once_again_is_followed_by_the_next(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC))
    for _ in range(6):
        m.kill_worker()
    assert check((m.path / "small/000.bin").read_bytes(), "small/000.bin", 0) is None


def test_the_gap_after_a_crash_is_short(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC))
    times = []
    for i in range(5):
        m.kill_worker()
        start = time.monotonic()
        (m.path / f"small/{i:03d}.bin").read_bytes()
        times.append(time.monotonic() - start)
    assert sorted(times)[2] < 0.5 * mounts.slowed_down(), times
