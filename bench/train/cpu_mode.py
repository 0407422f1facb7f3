# SPDX-License-Identifier: Apache-2.0
"""The cpu mode: ResNet18 for real. The host's core decodes, computes forward and backward, and does what
a client does there. The trainer is examples/imagenet_resnet18.py, with one epoch of few samples.

rate, seconds       of the epoch, its workers' start included
host_cpu_s          trainer and workers in the epoch, and the daemon, if it is there, since the trainer
                    was started (so with listing)
device_cpu_s        likewise
loading_cpu_s       what is left of both without the training: batches as the model takes them, that is
                    with decoding, which is the same for all
digest              one over the samples in the order in which the model was given them; with WebDataset,
                    whose order is its own, over the samples' sorted digests, as digest_sorted of all

A run fails when a client has brought other bytes or another order than the rest, or when the loss does
not fall.
"""

import contextlib
import hashlib
import json
import pathlib
import resource
import statistics
import subprocess
import tempfile

import stores
from measure import ROOT, build, show

from . import contenders, environment
from .accelerator import LATENCY, Setting
from .copies import Copy, shard

KINDS = ("jpeg", "tensors")
OWN_ORDER = ("webdataset",)

EXAMPLE = ROOT / "examples" / "imagenet_resnet18.py"
WITH_SHARDS = pathlib.Path(__file__).with_name("webdataset_resnet18.py")
# So few steps must show that the network learns: two classes, and a rate at which it does steadily.
CLASSES, RATE = 2, 0.002
LIMIT_S = 600


