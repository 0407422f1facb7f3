# SPDX-License-Identifier: Apache-2.0
"""Batches with the real daemon: descriptors, cancelling, many at once, a worker that dies."""

import errno
import threading
import time

import pytest

import landings
import mounts

KIB, MIB = 1 << 10, 1 << 20
SPEC = "bench: s/%04d 10000 x 1000; big/%d 20M x 8"
SMALL = [(f"s/{i:04d}", 10000) for i in range(1000)]
BIG = [(f"big/{i}", 20 * MIB) for i in range(8)]


def all_right(landed, objects):
    sizes = dict(objects)
    return not [one.key for one in landed if not one.is_right("bench", sizes[one.key])]


@pytest.fixture
def place(server, mount):
    s = server("--synthetic", SPEC)
    return mount("bench", server=s), s


@pytest.mark.parametrize("op", ["fetch", "read"])
def test_a_program_that_polls_the_descriptor_hears_of_every_end(place, tmp_path, op):
    m, _ = place
    for objects in (SMALL, BIG):
        landed = landings.check(m.path, objects, tmp_path, "--op", op, "--wait", "poll")
        assert all_right(landed, objects)


def test_more_under_way_than_the_connection_has_slots(place, tmp_path):
    m, _ = place
    assert all_right(landings.check(m.path, SMALL, tmp_path, "--depth", 600), SMALL)


def test_large_reads_are_cut_and_put_together(place, tmp_path):
    m, _ = place
    for memory in ("host", "malloc"):
        landed = landings.check(m.path, BIG, tmp_path, "--op", "read", "--block", 20 * MIB,
                                "--memory", memory, "--depth", 3)
        assert all_right(landed, BIG)


@pytest.mark.parametrize("wait", ["status", "poll"])
def test_what_is_cancelled_is_reported_and_the_next_is_right(place, tmp_path, wait):
    m, s = place
    # the large ones are still under way when the first small one ends
    s.faults(f"GetObject big/* always delay {2 * mounts.slowed_down()}s\n")
    start = time.monotonic()
    landed = landings.check(m.path, BIG + SMALL[:100], tmp_path, "--depth", 32, "--wait", wait,
                            "--cancel", 1)
    cancelled = [one for one in landed if one.result == -errno.ECANCELED]
    assert cancelled
    rest = [one for one in landed if one.result >= 0]
    assert all_right(rest, BIG + SMALL) and len(rest) + len(cancelled) == len(landed)
    assert time.monotonic() - start < 10 * mounts.slowed_down()


@pytest.mark.parametrize("op, objects", [("fetch", SMALL * 4), ("read", BIG * 3)])
def test_a_worker_that_dies_is_not_noticed(place, tmp_path, op, objects):
    m, s = place
    s.latency("5ms")
    killed, over = [], threading.Event()

    def kill():
        # not for ever: a supervisor whose workers only die gives up
        while len(killed) < 10 and not over.wait(0.5):
            m.kill_worker()
            killed.append(1)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        landed = landings.check(m.path, objects, tmp_path, "--op", op, "--depth", 4)
    finally:
        over.set()
        thread.join()
    assert all_right(landed, objects)
    assert killed
