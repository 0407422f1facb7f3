# SPDX-License-Identifier: Apache-2.0
"""DeviceLoader.stalls: how long it kept its user waiting, and why."""

import time

import pytest

torch = pytest.importorskip("torch", reason="no torch (Debian: python3-torch)")

import os2g.torch as ot  # noqa: E402
from torching import place  # noqa: E402

SPEC = "train: img/%03d 100K x 160"
DAEMON = "os2gd itself"


def data_of(server, *options, **more):
    store = server("--synthetic", SPEC, *options)
    return ot.MapDataset.from_prefix("s3://train/img/", **place(store, **more))


def passed(loader, pause=0.0):
    """What is told of a pass whose steps take so long."""
    for _ in loader:
        time.sleep(pause)
    stalls = loader.stalls()
    assert isinstance(stalls, ot.LoaderStalls)
    assert not stalls.under_way and stalls.batches == len(loader)
    assert stalls.blocked + stalls.reader_itself + stalls.loader == pytest.approx(stalls.seconds)
    assert sum(stalls.causes.values()) == pytest.approx(stalls.blocked)
    return stalls


def test_there_is_nothing_to_tell_before_the_first_pass(server):
    assert ot.DeviceLoader(data_of(server), 16).stalls() is None


def test_a_loader_that_waits_for_a_late_store_says_so(server):
    stalls = passed(ot.DeviceLoader(data_of(server, "--latency", "100ms"), 16, shuffle=True))
    assert stalls.leading == "store latency", stalls
    assert 0.05 < stalls.blocked < stalls.seconds and stalls.advice
    assert stalls.objects and stalls.objects[0].waited > 0.05


def test_without_a_plan_nothing_was_planned(server):
    stalls = passed(ot.DeviceLoader(data_of(server, "--latency", "30ms"), 16, plan=False))
    assert stalls.leading == "not planned", stalls


def test_a_store_that_sends_slowly_is_told(server):
    stalls = passed(ot.DeviceLoader(data_of(server, "--bandwidth", "300000"), 16))
    assert stalls.leading == "store throughput", stalls


def test_a_user_that_takes_its_time_is_the_reader_itself(server):
    stalls = passed(ot.DeviceLoader(data_of(server, "--latency", "10ms"), 16), pause=0.15)
    assert stalls.reader_itself > 10 * 0.15
    assert stalls.reader_itself > 0.7 * stalls.seconds, stalls
    # fetches were waiting all the same, long before their batch was asked for
    assert stalls.blocked < 0.3


def test_a_pass_under_way_is_told_of_and_one_that_was_broken_off(server):
    loader = ot.DeviceLoader(data_of(server, "--latency", "20ms"), 16)
    batches = iter(loader)
    next(batches)
    time.sleep(0.2)
    stalls = loader.stalls()
    assert stalls.under_way and stalls.batches == 1 and stalls.reader_itself >= 0.2
    assert stalls.causes and stalls.blocked > 0
    loader.close()
    stalls = loader.stalls()
    assert not stalls.under_way and stalls.batches == 1
    assert stalls.causes == {} and stalls.leading is None  # nobody was asked


def test_each_pass_is_told_of_by_itself(server):
    loader = ot.DeviceLoader(data_of(server, "--latency", "5ms"), 16)
    assert passed(loader).epoch == 0
    assert passed(loader).epoch == 1


def test_what_no_fetch_was_waiting_for_is_the_daemons(server, monkeypatch):
    loader = ot.DeviceLoader(data_of(server), 16)
    batches = iter(loader)
    next(batches)
    loader._meter.blocked += 100.0
    assert loader.stalls().leading == DAEMON and "busy" in loader.stalls().advice
    loader.close()


@pytest.mark.parametrize("error", [FileNotFoundError(2, "no such file"), ValueError("no JSON"),
                                   KeyError("fetches")])
def test_a_daemon_that_does_not_tell_leaves_the_loaders_own_times(server, monkeypatch, error):
    def missing(self):
        raise error

    monkeypatch.setattr("os2g.Client.stalls", missing)
    loader = ot.DeviceLoader(data_of(server, "--latency", "20ms"), 16)
    list(loader)
    stalls = loader.stalls()
    assert stalls.blocked > 0.01 and stalls.causes == {} and stalls.leading is None
    assert stalls.advice is None and stalls.objects == []
