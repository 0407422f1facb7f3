# SPDX-License-Identifier: Apache-2.0
"""os2g.torch.DeviceLoader whose daemon, a private one, is killed in the middle of a pass."""

import contextlib
import errno
import os
import shutil
import signal
import time

import pytest

pytest.importorskip("torch", reason="no torch (Debian: python3-torch)")

import mounts  # noqa: E402
import os2g.torch as ot  # noqa: E402
import s3d  # noqa: E402
from torching import SPEC, place, right  # noqa: E402


@pytest.fixture
def store(server):
    return server("--synthetic", SPEC, "--latency", "5ms")


def daemons(store):
    """The supervisors of a store's private daemons, whose command line names it."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if f"--endpoint-url={store.url}".encode() in file.read().split(b"\0"):
                found.append(int(pid))
    return found


def kill_them(store):
    pids = daemons(store)
    assert len(pids) == 1
    os.kill(pids[0], signal.SIGKILL)


def whole(batches):
    """The keys of these batches, each object right."""
    keys = []
    for batch in batches:
        assert all(right(key, bytes(batch[i].numpy())) for i, key in enumerate(batch.keys))
        keys += batch.keys
    return sorted(keys)


def test_a_pass_goes_on_with_a_daemon_that_is_started_anew(store):
    images = ot.MapDataset.from_prefix("s3://train/img/", **place(store))
    loader = ot.DeviceLoader(images, 4)
    batches = iter(loader)
    begun = [next(batches)]
    began = time.monotonic()
    kill_them(store)
    assert whole(begun + list(batches)) == list(images.keys)
    assert time.monotonic() - began < 20 * mounts.slowed_down()
    assert [event.kind for event in images.client.events] == ["lost", "reconnected"]
    assert whole(loader) == whole(ot.DeviceLoader(images, 8)) == list(images.keys)
    assert len(daemons(store)) == 1


def test_where_no_daemon_can_be_started_anew_it_ends_with_an_error_that_says_so(store, tmp_path):
    program = shutil.copy(s3d.BUILD / "bin" / "os2gd", tmp_path)
    images = ot.MapDataset.from_prefix("s3://train/img/", **place(store, program=program, timeout=3))
    loader = ot.DeviceLoader(images, 4)
    batches = iter(loader)
    seen = [next(batches)]
    os.unlink(program)
    began = time.monotonic()
    kill_them(store)
    for _ in range(3):  # too late, or gone: neither passes over a batch
        with pytest.raises(OSError, match=f"cannot be started again.*{program}"):
            while True:
                seen.append(next(batches))
    assert time.monotonic() - began < 10 * mounts.slowed_down()
    assert whole(seen) == list(images.keys)[:len(seen) * 4]
    state = loader.state_dict()
    assert state["position"] == len(seen) * 4
    with pytest.raises(OSError) as error:
        images.client.stat("n0/000")
    assert error.value.errno in (errno.ENOTCONN, errno.ETIMEDOUT)
    assert any("cannot be started again" in event.text and program in event.text
               for event in images.client.events)
    # and once it can be, all goes on
    shutil.copy(s3d.BUILD / "bin" / "os2gd", program)
    again = ot.MapDataset.from_prefix("s3://train/img/", **place(store, program=program, timeout=30))
    assert whole(ot.DeviceLoader(again, 8)) == list(again.keys)
    loader = ot.DeviceLoader(again, 4)
    loader.load_state_dict(state)
    assert whole([*seen, *loader]) == list(again.keys)
