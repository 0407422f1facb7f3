# SPDX-License-Identifier: Apache-2.0
"""os2g.torch.DeviceLoader: batches that land in one region each."""

import contextlib
import ctypes
import gc
import signal
import time

import pytest

torch = pytest.importorskip("torch", reason="no torch (Debian: python3-torch)")

from torch.utils.data import BatchSampler, SequentialSampler  # noqa: E402

import mounts  # noqa: E402
import os2g.torch as ot  # noqa: E402
from os2g.torch._region import Regions  # noqa: E402
from torching import SPEC, expected, gets, place, right  # noqa: E402


@pytest.fixture
def store(server):
    return server("--synthetic", SPEC)


@pytest.fixture
def images(store):
    return ot.MapDataset.from_prefix("s3://train/img/", **place(store))


@pytest.fixture
def fixed(store):
    return ot.MapDataset.from_prefix("s3://train/fix/", **place(store))


def keys_of(batches):
    return [key for batch in batches for key in batch.keys]


def all_right(batch):
    return all(right(key, bytes(batch[i].numpy())) and batch.sizes[i]
               for i, key in enumerate(batch.keys))


@pytest.mark.parametrize("prefetch, plan", [(0, True), (2, True), (4, 1 << 20), (1, False)])
def test_an_epoch_lands_byte_for_byte_each_object_once(store, images, prefetch, plan):
    loader = ot.DeviceLoader(images, 8, shuffle=True, seed=4, prefetch=prefetch, plan=plan)
    seen = []
    for batch in loader:
        assert batch.data.dtype == torch.uint8 and batch.data.device.type == "cpu"
        assert all_right(batch)
        seen += batch.keys
    assert sorted(seen) == list(images.keys) and len(loader) == 10
    assert gets(store) == 75
    assert images.client.stats().bounced_bytes == 0


def test_the_same_seed_gives_the_same_batches(images):
    def epoch(seed, number):
        loader = ot.DeviceLoader(images, 9, shuffle=True, seed=seed)
        loader.set_epoch(number)
        return keys_of(loader)

    assert epoch(1, 0) == epoch(1, 0)
    assert len({tuple(epoch(*one)) for one in [(1, 0), (1, 1), (5, 0)]}) == 3


def test_the_next_pass_is_the_next_epoch(images):
    loader = ot.DeviceLoader(images, 25, shuffle=True)
    first, second = keys_of(loader), keys_of(loader)
    assert first != second and sorted(first) == sorted(second)
    loader.set_epoch(0)
    assert keys_of(loader) == first


def test_samples_of_one_shape_are_a_tensor_in_place(fixed):
    loader = ot.DeviceLoader(fixed, 10, shape=(16, 32), dtype=torch.int64, labels=range(37))
    for batch in loader:
        assert batch.samples.shape == (len(batch), 16, 32) and batch.samples.is_contiguous()
        assert batch.samples.data_ptr() == batch.data.data_ptr()
        good = torch.stack([torch.frombuffer(bytearray(expected(key, 4096)), dtype=torch.int64)
                            for key in batch.keys])
        assert torch.equal(batch.samples.flatten(1), good)
        assert batch.labels == batch.indices


def test_a_shape_has_no_negative_extent(fixed):
    with pytest.raises(ValueError, match="-1"):
        ot.DeviceLoader(fixed, 8, shape=(-1, 64))


def test_a_sample_of_another_shape_is_named(fixed):
    smaller = ot.DeviceLoader(fixed, 5, shape=(4097,))
    with pytest.raises(ValueError, match="fix/000"):
        next(iter(smaller)).samples
    with pytest.raises(OSError) as raised:
        next(iter(ot.DeviceLoader(fixed, 5, shape=(4095,))))
    assert raised.value.filename == "fix/000" and raised.value.object_size == 4096


def test_objects_of_unknown_sizes_land_too(store, images):
    keys = [*images.keys, "big", "empty"]
    named = ot.MapDataset.from_objects([f"s3://train/{key}" for key in keys], **place(store))
    seen = []
    for batch in ot.DeviceLoader(named, 20, plan=False):
        for i, key in enumerate(batch.keys):
            assert right(key, bytes(batch[i].numpy()))
            assert batch.sizes[i] == (20 << 20 if key == "big" else batch.sizes[i])
        seen += batch.keys
    assert seen == keys


