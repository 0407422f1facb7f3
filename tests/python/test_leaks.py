# SPDX-License-Identifier: Apache-2.0
"""Nothing is left of what was done often: no objects, no memory, no descriptors."""

import gc
import os
import sys
import tracemalloc

import pytest

import os2g


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def mappings():
    with open("/proc/self/maps", encoding="ascii") as maps:
        return sum("os2g-buffer" in line for line in maps)


@pytest.fixture
def client(server, connect):
    return connect(server("--synthetic", "bench: %02d.bin 10000 x 10"))


KEYS = [f"{i:02d}.bin" for i in range(10)]


def fail(call):
    try:
        call()
    except OSError:
        return
    raise AssertionError


def everything(client):
    into = client.buffer(200_000)
    client.fetch("00.bin")
    client.fetch("00.bin", into)
    client.fetch("00.bin", bytearray(10_000))
    for fetched in (client.fetch_many(KEYS), client.fetch_many(KEYS, into)):
        assert sum(map(len, fetched)) == 100_000
    client.fetch_many([*KEYS, "no"], errors="return")
    list(client.as_completed(KEYS, into))
    next(client.as_completed(KEYS, into))
    with client.open("01.bin") as file:
        file.read(100)
        file.readinto(into.view(5, 10))
        client.read_many([(file, 0, 10, 0), (file, 5, 10, 10)], into)
    with client.plan(KEYS) as plan:
        plan.status()
    into.__dlpack__()
    client.list()
    client.stat("00.bin")
    client.stats()
    for call in (lambda: client.fetch("no"), lambda: client.open("no"), lambda: client.stat("no"),
                 lambda: client.list("no"), lambda: client.fetch_many(["no"]),
                 lambda: client.fetch("00.bin", bytearray(10)), lambda: client.buffer(0)):
        fail(call)


def test_calls_leave_nothing(client):
    for _ in range(3):
        everything(client)
    gc.collect()
    before = descriptors(), mappings()
    tracemalloc.start()
    first = tracemalloc.get_traced_memory()[0]
    blocks = sys.getallocatedblocks()
    for _ in range(20):
        everything(client)
    gc.collect()
    assert tracemalloc.get_traced_memory()[0] - first < 20_000
    tracemalloc.stop()
    assert sys.getallocatedblocks() - blocks < 500
    assert (descriptors(), mappings()) == before


def test_arguments_are_given_back(client):
    key, into, keys = "00.bin", bytearray(10_000), list(KEYS)
    file = client.open("00.bin")
    counts = [sys.getrefcount(one) for one in (key, into, keys, file, file._handle, None)]
    for _ in range(50):
        client.fetch(key, into)
        client.fetch_many(keys, memoryview(bytearray(200_000)))
        client.read_many([(file, 0, 100, 0)] * 3, into)
        fail(lambda: client.fetch("no", into))
    after = [sys.getrefcount(one) for one in (key, into, keys, file, file._handle, None)]
    assert all(b - a < 25 for a, b in zip(counts, after)), (counts, after)
    into.append(1)  # no view of it is left


def test_clients_leave_nothing(server):
    s = server("--synthetic", "bench: a.bin 10")
    keep = os2g.Client("s3://bench", endpoint_url=s.url)

    def one():
        with os2g.Client("s3://bench", endpoint_url=s.url) as client:
            client.fetch("a.bin")
            client.fetch_many(["a.bin"])
        fail(lambda: os2g.Client("s3://bench", start=False, endpoint_url="http://127.0.0.1:1"))

    one()
    gc.collect()
    before = descriptors(), mappings()
    for _ in range(10):
        one()
    gc.collect()
    assert (descriptors(), mappings()) == before
    keep.close()
