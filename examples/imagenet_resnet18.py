#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet18 on pictures in object storage, read in one of several ways:

    --client files        --data /mnt/train           any mount (s3fs, rclone, os2g) or local files
    --client plan         --data /mnt/train           a mount of os2g's, the epoch's order declared
    --client s3connector  --data s3://bucket/train/   the S3 Connector for PyTorch
    --client gdd          --data s3://bucket/train/   batches that os2g lands in (GPU) memory

Labels are the directories' names. Under torchrun each rank has its share. make_images.py makes data;
--kind says which. --model none only loads. --report FILE writes what was measured; of several ranks,
each writes FILE.RANK."""

import argparse
import hashlib
import io
import itertools
import json
import os
import pathlib
import resource
import time

import torch
import torch.distributed
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SHAPE = (3, 224, 224)


def normal(pictures):
    """Bytes of a batch to what a network takes."""
    mean = torch.tensor([0.485, 0.456, 0.406], device=pictures.device)[:, None, None]
    deviation = torch.tensor([0.229, 0.224, 0.225], device=pictures.device)[:, None, None]
    return (pictures.float() / 255 - mean) / deviation


def decode(kind, data):
    """One picture: of the bytes of an object, a tensor as it is in the batch."""
    if kind == "tensors":
        return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(SHAPE)
    import PIL.Image
    from torchvision.transforms import functional

    picture = PIL.Image.open(io.BytesIO(data)).convert("RGB")
    return functional.pil_to_tensor(functional.center_crop(functional.resize(picture, 256), 224))


def labels_of(keys):
    """The class of each key, and how many there are."""
    names = [os.fspath(key).split("/")[-2] for key in keys]
    classes = {name: number for number, name in enumerate(sorted(set(names)))}
    return [classes[name] for name in names], len(classes)


class Files(Dataset):
    """Pictures below a directory."""

    def __init__(self, args):
        self.paths = sorted(str(p) for p in pathlib.Path(args.data).glob("*/*"))
        if not self.paths:
            raise SystemExit(f"{args.data}: no CLASS/PICTURE there")
        self.labels, self.classes = labels_of(self.paths)
        self.kind = args.kind

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            return decode(self.kind, file.read()), self.labels[index]


class Connector(Dataset):
    """Pictures by way of s3torchconnector."""

    def __init__(self, args):
        from s3torchconnector import S3MapDataset

        self.objects = S3MapDataset.from_prefix(args.data, region=args.region, endpoint=args.endpoint)
        self.labels, self.classes = labels_of(
            self.objects[i].key for i in range(len(self.objects)))
        self.kind = args.kind

    def __len__(self):
        return len(self.objects)

    def __getitem__(self, index):
        return decode(self.kind, self.objects[index].read()), self.labels[index]


def by_workers(args, rank, ranks):
    """torch's own loader over files or the Connector."""
    data = Connector(args) if args.client == "s3connector" else Files(args)
    sampler = DistributedSampler(data, ranks, rank, seed=args.seed)
    if args.client == "plan":
        from os2g.torch import PlanSampler

        sampler = PlanSampler(sampler, data.paths)
    loader = DataLoader(data, args.batch, sampler=sampler, num_workers=args.workers,
                        pin_memory=args.device != "cpu")
    return loader, sampler.set_epoch, data.classes


def by_os2g(args, rank, ranks):
    """Batches land where they are wanted; no worker processes."""
    from os2g.torch import DeviceLoader, MapDataset

    data = MapDataset.from_prefix(args.data, region=args.region, endpoint=args.endpoint)
    labels, classes = labels_of(data.keys)
    tensors = args.kind == "tensors"

    def ready(batch):
        pictures = batch.samples if tensors else torch.stack(
            [decode(args.kind, bytes(batch[i].numpy())) for i in range(len(batch))])
        return pictures, torch.tensor(batch.labels)

    loader = DeviceLoader(data, args.batch, device=args.device if tensors else "cpu", shuffle=True,
                          seed=args.seed, num_replicas=ranks, rank=rank, labels=labels, decode=ready,
                          shape=SHAPE if tensors else None)
    return loader, loader.set_epoch, classes


