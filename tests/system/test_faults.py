# SPDX-License-Identifier: Apache-2.0
"""Reads while the store misbehaves: every byte right, no error, and few requests more than needed."""

import errno
import os
import random
import threading
import time

import pytest

import mounts
import synthetic

SMALL, BIG = 100_000, 256 << 20
SPEC = f"bench: small/%04d.bin {SMALL} x 2000; big.bin {BIG}"
READS, THREADS = 20_000, 128

# Two in a hundred of each kind that a store or the way to it can show, but for changed ETags, which are
# no fault (test_change.py).
FAULTS = """
seed 7
GetObject * 0.02 status 500
GetObject * 0.02 status 503 SlowDown
GetObject * 0.02 reset
GetObject * 0.02 reset 50%
GetObject * 0.02 close 30%
GetObject * 0.02 stall head 60s
GetObject * 0.02 stall 50% 60s
GetObject * 0.02 short 100
GetObject * 0.02 long 100
GetObject * 0.02 garbage 50
GetObject * 0.02 xml200
GetObject * 0.02 content-range 4096
GetObject * 0.02 delay 200ms
GetObject * 0.02 hangup
"""


class Readers:
    """THREADS threads that make READS reads together, half of them small files, half places of a large
    one; the order is the same in every run with one seed."""

    def __init__(self, root, seed):
        self.root, self.wrong, self.errors = root, [], []
        self._jobs = list(range(READS))
        random.Random(seed).shuffle(self._jobs)
        self._lock = threading.Lock()

    def _next(self):
        with self._lock:
            return self._jobs.pop() if self._jobs else None

    def _read(self, job):
        rng = random.Random(job)
        if job % 2:
            key, offset, length = f"small/{rng.randrange(2000):04d}.bin", 0, SMALL
        else:
            length = rng.randrange(1, 64 << 10)
            key, offset = "big.bin", rng.randrange(0, BIG - length)
        fd = os.open(self.root / key, os.O_RDONLY)
        try:
            data = os.pread(fd, length, offset)
        finally:
            os.close(fd)
        if len(data) != length or synthetic.first_wrong(data, "bench", key, offset) is not None:
            self.wrong.append((key, offset, length, len(data)))

    def _run(self):
        while (job := self._next()) is not None:
            try:
                self._read(job)
            except OSError as error:
                self.errors.append(repr(error))

    def run(self):
        threads = [threading.Thread(target=self._run) for _ in range(THREADS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return self


@pytest.mark.timeout(900)
def test_twenty_thousand_reads_under_every_fault_are_right(server, mount):
    s = server("--synthetic", SPEC)

    # The pool is small and I/O direct, so that most reads become requests.
    # A body that stalls is given up after a quarter of the retry time-out.
    options = dict(server=s, memory="32M", direct_io=True, max_connections=256, threads=2,
                   retry_timeout="8s")
    m = mount("bench", **options)
    os.listdir(m.path / "small")
    s.reset()
    assert not Readers(m.path, 1).run().errors
    faultless = s.counters()["operations"]["GetObject"]
    m.umount()

    m = mount("bench", **options)
    os.listdir(m.path / "small")
    s.faults(FAULTS)
    s.reset()
    readers = Readers(m.path, 1).run()
    counters = s.counters()
    assert readers.errors == []
    assert readers.wrong == []
    injected = counters["faults"]
    assert len(injected) >= 11 and sum(injected.values()) > faultless / 5, injected
    assert counters["operations"]["GetObject"] <= 1.5 * faultless


def test_listings_and_lookups_survive_faults(server, mount):
    s = server("--synthetic", SPEC)
    s.faults("seed 3\n"
             "ListObjectsV2 * 0.1 status 500\nListObjectsV2 * 0.1 status 503 SlowDown\n"
             "ListObjectsV2 * 0.1 reset 50%\nListObjectsV2 * 0.1 close 50%\n"
             "HeadObject * 0.2 status 503\nHeadObject * 0.1 reset\n")
    m = mount("bench", server=s, metadata_ttl="minimal", negative_metadata_ttl="minimal")
    for _ in range(5):
        assert len(os.listdir(m.path / "small")) == 2000
        assert os.stat(m.path / "small/0007.bin").st_size == SMALL
        with pytest.raises(FileNotFoundError):
            os.stat(m.path / "small/none")


def test_a_store_that_is_down_is_an_error_of_its_own_and_all_is_well_when_it_returns(server, mount):
    s = server("--synthetic", SPEC)
    m = mount("bench", server=s, retry_timeout="2s", direct_io=True, metadata_ttl="minimal",
              negative_metadata_ttl="minimal")
    data = (m.path / "small/0001.bin").read_bytes()
    assert synthetic.first_wrong(data, "bench", "small/0001.bin") is None
    fd = os.open(m.path / "big.bin", os.O_RDONLY)
    try:
        s.stop()
        for act in (lambda: os.pread(fd, 4096, 100 << 20),
                    lambda: (m.path / "small/0002.bin").read_bytes(),
                    lambda: os.stat(m.path / "small/none"),
                    lambda: os.listdir(m.path / "small")):
            start = time.monotonic()
            with pytest.raises(OSError) as caught:
                act()
            assert caught.value.errno == errno.EIO
            assert time.monotonic() - start < 12
        s.start()
        assert synthetic.first_wrong(os.pread(fd, 4096, 100 << 20), "bench", "big.bin",
                                     100 << 20) is None
    finally:
        os.close(fd)
    data = (m.path / "small/0002.bin").read_bytes()
    assert synthetic.first_wrong(data, "bench", "small/0002.bin") is None
    assert len(os.listdir(m.path / "small")) == 2000


def test_throttling_is_never_a_missing_file(server, mount):
    """mountpoint-s3 #1422"""
    s = server("--synthetic", SPEC)
    m = mount("bench", server=s, retry_timeout="1s")
    s.faults("* * 1.0 status 503 SlowDown")
    with pytest.raises(OSError) as caught:
        os.stat(m.path / "small/0003.bin")
    assert caught.value.errno == errno.EIO
    s.faults("")
    mounts.wait_until(lambda: os.path.exists(m.path / "small/0003.bin"), seconds=10)


def test_an_errors_xml_is_never_file_data(server, mount):
    """s3fs #281"""
    s = server("--synthetic", SPEC)
    m = mount("bench", server=s)
    s.faults("seed 1\nGetObject * 0.5 xml200\nGetObject * 0.2 status 500\n")
    with open(m.path / "big.bin", "rb", buffering=0) as f:
        offset = 0
        while data := f.read(1 << 20):
            assert synthetic.first_wrong(data, "bench", "big.bin", offset) is None
            offset += len(data)
    assert offset == BIG