def test_what_decode_makes_of_a_batch_is_what_comes(fixed):
    loader = ot.DeviceLoader(fixed, 16, decode=lambda batch: (batch.samples, batch.labels),
                             labels=lambda key: int(key[-3:]))
    assert [(tuple(x.shape), len(y)) for x, y in loader] == [((n, 4096), n) for n in (16, 16, 5)]


def test_memory_is_used_again_but_never_while_somebody_looks(images):
    loader = ot.DeviceLoader(images, 5, prefetch=1)
    kept, places = [], set()
    for number, batch in enumerate(loader):
        places.add(batch.data.data_ptr())
        if number in (2, 7):
            kept.append((batch.keys, [batch[i] for i in range(5)]))
        del batch
    assert len(places) < 9  # of 15 batches
    loader.close()
    gc.collect()
    for keys, samples in kept:
        assert all(right(key, bytes(sample.numpy())) for key, sample in zip(keys, samples))


@pytest.mark.parametrize("prefetch", [2, 300])
def test_any_number_of_batches_may_be_kept_and_under_way(images, prefetch):
    loader = ot.DeviceLoader(images, 1, shuffle=True, prefetch=prefetch)
    kept = [batch for epoch in range(3) for batch in loader]
    assert len(kept) == 225
    for batch in kept:
        assert right(batch.keys[0], bytes(batch[0].numpy()))
    del kept, batch
    gc.collect()
    places = {batch.data.data_ptr() for batch in loader}
    assert len(places) <= 34  # used again, now that nobody looks


def test_pinned_memory_is_registered_once_and_given_back(images, monkeypatch):
    class Runtime:
        pinned, calls = {}, 0

        def cudaHostRegister(self, address, size, flags):
            self.pinned[address] = size
            Runtime.calls += 1
            return 0

        def cudaHostUnregister(self, address):
            del self.pinned[address]
            return 0

    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "check_error", lambda error: None)
    loader = ot.DeviceLoader(images, 5, pin_memory=True)
    for batch in loader:
        assert batch.data.data_ptr() in runtime.pinned
    assert 2 <= runtime.calls < 10
    loader.close()
    assert list(runtime.pinned) == [batch.data.data_ptr()]
    del batch
    assert not runtime.pinned


class Gpus:
    """Three, of which this process uses two, with CUDA's runtime. What they are asked to copy is
    read when somebody waits for it, as late as a GPU may."""

    USED = (0, 2)

    def __init__(self, monkeypatch):
        self.queued, self.waits, self.wrong, self.unmapped = [], [], [], []
        self.pinned, self.registered = {}, 0
        monkeypatch.setattr(torch.cuda, "cudart", lambda: self)
        monkeypatch.setattr(torch.cuda, "check_error", lambda error: None)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
        monkeypatch.setattr(torch.cuda, "synchronize", self.synchronize)
        monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", self.USED.__contains__,
                            raising=False)

    def copy(self, number, batch):
        """batch.data.to(number, non_blocking=True)"""
        for key, offset, size in zip(batch.keys, batch.offsets, batch.sizes):
            self.queued.append((number, batch.data.data_ptr() + offset, size, key))

    def synchronize(self, number):
        self.waits.append(number)
        for gpu, address, size, key in self.queued:
            if gpu == number and not right(key, ctypes.string_at(address, size)):
                self.wrong.append(key)
        self.queued = [one for one in self.queued if one[0] != number]

    def cudaHostRegister(self, address, size, flags):
        self.pinned[address] = size
        self.registered += 1
        return 0

    def cudaHostUnregister(self, address):
        end = address + self.pinned.pop(address)
        self.unmapped += [one for one in self.queued if address <= one[1] < end]
        self.queued = [one for one in self.queued if not address <= one[1] < end]
        return 0


@pytest.mark.parametrize("prefetch", [0, 2, 7])
def test_pinned_memory_is_not_used_again_before_copies_to_gpus_are_done(fixed, monkeypatch, prefetch):
    gpus = Gpus(monkeypatch)
    loader = ot.DeviceLoader(fixed, 1, prefetch=prefetch, pin_memory=True, shuffle=True)
    batches = 0
    for _ in range(2):
        for batch in loader:
            gpus.copy(gpus.USED[batches % 2], batch)
            batches += 1
    waits = gpus.waits.count(0)
    for number in gpus.USED:
        gpus.synchronize(number)
    assert batches == 74 and not gpus.wrong and not gpus.unmapped
    assert set(gpus.waits) == set(gpus.USED)  # and no context is made on the third
    # seldom, without taking new memory instead; an epoch's end is no steady state
    assert waits <= batches // (4 if prefetch else 2) + 3
    assert len(gpus.pinned) <= prefetch + 5 and gpus.registered <= prefetch + 9
    loader.close()
    del batch