# Who makes a client's loader, its set_epoch, and counts its classes.
CLIENTS = {"files": by_workers, "plan": by_workers, "s3connector": by_workers, "gdd": by_os2g}


def network(args, classes, ranks):
    if args.model == "none":
        return None
    import torchvision.models

    torch.manual_seed(args.seed)
    model = torchvision.models.resnet18(num_classes=classes).to(args.device)
    if ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    return model


class Meter:
    """What an epoch took. Waiting and loading: of asking the loader for batches, and of its workers."""

    def __init__(self):
        self._began, self._cpu, self._children = time.monotonic(), time.process_time(), self._workers()
        self.samples, self.losses, self.digests = 0, [], []
        self._waited = self._loading = 0

    @staticmethod
    def _workers():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def batches(self, loader, count):
        """So many of the loader's batches, all for None."""
        began, cpu = time.monotonic(), time.process_time()
        batches = itertools.islice(loader, count)
        while True:
            batch = next(batches, None)
            self._waited += time.monotonic() - began
            self._loading += time.process_time() - cpu
            if batch is None:
                return
            self.samples += len(batch[1])
            yield batch
            began, cpu = time.monotonic(), time.process_time()

    def digest(self, pictures, labels):
        """Of each sample of a batch, the same whatever brought it."""
        for picture, label in zip(pictures.cpu().contiguous().numpy(), labels.cpu().numpy()):
            self.digests.append(hashlib.sha256(picture.tobytes() + label.tobytes()).hexdigest())

    def report(self):
        seconds, workers = time.monotonic() - self._began, self._workers() - self._children
        return {"samples": self.samples, "seconds": seconds, "rate": self.samples / seconds,
                "waited_s": self._waited, "cpu_s": time.process_time() - self._cpu + workers,
                "loading_cpu_s": self._loading + workers, "losses": self.losses,
                "digests": self.digests}


def step(model, optimizer, pictures, labels):
    loss = torch.nn.functional.cross_entropy(model(normal(pictures)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def train(args, rank, ranks):
    """A report of each epoch."""
    loader, set_epoch, classes = CLIENTS[args.client](args, rank, ranks)
    model = network(args, classes, ranks)
    optimizer = torch.optim.SGD(model.parameters(), args.rate, momentum=0.9) if model else None
    reports = []
    for epoch in range(args.epochs):
        set_epoch(epoch)
        meter = Meter()
        for pictures, labels in meter.batches(loader, args.batches):
            if args.digests:
                meter.digest(pictures, labels)
            if model is not None:
                pictures, labels = pictures.to(args.device), labels.to(args.device)
                meter.losses.append(step(model, optimizer, pictures, labels))
        done = meter.report()
        reports.append(done)
        loss = f", loss {meter.losses[0]:.3f} to {meter.losses[-1]:.3f}" if meter.losses else ""
        print(f"epoch {epoch}: {done['samples']} samples, {done['rate']:.0f} a second{loss}", flush=True)
    return reports


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", choices=CLIENTS, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--kind", choices=("tensors", "jpeg"), default="tensors")
    parser.add_argument("--model", choices=("resnet18", "none"), default="resnet18")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--batches", type=int, help="of each epoch; default all")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.005, help="of learning")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--endpoint")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--report", metavar="FILE", help="JSON: time, CPU and losses of each epoch")
    parser.add_argument("--digests", action="store_true", help="of each sample, in the report")
    args = parser.parse_args()

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        torch.distributed.init_process_group("gloo" if args.device == "cpu" else "nccl")
        if args.device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rank = int(os.environ.get("RANK", "0"))
    epochs = train(args, rank, ranks)
    if args.report:
        file = f"{args.report}.{rank}" if ranks > 1 else args.report
        pathlib.Path(file).write_text(json.dumps({"rank": rank, "ranks": ranks, "epochs": epochs}))


if __name__ == "__main__":
    main()
