# SPDX-License-Identifier: Apache-2.0
"""Which sample is read when, and by whom. No I/O: the same arguments give the same order."""

from typing import Iterator, List, NamedTuple, Sequence, Tuple

import torch
import torch.distributed
import torch.utils.data


class Order(NamedTuple):
    """An epoch of `length` samples for `replicas` ranks, as DistributedSampler orders it: shuffled by
    seed + epoch, dealt out in turn, every rank the same number; with drop_last the rest is left
    out, else the first ones are read again."""

    length: int
    batch_size: int
    replicas: int = 1
    rank: int = 0
    shuffle: bool = False
    seed: int = 0
    drop_last: bool = False

    def indices(self, epoch: int) -> Sequence[int]:
        if not self.shuffle:
            return range(self.length)
        generator = torch.Generator()
        generator.manual_seed(self.seed + epoch)
        return torch.randperm(self.length, generator=generator).tolist()

    def share(self, position: int = 0) -> int:
        """Samples of each rank, when all ranks together have read `position`."""
        rest = max(self.length - position, 0)
        if not self.drop_last:
            return -(-rest // self.replicas)
        return rest // self.replicas // self.batch_size * self.batch_size

    def batches(self, position: int = 0) -> int:
        return -(-self.share(position) // self.batch_size)

    def mine(self, epoch: int, position: int = 0) -> List[int]:
        """This rank's, in order. position: of all ranks; also of another number of them before."""
        indices = self.indices(epoch)
        places = range(position + self.rank, position + self.share(position) * self.replicas,
                       self.replicas)
        return [indices[place % self.length] for place in places]


def cut(indices: Sequence[int], size: int) -> Iterator[List[int]]:
    for at in range(0, len(indices), size):
        yield list(indices[at : at + size])


def rank_and_replicas() -> Tuple[int, int]:
    """Of torch.distributed, when that is in use."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def shard() -> Tuple[int, int]:
    """(mine, of how many): of the ranks' workers."""
    rank, replicas = rank_and_replicas()
    worker = torch.utils.data.get_worker_info()
    if worker is None:
        return rank, replicas
    return rank * worker.num_workers + worker.id, replicas * worker.num_workers