def test_pinned_memory_is_not_given_back_before_copies_to_gpus_are_done(fixed, monkeypatch):
    gpus = Gpus(monkeypatch)
    loader = ot.DeviceLoader(fixed, 4, pin_memory=True)
    batches = iter(loader)
    first, second = next(batches), next(batches)
    for batch in (first, second):
        gpus.copy(2, batch)
    del first, batch
    loader.close()
    del second
    gc.collect()
    assert not gpus.pinned and not gpus.unmapped and not gpus.queued and not gpus.wrong


def test_a_gpus_memory_is_not_used_again_before_its_kernels_are_done(monkeypatch):
    class Memory:
        __cuda_array_interface__ = {"shape": (2 << 20,)}

        def __len__(self):
            return 2 << 20

    class Client:
        def buffer(self, size, memory, device):
            return Memory()

    waits = []
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    regions = Regions(Client(), torch.device("cuda", 1), 2)
    first, view = regions.take(1000)
    other, kept = regions.take(1000)
    waits.clear()
    del view
    again, view = regions.take(1000)
    assert again is first and other is not first and waits == [torch.device("cuda", 1)]


def test_samplers_of_ones_own_say_what_is_read(store, images):
    loader = ot.DeviceLoader(images, 4, sampler=[5, 1, 5, 9, 70, 2], drop_last=True)
    assert keys_of(loader) == [images.keys[i] for i in (5, 1, 5, 9)] and len(loader) == 1
    batches = BatchSampler(SequentialSampler(images), 20, False)
    loader = ot.DeviceLoader(images, batch_sampler=batches)
    assert [len(batch) for batch in loader] == [20, 20, 20, 15] and len(loader) == 4
    assert gets(store) == 75


def test_a_batch_may_be_larger_than_those_before_it(images):
    lists = [list(range(n)) for n in (1, 2, 1, 9, 3, 40, 75, 2, 75)]
    loader = ot.DeviceLoader(images, batch_sampler=lists, prefetch=1)
    for wanted, batch in zip(lists, loader):
        assert batch.indices == wanted and all_right(batch)


@pytest.mark.parametrize("sampled", [False, True])
def test_an_epoch_is_resumed_where_it_was_left(store, images, sampled):
    def make():
        order = {"sampler": [*range(40, 75), *range(40)]} if sampled else {"shuffle": True, "seed": 8}
        return ot.DeviceLoader(images, 8, **order)

    good, next_good = (lambda loader: (keys_of(loader), keys_of(loader)))(make())
    first = make()
    batches = iter(first)
    seen = keys_of([next(batches) for _ in range(6)])
    state = first.state_dict()
    first.close()
    second = make()
    second.load_state_dict(state)
    second.set_epoch(state["epoch"])  # as a loop over epochs does
    assert seen + keys_of(second) == good
    assert keys_of(second) == next_good


def test_a_state_of_another_order_is_refused(images, fixed):
    state = ot.DeviceLoader(images, 8, shuffle=True).state_dict()
    for other in (ot.DeviceLoader(images, 8), ot.DeviceLoader(fixed, 8, shuffle=True),
                  ot.DeviceLoader(images, 8, shuffle=True, seed=1),
                  ot.DeviceLoader(images, 8, sampler=[1])):
        with pytest.raises(ValueError, match="another order"):
            other.load_state_dict(state)


def damaged(store, **options):
    uris = [f"s3://train/fix/{i:03d}" for i in range(8)]
    uris[1], uris[4] = "s3://train/fix/gone", "s3://train/img/n0/000"
    store.faults("GET train/img/* always close 50%")
    data = ot.MapDataset.from_objects(uris, **place(store, retry_timeout="1s"))
    return ot.DeviceLoader(data, 2, **options)


def test_no_state_is_before_the_beginning(images):
    loader = ot.DeviceLoader(images, 8)
    with pytest.raises(ValueError, match="position -8"):
        loader.load_state_dict({**loader.state_dict(), "position": -8})


