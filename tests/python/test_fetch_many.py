# SPDX-License-Identifier: Apache-2.0
"""Many objects at a time, under faults, and plans."""

import errno

import pytest

import mounts
import os2g
import synthetic
from test_gdd import FETCH_FAULTS

KIB, MIB = 1 << 10, 1 << 20
SIZES = [0, 1, 4095, 64 * KIB + 1, 300 * KIB, MIB + 1, 9 * MIB]
OBJECTS = {f"{size}/{i}.bin": size for size in SIZES for i in range(4)}
SPEC = "bench: " + "; ".join(f"{size}/%d.bin {size} x 4" for size in SIZES)


def wrong(fetched, objects):
    return [key for i, key in enumerate(fetched.keys)
            if fetched.sizes[i] != objects[key]
            or bytes(fetched[i]) != synthetic.expected("bench", key, 0, objects[key])]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("depth", [3, 200])
def test_all_land_right_under_every_fault(server, connect, depth):
    s = server("--synthetic", SPEC)
    client = connect(s, retry_timeout="8s")
    s.faults(FETCH_FAULTS)
    keys = list(OBJECTS)
    sizes = [OBJECTS[key] for key in keys]
    memory = client.buffer(sum(sizes) + 64 * len(keys))
    for options in ({}, {"sizes": sizes}, {"into": memory, "sizes": sizes},
                    {"into": bytearray(sum(sizes) + 64 * len(keys)), "sizes": sizes}):
        fetched = client.fetch_many(keys, depth=depth, **options)
        assert wrong(fetched, OBJECTS) == []
        assert list(fetched.errors) == [None] * len(keys) and len(fetched) == len(keys)
    assert sum(s.counters()["faults"].values()) > 10


def test_objects_land_where_they_are_told_and_nowhere_else(server, connect):
    client = connect(server("--synthetic", "bench: %d.bin 1000 x 3"))
    into = client.buffer(8192)
    into[:] = b"\xc5" * 8192
    keys = ["2.bin", "0.bin", "1.bin"]
    fetched = client.fetch_many(keys, into, offsets=[5000, 1, 2002], sizes=[1000] * 3)
    assert wrong(fetched, dict.fromkeys(keys, 1000)) == []
    taken = {*range(5000, 6000), *range(1, 1001), *range(2002, 3002)}
    assert all(byte == 0xC5 for i, byte in enumerate(bytes(into)) if i not in taken)
    assert fetched.buffer is into and list(fetched.offsets) == [5000, 1, 2002]
    # up to the next offset
    with pytest.raises(OSError) as caught:
        client.fetch_many(keys, into, offsets=[5000, 1, 500])
    assert caught.value.errno == errno.EFBIG and caught.value.filename == "0.bin"
    assert client.fetch_many(["0.bin", "1.bin"], into).offsets == [0, 4096]
    assert client.fetch_many([], into).sizes == [] == list(client.fetch_many([]))


def test_rooms_outside_the_memory_are_refused(server, connect):
    client = connect(server("--synthetic", "bench: %d.bin 1000 x 3"))
    into = client.buffer(4096)
    for rooms in ({"offsets": [3500], "sizes": [1000]}, {"offsets": [-1], "sizes": [1]},
                  {"offsets": [0, 1]}, {"sizes": [1, 2]}):
        with pytest.raises((ValueError, OverflowError)):
            client.fetch_many(["0.bin"], into, **rooms)
    with pytest.raises(ValueError):
        client.fetch_many(["0.bin"] * 5000, into)


def test_failures_are_raised_or_returned(server, connect):
    client = connect(server("--synthetic", "bench: %d.bin 1000 x 3"))
    keys = ["0.bin", "no.bin", "2.bin"]
    with pytest.raises(FileNotFoundError) as caught:
        client.fetch_many(keys)
    assert caught.value.filename == "no.bin"
    fetched = client.fetch_many(keys, errors="return")
    assert [error and error.filename for error in fetched.errors] == [None, "no.bin", None]
    assert fetched.sizes == [1000, 0, 1000] and len(fetched[2]) == 1000
    with pytest.raises(FileNotFoundError):
        fetched[1]
    assert len(fetched[0:1]) == 1


