# SPDX-License-Identifier: Apache-2.0
"""Objects that are rewritten, same size too, while they are read: a handle sees one version or ESTALE,
never a mixture."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import synthetic

SIZE = 3 << 20
BIG = 64 << 20
SPEC = f"bench: small.bin {SIZE}; big.bin {BIG}"


def generation_of(data, key, offset, last):
    """Which version's bytes these are, all of them; None if they are of none."""
    for generation in range(last, -1, -1):
        if data == synthetic.expected("bench", key, offset, len(data), generation):
            return generation
    return None


def read_all(fd, size, key, last):
    """Reads a handle from front to back; the set of versions seen (None: of no version), and whether
    it ended with ESTALE."""
    seen, offset = set(), 0
    while offset < size:
        try:
            data = os.pread(fd, 1 << 18, offset)
        except OSError as error:
            assert error.errno == errno.ESTALE
            return seen, True
        seen.add(generation_of(data, key, offset, last))
        offset += len(data)
    return seen, False


def whole(path, key, last):
    """open, read, close; the version, or "stale"."""
    try:
        data = path.read_bytes()
    except OSError as error:
        assert error.errno == errno.ESTALE
        return "stale"
    assert len(data) == (SIZE if key == "small.bin" else BIG)
    return generation_of(data, key, 0, last)


@pytest.mark.parametrize("direct", [False, True])
def test_a_handle_stays_on_its_version(server, mount, direct):
    s = server("--synthetic", SPEC)
    m = mount("bench", server=s, direct_io=direct, memory="32M")
    fd = os.open(m.path / "big.bin", os.O_RDONLY)
    try:
        first = os.pread(fd, 1 << 18, 0)
        assert generation_of(first, "big.bin", 0, 0) == 0
        assert s.touch("bench", "big.bin") == 1
        seen, stale = read_all(fd, BIG, "big.bin", 1)
        assert seen == {0}
        assert stale  # the far end was not there yet
    finally:
        os.close(fd)
    # the open after ESTALE
    assert whole(m.path / "big.bin", "big.bin", 1) == 1


def test_with_minimal_ttl_the_next_open_sees_the_new_bytes(server, mount):
    """rclone #6053: a rewrite of the same size stays invisible"""
    s = server("--synthetic", SPEC)
    m = mount("bench", server=s, metadata_ttl="minimal")
    for key in ("small.bin", "big.bin"):
        assert whole(m.path / key, key, 0) == 0
        for generation in range(1, 6):
            s.touch("bench", key)
            assert whole(m.path / key, key, generation) == generation


def test_after_the_ttl_the_next_open_sees_the_new_bytes(server, mount):
    s = server("--synthetic", SPEC)
    m = mount("bench", server=s, metadata_ttl="1")
    for key in ("small.bin", "big.bin"):
        assert whole(m.path / key, key, 0) == 0
        s.touch("bench", key)
        time.sleep(1.3)
        assert whole(m.path / key, key, 1) == 1


def test_an_old_handles_pages_are_not_the_new_ones(server, mount):
    """mountpoint-s3 #401: an inode reused over a change mixes two versions in the page cache"""
    s = server("--synthetic", SPEC)
    m = mount("bench", server=s, metadata_ttl="minimal")
    old = os.open(m.path / "small.bin", os.O_RDONLY)
    try:
        assert read_all(old, SIZE, "small.bin", 0) == ({0}, False)
        s.touch("bench", "small.bin")
        assert whole(m.path / "small.bin", "small.bin", 1) == 1
        seen, _ = read_all(old, SIZE, "small.bin", 1)
        assert seen <= {0}
    finally:
        os.close(old)
    assert whole(m.path / "small.bin", "small.bin", 1) == 1


MAPPED = """
import mmap, sys
f = open(sys.argv[1], "rb")
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
sys.stdout.buffer.write(m[:65536])
sys.stdout.flush()
sys.stdin.readline()
for offset in range(0, len(m), 65536):
    sys.stdout.buffer.write(m[offset:offset + 65536])
"""


def test_a_mapping_sees_one_version_or_sigbus(server, mount):
    s = server("--synthetic", SPEC)
    m = mount("bench", server=s, memory="32M")
    reader = subprocess.Popen([sys.executable, "-c", MAPPED, m.path / "big.bin"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert reader.stdout.read(65536) == synthetic.expected("bench", "big.bin", 0, 65536)
    s.touch("bench", "big.bin")
    reader.stdin.write(b"\n")
    data, _ = reader.communicate(timeout=60)
    assert reader.returncode == -signal.SIGBUS
    assert synthetic.first_wrong(data, "bench", "big.bin") is None


def test_reading_while_it_changes_all_the_time_never_mixes(server, mount):
    s = server("--synthetic", SPEC, "--latency", "1ms")
    m = mount("bench", server=s, metadata_ttl="minimal", memory="64M")
    results, last, stop = [], [0], threading.Event()

    def read(key):
        while not stop.is_set():
            fd = None
            try:
                fd = os.open(m.path / key, os.O_RDONLY)
                data = b"".join(iter(lambda: os.read(fd, 1 << 20), b""))
            except OSError as error:
                results.append((key, "stale" if error.errno == errno.ESTALE else repr(error)))
                continue
            finally:
                if fd is not None:
                    os.close(fd)
            results.append((key, generation_of(data, key, 0, last[0] + 1)))

    threads = [threading.Thread(target=read, args=("small.bin",)) for _ in range(4)]
    for t in threads:
        t.start()
    end = time.monotonic() + 8
    while time.monotonic() < end:
        last[0] += 1
        s.touch("bench", "small.bin")
        time.sleep(0.05)
    stop.set()
    for t in threads:
        t.join()
    kinds = {r for _, r in results}
    assert None not in kinds, "a mixture, or bytes of no version"
    assert all(isinstance(k, int) or k == "stale" for k in kinds), kinds
    assert len([k for k in kinds if isinstance(k, int)]) > 5
    # and when it rests, all see the last one
    assert whole(m.path / "small.bin", "small.bin", last[0]) == last[0]


def test_a_deleted_object_is_gone_after_the_ttl(server, mount):
    s = server("--bucket", "changing")
    client = s.client()
    client.put_object(Bucket="changing", Key="x", Body=b"one")
    m = mount("changing", server=s, metadata_ttl="minimal", negative_metadata_ttl="minimal")
    assert (m.path / "x").read_bytes() == b"one"
    client.delete_object(Bucket="changing", Key="x")
    with pytest.raises(FileNotFoundError):
        (m.path / "x").read_bytes()
    client.put_object(Bucket="changing", Key="x", Body=b"three")
    assert (m.path / "x").read_bytes() == b"three"
