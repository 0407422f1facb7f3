# SPDX-License-Identifier: Apache-2.0
"""os2g.torch: which sample is read when, and by whom; nothing is read here."""

import collections

import pytest

torch = pytest.importorskip("torch", reason="no torch (Debian: python3-torch)")

from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402

import os2g.torch as ot  # noqa: E402
from os2g.torch._order import Order, cut  # noqa: E402


@pytest.mark.parametrize("length", [1, 7, 64, 101])
@pytest.mark.parametrize("replicas", [1, 2, 5])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_order_is_that_of_distributed_sampler(length, replicas, shuffle, drop_last):
    for rank in range(replicas):
        order = Order(length, 4, replicas, rank, shuffle, 11, drop_last)
        sampler = DistributedSampler(range(length), replicas, rank, shuffle, 11, drop_last)
        sampler.set_epoch(3)
        loader = DataLoader(range(length), 4, sampler=sampler, drop_last=drop_last,
                            collate_fn=list)
        good = list(loader)
        assert list(cut(order.mine(3), 4)) == good
        assert order.batches() == len(good)


def test_each_epoch_has_an_order_of_its_own_and_always_the_same():
    order = Order(100, 10, shuffle=True, seed=5)
    assert order.mine(0) == order.mine(0) != order.mine(1)
    assert order.mine(0) != Order(100, 10, shuffle=True, seed=6).mine(0)


@pytest.mark.parametrize("before, after", [(2, 2), (2, 3), (4, 1), (1, 4), (3, 2)])
def test_what_is_left_after_any_number_of_batches_is_the_rest(before, after):
    length, size = 103, 4
    for batches in range(Order(length, size, before).batches()):
        seen = collections.Counter()
        for rank in range(before):
            seen.update(Order(length, size, before, rank, True).mine(0)[:batches * size])
        position = batches * size * before
        for rank in range(after):
            seen.update(Order(length, size, after, rank, True).mine(0, position))
        # only what pads the last round comes twice
        assert set(seen) == set(range(length))
        assert sum(seen.values()) - length < after


def test_labels_are_the_directories_in_their_order():
    labels, classes = ot.directory_labels(["t/dog/1", "t/cat/9", "t/dog/2", "ant/x"])
    assert classes == {"ant": 0, "cat": 1, "dog": 2} and labels == [2, 1, 2, 0]