class Data:
    """The two kinds of files below a directory that the store serves, and their shards."""

    def __init__(self, top, samples, batch):
        self.top, self.samples, self.batch = pathlib.Path(top), samples, batch

    def make(self, kind):
        subprocess.run([environment.python(), ROOT / "examples" / "make_images.py", self.top / kind,
                        "--kind", kind, "--images", str(self.samples), "--classes", str(CLASSES)],
                       check=True)
        files = sorted((self.top / kind).glob("*/*"), key=lambda file: file.name)  # classes take turns
        place = self.top / f"{kind}-shards"
        place.mkdir()
        for number, first in enumerate(range(0, self.samples, self.batch)):
            members = []
            for file in files[first:first + self.batch]:
                members.append((file.name, file.read_bytes()))
                members.append((f"{file.stem}.cls", str(int(file.parent.name[1:])).encode()))
            (place / f"{number:06d}.tar").write_bytes(shard(members))

    def shards(self, endpoint, kind):
        last = -(-self.samples // self.batch) - 1
        return f"pipe:curl -s -f {endpoint}/{kind}-shards/{{000000..{last:06d}}}.tar"

    def warm(self):
        """Into the page cache: starting a client drops it, and the store shall not need the disk."""
        for file in self.top.rglob("*.*"):
            file.read_bytes()


def command(contender, mount, store, data, kind, workers):
    """How the trainer is called."""
    client, trainer = contender.job, [EXAMPLE]
    if client == "webdataset":
        place, trainer = data.shards(store.endpoint, kind), [WITH_SHARDS, str(CLASSES)]
    elif client in ("s3connector", "gdd"):
        place = f"s3://{kind}/"
    else:
        place = mount.path if mount else data.top / kind
    return [environment.python(), "-W", "ignore::UserWarning", *trainer, "--client", client,
            "--data", place, "--endpoint", store.endpoint, "--kind", kind, "--device", "cpu",
            "--batch", str(data.batch), "--workers", str(workers), "--rate", str(RATE), "--digests"]


def train(contender, mount, store, sides, words):
    """One epoch; the trainer's report, what the sides used, and how many requests that took."""
    env = dict(store.env(), PYTHONPATH=str(build() / "python"), OMP_NUM_THREADS="1")
    if contender.mount is contenders.Export:
        env["OS2G_SOCKET"] = str(mount.path)
    store.reset_counters()
    before = {name: getattr(sides, name).cpu_seconds() for name in sides.NAMES}
    trainers = cpu_of_children()
    with tempfile.NamedTemporaryFile("r", prefix="os2g-bench-report-") as report:
        subprocess.run([*words, "--report", report.name], check=True, stdout=subprocess.DEVNULL,
                       env=env, timeout=LIMIT_S, preexec_fn=getattr(sides, contender.trainer).enter)
        epoch = json.load(report)["epochs"][0]
    used = {name: getattr(sides, name).cpu_seconds() - cpu for name, cpu in before.items()}
    # the trainer's own start and end are not what is asked for: the rest of its side is the daemon
    used[contender.trainer] = max(0, used[contender.trainer] - (cpu_of_children() - trainers))
    return epoch, used, store.counters()["requests_total"]


def cpu_of_children():
    """Of all that were waited for, with those that they have waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def digest(parts):
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def row(client, workers, epoch, used, requests):
    """What is told of an epoch. used: CPU seconds of each side without the trainer's."""
    daemon = used["host"] + used["both"]
    losses, samples = epoch["losses"], epoch["digests"]
    some = max(1, len(losses) // 3)
    return {
        "rate": epoch["rate"], "seconds": epoch["seconds"], "workers": workers,
        "host_cpu_s": epoch["cpu_s"] + daemon, "device_cpu_s": used["device"],
        "total_cpu_s": epoch["cpu_s"] + daemon + used["device"],
        "loading_cpu_s": epoch["loading_cpu_s"] + daemon + used["device"], "requests": requests,
        "loss_first": statistics.mean(losses[:some]), "loss_last": statistics.mean(losses[-some:]),
        "digest": digest(sorted(samples) if client in OWN_ORDER else samples),
        "digest_sorted": digest(sorted(samples)),
    }


def wrong(rows):
    """What the rows of a kind of data show that must not be."""
    for client, found in rows.items():
        if not found["loss_last"] < found["loss_first"]:
            yield (f"{client}: the loss does not fall: {found['loss_first']:.3f} in the first steps, "
                   f"{found['loss_last']:.3f} in the last")
    same_order = [client for client in rows if client not in OWN_ORDER]
    for figure, what, clients in (("digest_sorted", "samples", list(rows)),
                                  ("digest", "order", same_order)):
        for client in clients[1:]:
            if rows[client][figure] != rows[clients[0]][figure]:
                yield f"{client}: not the {what} that {clients[0]} has"


def run(sides, samples=64, batch=8, kinds=KINDS, clients=contenders.EVERY, workers=4):
    """({kind: {client: row}}, the setting): each client trains on the same samples of each kind."""
    result, found = {}, []
    with contextlib.ExitStack() as stack:
        top = stack.enter_context(tempfile.TemporaryDirectory(prefix="os2g-bench-"))
        data = Data(top, samples, batch)
        for kind in kinds:
            data.make(kind)
        store = stack.enter_context(stores.development([], "--data", top, "--latency", LATENCY,
                                                       bucket=kinds[0]))
        sides.store.admit(store.server.pid)
        setting = Setting(sides, store, data, samples, batch)
        for kind in kinds:
            rows = result[kind] = {}
            for contender in clients:
                told = one(contender, store.on(kind), data, sides, kind, workers)
                rows[contender.name] = told
                setting.records.append({"what": kind, "client": contender.name, **told})
                show(f"{kind} {contender.name}",
                     **{figure: value for figure, value in told.items() if "digest" not in figure})
            found += [f"{kind}: {text}" for text in wrong(rows)]
    if found:
        raise RuntimeError("\n".join(found))
    return result, setting


def one(contender, store, data, sides, kind, workers):
    """A client's row; its daemon is new."""
    with contextlib.ExitStack() as stack:
        mount = None
        if contender.mount is not None and not issubclass(contender.mount, Copy):
            mount = stack.enter_context(contender.mount(
                store, *contender.options, side=getattr(sides, contender.daemon)))
        data.warm()
        if contender.job == "gdd":
            workers = 0
        words = command(contender, mount, store, data, kind, workers)
        return row(contender.name, workers, *train(contender, mount, store, sides, words))
