# SPDX-License-Identifier: Apache-2.0
"""Client.stalls: how long fetches waited, and why, as the daemon tells it."""

import pytest

import mounts
import os2g

SPEC = "bench: d/%03d 100K x 64"
KEYS = [f"d/{i:03d}" for i in range(64)]


def epochs(client):
    return [one for one in client.stalls().epochs if one.epoch is not None]


def test_the_report_has_types_and_adds_up(server, connect):
    client = connect(server("--synthetic", SPEC, "--latency", "20ms"))
    client.fetch_many(KEYS[:8])
    stalls = client.stalls()
    assert isinstance(stalls, os2g.Stalls) and isinstance(stalls.fetches, os2g.StallSums)
    assert stalls.fetches.waits == 8 and stalls.reads.waits == 0
    assert 0.02 <= stalls.fetches.waited <= stalls.seconds
    assert stalls.fetches.summed >= 8 * 0.02
    assert stalls.fetches.summed == pytest.approx(sum(stalls.fetches.causes.values()), abs=1e-4)
    assert stalls.fetches.summed == pytest.approx(sum(stalls.fetches.waited_for.values()), abs=1e-4)
    epoch = stalls.epochs[-1]
    assert epoch.epoch is None and epoch.under_way and epoch.plans == 0
    assert epoch.waited + epoch.reader_itself == pytest.approx(epoch.seconds, abs=1e-4)
    assert epoch.leading == "not planned" and epoch.advice == stalls.advice["not planned"]
    assert {one.key for one in epoch.objects} == set(KEYS[:8])
    assert all(one.waits == 1 and one.waited >= 0.02 and one.cause == "not planned"
               for one in epoch.objects)


def test_a_plan_is_an_epoch(server, connect):
    client = connect(server("--synthetic", SPEC, "--latency", "50ms"))
    with client.plan(KEYS):
        client.fetch_many(KEYS)
        [epoch] = epochs(client)
        assert epoch.under_way and epoch.plans == 1
    [epoch] = epochs(client)
    assert not epoch.under_way and epoch.leading == "store latency", epoch
    with client.plan(KEYS), client.plan(KEYS):
        assert [one.plans for one in epochs(client)] == [1, 2]


def test_a_plan_that_goes_on_begins_no_epoch(server, connect):
    client = connect(server("--synthetic", SPEC))
    with client.plan(KEYS[:8]) as plan:
        plan.extend(KEYS[8:])
        client.fetch_many(KEYS)
        assert [one.plans for one in epochs(client)] == [2]


def test_a_window_that_is_too_small_is_told(server, connect):
    client = connect(server("--synthetic", SPEC, "--latency", "20ms"))
    with client.plan(KEYS, window=1):
        for key in KEYS:
            client.fetch(key)
    [epoch] = epochs(client)
    assert epoch.leading == "plan too short", epoch


def test_a_store_that_sends_slowly_is_told(server, connect):
    client = connect(server("--synthetic", SPEC, "--bandwidth", "300000"))
    with client.plan(KEYS):
        client.fetch_many(KEYS)
    [epoch] = epochs(client)
    assert epoch.leading == "store throughput", epoch


def test_too_few_connections_are_told(server, connect):
    client = connect(server("--synthetic", SPEC, "--latency", "20ms"), max_connections=1)
    with client.plan(KEYS):
        client.fetch_many(KEYS)
    [epoch] = epochs(client)
    assert epoch.leading == "connections in use", epoch


def test_objects_that_came_in_time_keep_nobody_waiting(server, connect):
    client = connect(server("--synthetic", SPEC, "--latency", "5ms"))
    with client.plan(KEYS) as plan:
        mounts.wait_until(lambda: plan.status().fetched == len(KEYS))
        client.fetch_many(KEYS)
        [epoch] = epochs(client)
    assert epoch.fetches.waits == 0 and epoch.waited == 0 and epoch.leading is None


def test_a_client_of_a_part_of_an_export_reads_the_exports_report(server, monkeypatch, tmp_path):
    (tmp_path / "m").mkdir()
    m = mounts.Mount(tmp_path / "m", "bench", server("--synthetic", SPEC),
                     socket=tmp_path / "socket")
    monkeypatch.setenv("OS2G_SOCKET", str(tmp_path / "socket"))
    try:
        with os2g.Client("s3://bench/d/") as client:
            client.fetch("000")
            # its answer may come before it is counted
            mounts.wait_until(lambda: client.stalls().epochs[-1].objects)
            [one] = client.stalls().epochs[-1].objects
            assert one.key == "d/000"
    finally:
        m.close()


def test_a_large_object_is_one_of_the_slowest(server, connect):
    client = connect(server("--synthetic", SPEC + "; big 20M", "--latency", "5ms",
                            "--bandwidth", "8000000"))
    assert len(client.fetch("big")) == 20 << 20
    epoch = client.stalls().epochs[-1]
    assert epoch.objects[0].key == "big"
    # its parts came at the same time
    assert epoch.objects[0].waited <= epoch.seconds
    assert epoch.fetches.summed <= epoch.seconds


def test_a_client_of_a_mount_reads_its_report_across_a_workers_death(server, tmp_path):
    (tmp_path / "m").mkdir()
    m = mounts.Mount(tmp_path / "m", "bench", server("--synthetic", SPEC, "--latency", "5ms"))
    try:
        with os2g.Client(tmp_path / "m") as client:
            client.fetch_many(KEYS)
            (m.path / KEYS[0]).read_bytes()
            before = client.stalls()
            assert before.fetches.waits > 0 and before.reads.waits > 0
            m.kill_worker()
            after = client.stalls()
            assert after.seconds < before.seconds
            assert after.fetches.waits == 0 and after.reads.waits == 0
    finally:
        m.umount()
        m.close()
