# SPDX-License-Identifier: Apache-2.0
"""job.py CLIENT PLACE KEYS: a training job without the training, the same for every client.

It runs by itself, under whatever Python the benchmark gives it, and does what a line of JSON on its
input says, answering with a line:

    {"open": {"workers": 4, "batch": 32, "warm": [batches]}}       makes a loader and warms it up
    {"epoch": [batches], "step": seconds, "digests": false}        one pass; a batch: [indices]

A step takes its time and no CPU, as if an accelerator did it. CLIENT is files, plan, s3connector,
webdataset or gdd; PLACE a directory, a socket and bucket, an endpoint and bucket, or a URL; KEYS a file
of keys, one a line.
"""

import argparse
import ctypes
import hashlib
import itertools
import json
import os
import sys
import time

import torch
import torch.nested._internal.nested_tensor  # noqa: F401: else every worker imports it, at 0.6 s of CPU
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

PR_SET_TIMERSLACK = 29
SHAPE = (3, 224, 224)
SAMPLE = SHAPE[0] * SHAPE[1] * SHAPE[2]


class Order:
    """A batch sampler that gives whatever batches it was last told."""

    def __init__(self):
        self.batches = []

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


class Rooms:
    """A worker's memory for batches, which the trainer shares, and which is used again when the trainer
    has given it back. A last byte says whose it is."""

    READY = 3  # to begin with: two batches ahead, and the trainer's

    def __init__(self):
        self.samples = 0  # of the largest batch; told before there are workers
        self._rooms = []

    @staticmethod
    def make(_):
        """In a worker that starts: no epoch is to pay for it."""
        rooms = get_worker_info().dataset.rooms
        rooms._rooms = [rooms._new() for _ in range(Rooms.READY)]

    def take(self, samples):
        """For a batch: as a tensor and as bytes."""
        room = next((room for room in self._rooms if not room[-1]), None)
        if room is None:
            room = self._new()
            self._rooms.append(room)
        room[-1] = 1
        batch = room[:samples * SAMPLE].view(samples, *SHAPE)
        return batch, memoryview(batch.numpy()).cast("B")

    def _new(self):
        memory = torch.UntypedStorage._new_shared(SAMPLE * self.samples + 1)
        return torch.empty(0, dtype=torch.uint8).set_(memory).zero_()  # touched, once

    @staticmethod
    def give_back(batch):
        torch.empty(0, dtype=torch.uint8).set_(batch.untyped_storage())[-1] = 0


class InPlace(Dataset):
    """Reads each sample to its place in the batch, which lies in memory that the trainer shares: no
    copies, and no collation. The cheapest way there is, for all who use torch's DataLoader."""

    def __init__(self, keys):
        self.keys = keys
        self.rooms = Rooms()

    def __len__(self):
        return len(self.keys)

    def __getitems__(self, indices):
        batch, bytes_ = self.rooms.take(len(indices))
        for place, index in enumerate(indices):
            got = self.read(index, bytes_[place * SAMPLE:(place + 1) * SAMPLE])
            if got != SAMPLE:
                raise OSError(f"{self.keys[index]}: {got} bytes of {SAMPLE}")
        return batch


class Files(InPlace):
    def __init__(self, place, keys):
        super().__init__([os.path.join(place, key) for key in keys])

    def read(self, index, place):
        file = os.open(self.keys[index], os.O_RDONLY)
        try:
            return os.readv(file, [place])
        finally:
            os.close(file)


class Connector(InPlace):
    def __init__(self, place, keys):
        from s3torchconnector import S3ClientConfig, S3MapDataset, S3ReaderConstructor

        super().__init__(keys)
        endpoint, bucket = place.split(",")
        self.objects = S3MapDataset.from_objects(
            [f"s3://{bucket}/{key}" for key in keys], region="us-east-1", endpoint=endpoint,
            s3client_config=S3ClientConfig(force_path_style=True),
            reader_constructor=S3ReaderConstructor.sequential())

    def read(self, index, place):
        return self.objects[index].readinto(place)


def whole(batch):
    return batch


class ByWorkers:
    """torch's DataLoader."""

    keys = None  # of the samples as they came, where that is not the order that was asked for

    def __init__(self, client, place, keys):
        self.data = (Connector if client == "s3connector" else Files)(place, keys)
        self.order = self.sampler = Order()
        self.loader = None
        if client == "plan":
            from os2g.torch import PlanSampler

            self.sampler = PlanSampler(self.order, self.data.keys)

    def open(self, workers, batch):
        self.data.rooms.samples = batch
        self.loader = DataLoader(self.data, batch_sampler=self.sampler, collate_fn=whole,
                                 num_workers=workers, persistent_workers=True,
                                 worker_init_fn=Rooms.make)

    def epoch(self, batches):
        self.order.batches = batches
        for batch in self.loader:
            yield batch
            Rooms.give_back(batch)


