# SPDX-License-Identifier: Apache-2.0
"""Objects land in a program's memory: right to the last byte and nowhere else, while the store
misbehaves and memory is short; and what a plan names is fetched once, however many programs read."""

import random
import subprocess

import pytest

import landings
import mounts
import synthetic
import test_faults

KIB, MIB = 1 << 10, 1 << 20
SIZES = [0, 1, 4095, 4097, 64 * KIB - 1, 64 * KIB + 1, MIB - 1, MIB + 1, 8 * MIB - 1, 8 * MIB + 1,
         20 * MIB]
COPIES = 5
SPEC = "bench: " + "; ".join(f"{size}/%d.bin {size} x {COPIES}" for size in SIZES)
OBJECTS = [(f"{size}/{i}.bin", size) for size in SIZES for i in range(COPIES)]


# A FETCH of what no listing has told of knows no size: it asks for the whole object, so that an
# answer which says consistently that the object is shorter or longer contradicts nothing.
FETCH_FAULTS = "".join(line for line in test_faults.FAULTS.splitlines(keepends=True)
                       if " short " not in line and " long " not in line)


def in_some_order(objects, seed):
    objects = list(objects)
    random.Random(seed).shuffle(objects)
    return objects


def wrong(landed, objects, bucket="bench"):
    sizes = dict(objects)
    return [(one.key, one.result) for one in landed if not one.is_right(bucket, sizes[one.key])]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("op, memory", [("fetch", "host"), ("read", "host"), ("fetch", "malloc"),
                                        ("read", "malloc")])
def test_every_size_lands_right_under_every_fault(server, mount, tmp_path, op, memory):
    s = server("--synthetic", SPEC)
    # a body that stalls is given up after a quarter of it
    m = mount("bench", server=s, retry_timeout="8s")
    s.faults(FETCH_FAULTS if op == "fetch" else test_faults.FAULTS)
    for seed in range(3):
        objects = in_some_order(OBJECTS, seed)
        landed = landings.check(m.path, objects, tmp_path, "--op", op, "--memory", memory,
                                "--block", [MIB, 3 * MIB + 11, 64 * KIB][seed])
        assert wrong(landed, objects) == []
    assert sum(s.counters()["faults"].values()) > 20


def test_landing_under_memory_pressure(server, mount, tmp_path):
    # 16 objects of up to 20 MiB under way, the pool has room for one and a half
    s = server("--synthetic", SPEC)
    m = mount("bench", server=s, memory="32M")
    objects = in_some_order(OBJECTS, 1)
    readers = [subprocess.Popen(["cat", m.path / f"{20 * MIB}" / f"{i}.bin"],
                                stdout=subprocess.DEVNULL) for i in range(COPIES)]
    landed = landings.check(m.path, objects, tmp_path, "--depth", 16)
    assert wrong(landed, objects) == []
    assert [r.wait(mounts.SECONDS) for r in readers] == [0] * COPIES


def test_an_object_larger_than_its_room_says_how_large(server, mount, tmp_path):
    m = mount("bench", server=server("--synthetic", "bench: a.bin 100000; b.bin 9000000"))
    landed = {one.key: one for one in landings.check(
        m.path, [("a.bin", 99999), ("b.bin", 8 * MIB)], tmp_path)}
    assert (landed["a.bin"].result, landed["a.bin"].size) == (-27, 100000)
    assert (landed["b.bin"].result, landed["b.bin"].size) == (-27, 9000000)


def test_what_is_not_there_is_enoent(server, mount, tmp_path):
    m = mount("bench", server=server("--synthetic", "bench: a.bin 10"))
    for op in ("fetch", "read"):
        (one,) = landings.check(m.path, [("b.bin", 10)], tmp_path, "--op", op)
        assert one.result == -2


def test_keys_are_taken_literally(server, mount, tmp_path):
    s = server("--bucket", "box")
    keys = ["a//b", "./c", "../d", "e/", "f?x=1#y%20+z", " g ", "dir"]
    for key in keys:
        s.client().put_object(Bucket="box", Key=key, Body=key.encode())
    s.client().put_object(Bucket="box", Key="dir/file", Body=b"x")
    m = mount("box", server=s)
    landed = landings.check(m.path, [(key, len(key)) for key in keys], tmp_path)
    assert sorted((one.key, one.result) for one in landed) == sorted((k, len(k)) for k in keys)


def test_keys_are_relative_to_the_prefix(server, mount, tmp_path):
    m = mount("bench/in/", server=server("--synthetic", "bench: in/a.bin 5000; a.bin 5000"))
    (one,) = landings.check(m.path, [("a.bin", 5000)], tmp_path)
    assert one.is_right("bench", 5000, prefix="in/")


# --- plans ---

PLANNED = [(f"p/{i:04d}.bin", 100_000) for i in range(400)]
PLANNED_SPEC = "bench: p/%04d.bin 100000 x 400"


def test_what_a_plan_names_is_fetched_once_by_all_processes(server, mount, tmp_path):
    s = server("--synthetic", PLANNED_SPEC, "--latency", "5ms")
    m = mount("bench", server=s)
    order = in_some_order(PLANNED, 4)
    s.reset()
    with landings.Plan(m.path, order, tmp_path) as plan:
        readers = []
        for n in range(4):
            place = tmp_path / str(n)
            place.mkdir()
            listed = place / "objects"
            listed.write_text("".join(f"{size} {key}\n" for key, size in order[n::4]))
            readers.append(subprocess.Popen([landings.LANDER, "check", m.path, listed],
                                            stdout=subprocess.PIPE, text=True,
                                            env=mounts.environment()))
        landed = []
        for r in readers:
            out, _ = r.communicate(timeout=mounts.SECONDS * 4)
            assert r.returncode == 0
            landed += [landings.Landing(line) for line in out.splitlines()]
        assert wrong(landed, PLANNED) == []
        status = mounts.wait_until(lambda: (lambda x: x["used"] == 400 and x)(plan.status()))
    assert status == {"entries": 400, "fetched": status["fetched"], "used": 400, "dropped": 0,
                      "missing": 0, "bytes": status["bytes"]}
    assert status["fetched"] > 300
    assert s.counters()["operations"]["GetObject"] == 400


def test_a_plan_is_set_again_when_the_worker_dies(server, mount, tmp_path):
    s = server("--synthetic", PLANNED_SPEC)
    m = mount("bench", server=s)
    with landings.Plan(m.path, PLANNED, tmp_path) as plan:
        first, second = PLANNED[:100], PLANNED[100:]
        assert wrong(landings.check(m.path, first, tmp_path), first) == []
        mounts.wait_until(lambda: plan.status()["used"] == 100)
        m.kill_worker()
        status = plan.status()
        assert status["entries"] == 400 and status["used"] >= 100
        assert wrong(landings.check(m.path, second, tmp_path), second) == []
        status = mounts.wait_until(lambda: (lambda x: x["used"] == 400 and x)(plan.status()))
        assert status["dropped"] == 0


def test_a_plan_counts_what_is_missing(server, mount, tmp_path):
    m = mount("bench", server=server("--synthetic", "bench: a.bin 10"))
    with landings.Plan(m.path, [("a.bin", 10), ("no.bin", 10)], tmp_path) as plan:
        mounts.wait_until(lambda: plan.status()["missing"] == 1)
        assert plan.status()["entries"] == 2