def test_a_missing_or_broken_object_raises_with_its_key_and_the_rest_goes_on(store):
    batches = iter(damaged(store))
    seen, failed = [], []
    for _ in range(4):
        try:
            seen += next(batches).keys
        except OSError as error:
            failed.append(error.filename)
    assert failed == ["fix/gone", "img/n0/000"] and len(seen) == 4
    with pytest.raises(StopIteration):
        next(batches)


def test_a_batch_that_is_late_is_asked_for_again_and_not_counted(store):
    store.faults("GET train/fix/009 nth=1 stall head 4s")
    fixed = ot.MapDataset.from_prefix("s3://train/fix/", **place(store, timeout=1))
    loader = ot.DeviceLoader(fixed, 4)
    batches = iter(loader)
    seen = [next(batches).keys for _ in range(2)]
    state = loader.state_dict()
    with pytest.raises(TimeoutError) as late:
        next(batches)
    assert late.value.filename is None and loader.state_dict() == state
    began = time.monotonic()
    while len(seen) < 10:
        assert time.monotonic() - began < mounts.SECONDS
        with contextlib.suppress(TimeoutError):
            seen.append(next(batches).keys)
    assert [key for keys in seen for key in keys] == list(fixed.keys)
    with pytest.raises(StopIteration):
        next(batches)
    loader.load_state_dict(state)
    assert keys_of(loader) == list(fixed.keys)[8:]


def test_errors_may_be_returned(store):
    batches = list(damaged(store, errors="return"))
    found = [(error and error.filename, size) for batch in batches
             for error, size in zip(batch.errors, batch.sizes)]
    assert found == [(None, 4096), ("fix/gone", 0), (None, 4096), (None, 4096), ("img/n0/000", 0),
                     (None, 4096), (None, 4096), (None, 4096)]


def test_what_was_ended_by_another_pass_says_so(images):
    loader = ot.DeviceLoader(images, 8)
    first = iter(loader)
    next(first)
    second = iter(loader)
    with pytest.raises(RuntimeError, match="another pass"):
        next(first)
    assert sum(len(batch) for batch in second) == len(images)
    with pytest.raises(StopIteration):
        next(second)
    third = iter(loader)
    next(third)
    loader.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(third)


def test_labels_are_as_many_as_samples(images):
    for labels in ([1] * (len(images) - 1), [1] * (len(images) + 1)):
        with pytest.raises(ValueError, match=f"{len(labels)} labels"):
            iter(ot.DeviceLoader(images, 8, labels=labels))


def test_an_empty_batch_is_refused(images):
    with pytest.raises(ValueError, match="empty batch"):
        iter(ot.DeviceLoader(images, batch_sampler=[[0, 1], []]))


def test_arguments_that_contradict_each_other_are_refused(images):
    for wrong in ({"batch_size": 0}, {"rank": 2, "num_replicas": 2}, {"errors": "ignore"},
                  {"sampler": [1], "shuffle": True}, {"sampler": [1], "batch_sampler": [[1]]},
                  {"device": "meta"}, {"prefetch": -1}):
        with pytest.raises((ValueError, RuntimeError)):
            ot.DeviceLoader(images, **wrong)


LOOP = """
import os, sys
import os2g.torch as ot
data = ot.MapDataset.from_prefix("s3://train/img/", endpoint=sys.argv[1], region="us-east-1")
loader = ot.DeviceLoader(data, 10)
print(len(data), flush=True)
for batch in loader:
    pass
"""


def test_ctrl_c_ends_it_at_once(store, program):
    store.faults("GET train/img/* always stall head")
    running = program(LOOP, store.url)
    assert running.stdout.readline() == "75\n"
    mounts.wait_until(lambda: store.counters()["in_flight"] > 0)
    time.sleep(0.5)  # it waits for the first batch by now
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, text = running.communicate(timeout=30)
    assert "KeyboardInterrupt" in text and running.returncode in (1, -signal.SIGINT)
    assert time.monotonic() - began < 10 * mounts.slowed_down()  # a store that stalls is waited for longer


@pytest.mark.parametrize("data", [["a"], "s3://train/img/", torch.utils.data.Subset([1, 2], [0])])
def test_what_is_no_data_set_is_refused_with_what_to_do(data):
    with pytest.raises(TypeError, match="is to be a MapDataset"):
        ot.DeviceLoader(data, 4)