class Shards(IterableDataset):
    """WebDataset on shards of 64 samples, with a shuffle over as many. The workers outlive an epoch, so
    what it has is told to them in memory that they share: the size of a batch, and the shards."""

    SAMPLES = 64
    MOST = 4096

    def __init__(self, place):
        import webdataset

        self.place, self.library = place, webdataset
        self.told = torch.zeros(2 + self.MOST, dtype=torch.int64).share_memory_()
        self.rooms = Rooms()

    def tell(self, batch, shards):
        self.told[:2 + len(shards)] = torch.tensor([batch, len(shards), *shards])

    def __iter__(self):
        batch, count = self.told[:2].tolist()
        urls = [f"pipe:curl -s -f {self.place}/{shard:06d}.tar"
                for shard in self.told[2:2 + count].tolist()]
        data = self.library.WebDataset(urls, shardshuffle=self.MOST, empty_check=False)
        return iter(data.shuffle(self.SAMPLES).to_tuple("__key__", "bin")
                    .batched(batch, collation_fn=self.gather))

    def gather(self, samples):
        batch, bytes_ = self.rooms.take(len(samples))
        for place, (_, data) in enumerate(samples):
            bytes_[place * SAMPLE:(place + 1) * SAMPLE] = data
        return [f"{key}.bin" for key, _ in samples], batch


class ByShards:
    """torch's DataLoader over shards: those that the batches asked for, which are in order, are in."""

    def __init__(self, client, place, keys):
        self.data, self.keys, self.loader = Shards(place), [], None

    def open(self, workers, batch):
        self.data.rooms.samples = batch
        self.loader = DataLoader(self.data, batch_size=None, collate_fn=whole, num_workers=workers,
                                 persistent_workers=True, worker_init_fn=Rooms.make)

    def epoch(self, batches):
        shards = (index // Shards.SAMPLES for index in itertools.chain.from_iterable(batches))
        self.data.tell(len(batches[0]), [shard for shard, _ in itertools.groupby(shards)])
        self.keys = []
        for keys, batch in self.loader:
            self.keys += keys
            yield batch
            Rooms.give_back(batch)


class ByDevice:
    """os2g's DeviceLoader: as many batches under way as others have workers."""

    keys = None

    def __init__(self, client, place, keys):
        from os2g.torch import MapDataset

        os.environ["OS2G_SOCKET"], bucket = place.split(",")
        self.data = MapDataset.from_objects(f"s3://{bucket}/{key}" for key in keys)
        self.order = Order()
        self.loader = None

    def open(self, workers, batch):
        from os2g.torch import DeviceLoader

        # the batch that is waited for, and those behind it
        self.loader = DeviceLoader(self.data, batch_sampler=self.order, prefetch=workers - 1,
                                   plan=False, shape=SHAPE)

    def epoch(self, batches):
        self.order.batches = batches
        return (batch.samples for batch in self.loader)


def epoch(loader, batches, step, digests):
    """One pass: how long it took, when each batch came, how long it was waited for."""
    found, samples, waited, came = [], 0, 0.0, []
    began = time.monotonic()
    given = loader.epoch(batches)
    while True:
        asked = time.monotonic()
        batch = next(given, None)
        now = time.monotonic()
        waited += now - asked
        if batch is None:
            break
        came.append(now - began)
        samples += len(batch)
        if digests:
            found += [hashlib.sha256(sample.numpy()).hexdigest() for sample in batch]
        if step:
            time.sleep(step)
        del batch
    return {"samples": samples, "seconds": time.monotonic() - began, "waited": waited,
            "came": came, "digests": found, "keys": loader.keys if digests else None}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client")
    parser.add_argument("place")
    parser.add_argument("keys", help="a file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    # an accelerator is done when it is, and not when a timer of the kernel is convenient
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    with open(args.keys, encoding="utf-8") as file:
        keys = file.read().splitlines()
    kind = {"gdd": ByDevice, "webdataset": ByShards}.get(args.client, ByWorkers)
    loader = kind(args.client, args.place, keys)
    for line in sys.stdin:
        request = json.loads(line)
        if "open" in request:
            loader.open(request["open"]["workers"], request["open"]["batch"])
            answer = epoch(loader, request["open"]["warm"], 0, False)
        else:
            answer = epoch(loader, request["epoch"], request["step"], request["digests"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
