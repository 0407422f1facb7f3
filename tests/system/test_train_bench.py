# SPDX-License-Identifier: Apache-2.0
"""bench/train judges right: what it says about epochs that were made up here."""

import io
import sys
import tarfile

import pytest

import s3d

sys.path.insert(0, str(s3d.ROOT / "bench" / "lib"))
sys.path.append(str(s3d.ROOT / "bench"))

from train import accelerator, cpu_mode  # noqa: E402
from train.copies import SHARD, Part, shard  # noqa: E402

USED = {"host": 1.0, "device": 2.0, "both": 0.0, "store": 9.0}


def row(client="s3fs", losses=(0.7, 0.69, 0.6, 0.6, 0.5, 0.45), digests=("a", "b", "c", "d")):
    epoch = {"rate": 4.0, "seconds": 1.0, "cpu_s": 8.0, "loading_cpu_s": 0.5, "losses": list(losses),
             "digests": list(digests)}
    return cpu_mode.row(client, 4, epoch, USED, 48)


def test_clients_with_the_same_batches_and_a_falling_loss_are_right():
    rows = {client: row(client) for client in ("s3fs", "s3connector", "gdd")}
    assert not list(cpu_mode.wrong(rows))


def test_the_cpu_of_a_row_is_the_trainers_and_the_daemons_and_not_the_stores():
    found = row()
    assert (found["host_cpu_s"], found["device_cpu_s"], found["total_cpu_s"]) == (9, 2, 11)
    assert found["loading_cpu_s"] == 3.5


def test_a_client_with_another_order_is_told():
    rows = {"s3fs": row(), "plan": row(digests="badc")}
    assert list(cpu_mode.wrong(rows)) == ["plan: not the order that s3fs has"]


def test_a_client_with_other_bytes_is_told():
    rows = {"s3fs": row(), "webdataset": row("webdataset", digests="abcx")}
    assert list(cpu_mode.wrong(rows)) == ["webdataset: not the samples that s3fs has"]


def test_webdataset_may_have_an_order_of_its_own():
    rows = {"s3fs": row(), "webdataset": row("webdataset", digests="dcba"), "gdd": row("gdd")}
    assert not list(cpu_mode.wrong(rows))


def test_a_missing_sample_is_told():
    rows = {"s3fs": row(), "webdataset": row("webdataset", digests="abc")}
    assert list(cpu_mode.wrong(rows)) == ["webdataset: not the samples that s3fs has"]


@pytest.mark.parametrize("losses", [(0.5, 0.5, 0.6, 0.6, 0.7, 0.7), (0.5,) * 6,
                                    (0.5, 0.5, 0.4, 0.4, 0.5, 0.6),
                                    (0.7, 0.7, 0.6, 0.6, float("nan"), 0.5)])
def test_a_loss_that_does_not_fall_is_told(losses):
    text, = cpu_mode.wrong({"gdd": row("gdd", losses)})
    assert text.startswith("gdd: the loss does not fall")


def test_a_loss_may_rise_on_its_way_down():
    assert not list(cpu_mode.wrong({"gdd": row("gdd", (0.7, 0.6, 0.9, 0.9, 0.4, 0.5))}))


class Workers:
    """Of a loader: each takes as long for a batch, all began at once, and has two asked of it."""

    class contender:
        name = "made up"

    def __init__(self, workers, batch, pace):
        self.workers, self.batch, self._took = workers, batch, workers * pace

    def epoch(self, samples, step):
        came, over, now = [], [], 0.0
        for i in range(samples // self.batch):
            # of the same worker: the batch before is done, and the one before that was taken
            begun = 0.0 if i < self.workers else over[i - self.workers]
            if i >= 2 * self.workers:
                begun = max(begun, came[i - 2 * self.workers])
            over.append(begun + self._took)
            now = max(now, over[i])
            came.append(now)
            now += step
        return {"came": came, "step_s": step, "workers": self.workers, "seconds": now}


def measured(workers, samples, pace=0.03):
    setting = accelerator.Setting(None, None, None, samples=samples, batch=32, probes=4)
    return accelerator.Measure(Workers(workers, 32, pace), setting)


@pytest.mark.parametrize("workers", [1, 8, 32])
@pytest.mark.parametrize("turns", [2, 3.5, 8])
@pytest.mark.parametrize("step, busy", [(0.006, 0.2), (0.024, 0.8), (0.03, 1), (0.06, 1)])
def test_utilisation_is_that_of_a_long_epoch(workers, turns, step, busy):
    record = measured(workers, 32).epoch("min_step", int(turns * workers) * 32, step)
    assert record["utilisation"] == pytest.approx(busy, rel=0.01)


def test_an_epoch_of_one_turn_tells_no_utilisation():
    assert measured(8, 32).epoch("min_step", 8 * 32, 0.06)["utilisation"] is None


@pytest.mark.parametrize("workers", [4, 32])
@pytest.mark.parametrize("off", [0.3, 1, 3])
def test_the_shortest_step_is_the_pace_of_the_loader(workers, off):
    """Also where the rate that it begins with was wrong."""
    step = measured(workers, 1024).shortest_step(off * 32 / 0.03)
    assert 0.95 * 0.03 <= step <= 1.02 * 0.95 * 0.03


def test_a_shard_has_its_members_in_order():
    members = [("n0000/000001.bin", b"one"), ("n0000/000000.bin", b"zero")]
    with tarfile.open(fileobj=io.BytesIO(shard(members))) as tar:
        assert [(m.name, tar.extractfile(m).read()) for m in tar] == members


def test_an_epoch_of_a_part_begins_with_a_shard_and_has_whole_ones_around_its_end():
    part = Part()
    part.take(3)
    indices, _ = part.take(2 * SHARD)
    assert indices == list(range(SHARD, 3 * SHARD))
    part.take(len(part.keys) - 4 * SHARD)
    indices, _ = part.take(2 * SHARD)
    assert indices == [*range(len(part.keys) - SHARD, len(part.keys)), *range(SHARD)]
