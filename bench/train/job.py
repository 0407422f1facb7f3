# SPDX-License-Identifier: Apache-2.0
"""job.py CLIENT PLACE KEYS: a training job without the training, the same for every client.

It runs by itself, under whatever Python the benchmark gives it, and does what a line of JSON on its
input says, answering with a line:

    {"open": {"workers": 4, "warm": [batches]}}                    makes a loader and warms it up
    {"epoch": [batches], "step": seconds, "digests": false}        one pass; a batch: [indices]

A step takes its time and no CPU, as if an accelerator did it. CLIENT is files, plan, s3connector or
gdd; PLACE a directory, a socket, or an endpoint and bucket; KEYS a file of keys, one a line.
"""

import argparse
import hashlib
import json
import os
import sys
import time

import torch
import torch.nested._internal.nested_tensor  # noqa: F401: else every worker imports it, at 0.6 s of CPU
from torch.utils.data import DataLoader, Dataset

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


class InPlace(Dataset):
    """Reads each sample to its place in the batch, which lies in memory that the trainer shares: no
    copies, and no collation. The cheapest way there is, for all who use torch's DataLoader."""

    def __init__(self, keys):
        self.keys = keys

    def __len__(self):
        return len(self.keys)

    def __getitems__(self, indices):
        memory = torch.UntypedStorage._new_shared(SAMPLE * len(indices))
        batch = torch.empty(0, dtype=torch.uint8).set_(memory).view(len(indices), *SHAPE)
        bytes_ = memoryview(batch.numpy()).cast("B")
        for place, index in enumerate(indices):
            got = self.read(index, bytes_[place * SAMPLE:(place + 1) * SAMPLE])
            if got != SAMPLE:
                raise OSError(f"{self.keys[index]}: {got} bytes of {SAMPLE}")
        return batch


class Files(InPlace):
    def __init__(self, place, keys):
        super().__init__([os.path.join(place, key) for key in keys])

    def read(self, index, room):
        file = os.open(self.keys[index], os.O_RDONLY)
        try:
            return os.readv(file, [room])
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

    def read(self, index, room):
        return self.objects[index].readinto(room)


def whole(batch):
    return batch


class ByWorkers:
    """torch's DataLoader."""

    def __init__(self, client, place, keys):
        self.data = (Connector if client == "s3connector" else Files)(place, keys)
        self.order = self.sampler = Order()
        self.loader = None
        if client == "plan":
            from os2g.torch import PlanSampler

            self.sampler = PlanSampler(self.order, self.data.keys)

    def open(self, workers):
        self.loader = DataLoader(self.data, batch_sampler=self.sampler, collate_fn=whole,
                                 num_workers=workers, persistent_workers=True)

    def epoch(self, batches):
        self.order.batches = batches
        return iter(self.loader)


class ByDevice:
    """os2g's DeviceLoader: as many batches under way as others have workers."""

    def __init__(self, client, place, keys):
        from os2g.torch import MapDataset

        os.environ["OS2G_SOCKET"], bucket = place.split(",")
        self.data = MapDataset.from_objects(f"s3://{bucket}/{key}" for key in keys)
        self.order = Order()
        self.plan = client == "gdd_plan"
        self.loader = None

    def open(self, workers):
        from os2g.torch import DeviceLoader

        self.loader = DeviceLoader(self.data, batch_sampler=self.order, prefetch=workers,
                                   plan=self.plan, shape=SHAPE)

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
            "came": came, "digests": found}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client")
    parser.add_argument("place")
    parser.add_argument("keys", help="a file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with open(args.keys, encoding="utf-8") as file:
        keys = file.read().splitlines()
    kind = ByDevice if args.client.startswith("gdd") else ByWorkers
    loader = kind(args.client, args.place, keys)
    for line in sys.stdin:
        request = json.loads(line)
        if "open" in request:
            loader.open(request["open"]["workers"])
            answer = epoch(loader, request["open"]["warm"], 0, False)
        else:
            answer = epoch(loader, request["epoch"], request["step"], request["digests"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