def test_each_is_told_when_it_is_there(server, connect):
    client = connect(server("--synthetic", "bench: %02d.bin 1000 x 50"), depth=4)
    keys = [f"{i:02d}.bin" for i in range(50)] + ["no.bin"]
    seen = {}
    for one in client.as_completed(keys, sizes=[1000] * 51, errors="return"):
        assert one.key == keys[one.index] and one.index not in seen
        seen[one.index] = one
    assert seen.pop(50).error.filename == "no.bin" and len(seen) == 50
    assert all(bytes(one.data) == synthetic.expected("bench", one.key, 0, 1000)
               for one in seen.values())
    with pytest.raises(FileNotFoundError):
        list(client.as_completed(keys, client.buffer(51 * 1024)))


def test_an_iterator_that_is_closed_cancels_the_rest(server, connect):
    s = server("--synthetic", "bench: %02d.bin 1000 x 20")
    client = connect(s)
    into = client.buffer(20 * 1024)
    for one in client.as_completed([f"{i:02d}.bin" for i in range(20)], into):
        s.latency("30s")
        break
    assert one.error is None
    into.close()  # nothing lands in it any more
    s.latency("0ms")
    assert len(client.fetch("01.bin")) == 1000


def test_no_answer_in_time_is_a_timeout(server, connect):
    s = server("--synthetic", "bench: a.bin 1000; b.bin 1000")
    client = connect(s, timeout=0.5)
    client.stat("a.bin")
    s.latency("30s")
    for call in (lambda: client.fetch("a.bin"), lambda: client.fetch_many(["a.bin"]),
                 lambda: client.read("b.bin")):
        with pytest.raises(TimeoutError):
            call()
    s.latency("0ms")


# --- plans ---


def test_what_a_plan_names_is_fetched_once(server, connect):
    s = server("--synthetic", "bench: p/%03d.bin 100000 x 200", "--latency", "2ms")
    client = connect(s)
    order = [f"p/{i * 77 % 200:03d}.bin" for i in range(200)]
    s.reset()
    with client.plan(order) as plan:
        assert plan.status().entries == 200
        for begin in range(0, 200, 50):
            part = order[begin:begin + 50]
            assert wrong(client.fetch_many(part), dict.fromkeys(part, 100_000)) == []
        status = mounts.wait_until(lambda: (lambda x: x.used == 200 and x)(plan.status()))
        assert status.missing == status.dropped == 0 and status.fetched > 50
        assert s.counters()["operations"]["GetObject"] == 200
        plan.extend(order[:10])
        assert plan.status().entries == 210
        client.fetch_many(order[:10])
        mounts.wait_until(lambda: plan.status().used == 210)
    assert plan.closed
    for call in (plan.status, lambda: plan.extend(["a"])):
        with pytest.raises(ValueError):
            call()
    plan.close()


def test_a_plan_counts_what_is_missing_and_refuses_what_is_no_key(server, connect):
    client = connect(server("--synthetic", "bench: a.bin 10"))
    with client.plan(["a.bin", b"no.bin"], window=1 << 20) as plan:
        mounts.wait_until(lambda: plan.status().missing == 1)
    for keys in (["a\0b"], [""], [5], 7):
        with pytest.raises((OSError, ValueError, TypeError)):
            client.plan(keys)


def test_a_single_key_or_what_is_none_is_not_taken_for_several(server, connect):
    client = connect(server("--synthetic", "bench: a 10; b 10"))
    for keys in ("ab", b"ab", [3], [None]):
        with pytest.raises(TypeError):
            client.fetch_many(keys)
        with pytest.raises(TypeError):
            list(client.as_completed(keys, sizes=[16] * len(keys)))
        with pytest.raises(TypeError):
            client.plan(keys)


def test_the_type_of_what_is_fetched_is_public():
    assert {"Client", "Buffer", "File", "Fetched", "Landed", "Plan"} <= set(os2g.__all__)
    assert all(hasattr(os2g, name) for name in os2g.__all__)
