# SPDX-License-Identifier: Apache-2.0
"""os2g.torch with several ranks and workers, some of which are killed."""

import collections
import functools
import itertools
import json
import os
import time

import pytest

torch = pytest.importorskip("torch", reason="no torch (Debian: python3-torch)")

import torch.distributed  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402

import mounts  # noqa: E402
import os2g.torch as ot  # noqa: E402
from torching import FORK, SECONDS, SPEC, Rank, gets, load, place, right, together  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def store(server):
    return server("--synthetic", SPEC)


def make(url, transform=load):
    return ot.MapDataset.from_prefix("s3://train/img/", transform=transform, endpoint=url,
                                     region="us-east-1")


def plain(batch):
    return batch


# --- two ranks with four workers each; 75 samples are no multiple of two ---

def planned_rank(rank, ranks, url, meeting):
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank,
                                         world_size=ranks)
    data = make(url)
    sampler = ot.PlanSampler(DistributedSampler(data, seed=2), data)
    sampler.set_epoch(1)
    loader = DataLoader(data, 8, sampler=sampler, num_workers=4, collate_fn=plain)
    seen = [item for batch in loader for item in batch]
    assert all(right(*item) for item in seen)
    torch.distributed.barrier()
    sampler.close()
    return [key for key, _ in seen]


def test_two_ranks_of_four_workers_read_what_their_samplers_list(store, tmp_path):
    seen = together(planned_rank, 2, store.url, tmp_path / "meeting")
    data = make(store.url)
    for rank in range(2):
        sampler = DistributedSampler(data, 2, rank, seed=2)
        sampler.set_epoch(1)
        assert seen[rank] == [data.keys[i] for i in sampler]
    counted = collections.Counter(itertools.chain(*seen))
    assert set(counted) == set(data.keys) and sum(counted.values()) == 76
    # the one that is listed twice may still have been there
    assert 75 <= gets(store) <= 76


def device_rank(rank, ranks, url):
    loader = ot.DeviceLoader(make(url), 8, shuffle=True, num_replicas=ranks, rank=rank)
    seen = []
    for batch in loader:
        assert all(right(key, bytes(batch[i].numpy())) for i, key in enumerate(batch.keys))
        seen += batch.keys
    return seen


def test_ranks_of_device_loaders_share_an_epoch(store):
    counted = collections.Counter(itertools.chain(*together(device_rank, 2, store.url)))
    assert set(counted) == set(make(store.url).keys) and sum(counted.values()) == 76
    assert 75 <= gets(store) <= 76


# --- killed ---

def checkpointed_rank(rank, ranks, url, place_, stops):
    """Goes on from its checkpoint, if there is one; after each batch it is written anew. Stops in
    the middle of things after so many."""
    loader = ot.DeviceLoader(make(url), 4, shuffle=True, seed=1, num_replicas=ranks, rank=rank)
    saved = place_ / f"rank{rank}"
    seen = []
    if saved.exists():
        state = json.loads(saved.read_text())
        loader.load_state_dict(state["loader"])
        seen = state["seen"]
    for batch in loader:
        seen += batch.keys
        new = saved.with_suffix(".new")
        new.write_text(json.dumps({"loader": loader.state_dict(), "seen": seen}))
        os.replace(new, saved)
        if stops and len(seen) == 4 * stops[rank]:
            time.sleep(1000)
    return seen


def has_stopped(saved, batches):
    return saved.exists() and len(json.loads(saved.read_text())["seen"]) == 4 * batches


def test_an_epoch_that_was_killed_is_resumed_without_loss_or_doubling(store, tmp_path):
    stops = [3, 7]
    running = [Rank(checkpointed_rank, rank, 2, store.url, tmp_path, stops) for rank in range(2)]
    for rank, one in enumerate(running):
        mounts.wait_until(functools.partial(has_stopped, tmp_path / f"rank{rank}", stops[rank]))
        one.kill()
    seen = together(checkpointed_rank, 2, store.url, tmp_path, None)
    data = make(store.url)
    for rank in range(2):
        sampler = DistributedSampler(data, 2, rank, seed=1)
        assert seen[rank] == [data.keys[i] for i in sampler]


def stuck_rank(url):
    """Declares its share, reads a little, and no more."""
    data = make(url)
    for _ in ot.DeviceLoader(data, 2, num_replicas=2, rank=0):
        time.sleep(1000)


def test_a_rank_that_stops_or_dies_does_not_stall_the_others(store):
    stuck = Rank(stuck_rank, store.url)
    mounts.wait_until(lambda: gets(store) > 10)
    began = time.monotonic()
    assert len(Rank(device_rank, 1, 2, store.url).result()) == 38
    stuck.kill()
    assert len(Rank(device_rank, 1, 2, store.url).result()) == 38
    assert time.monotonic() - began < 20 * mounts.slowed_down()


def slow(reader):
    if reader.key == "img/n1/010":
        time.sleep(1000)
    return load(reader)


def test_a_worker_that_is_killed_fails_its_loader_alone(store):
    data = make(store.url, slow)
    sampler = ot.PlanSampler(range(75), data)
    loader = DataLoader(data, 5, sampler=sampler, num_workers=2, collate_fn=plain)
    batches = iter(loader)
    next(batches)
    for worker in batches._workers:
        worker.kill()
    with pytest.raises(RuntimeError):
        for _ in batches:
            pass
    del batches
    assert len(Rank(device_rank, 0, 1, store.url).result()) == 75


# --- a fork ---

def batch_is_right(batch):
    return all(right(key, bytes(batch[i].numpy())) for i, key in enumerate(batch.keys))


def reads_beside_its_parent(loader, has_begun, go_on):
    batches = iter(loader)
    kept = [next(batches) for _ in range(3)]
    has_begun.set()
    assert go_on.wait(SECONDS)
    assert all(batch_is_right(batch) for batch in [*kept, *batches])


def test_a_child_reads_by_its_parents_loader_in_memory_of_its_own(store):
    loader = ot.DeviceLoader(make(store.url), 5, shuffle=True)
    assert all(batch_is_right(batch) for batch in loader)  # leaves memory to be used again
    has_begun, go_on = FORK.Event(), FORK.Event()
    child = Rank(reads_beside_its_parent, loader, has_begun, go_on)
    assert has_begun.wait(SECONDS)
    assert all(batch_is_right(batch) for batch in loader)
    go_on.set()
    child.result()


# --- torchdata's loader, which keeps its place ---

@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_resumes_a_declared_order(store, workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="no torchdata (PyPI)")
    data = make(store.url)

    def loader():
        order = DistributedSampler(data, 1, 0, seed=9)
        return stateful.StatefulDataLoader(data, 5, sampler=ot.PlanSampler(order, data),
                                           num_workers=workers, collate_fn=plain)

    def keys(batches):
        return [key for batch in batches for key, _ in batch]

    good = keys(loader())
    first = loader()
    seen = keys(itertools.islice(first, 6))
    state = first.state_dict()
    del first
    second = loader()
    second.load_state_dict(state)
    assert seen + keys(second) == good
