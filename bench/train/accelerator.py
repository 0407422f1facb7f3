# SPDX-License-Identifier: Apache-2.0
"""The accelerator mode: how fast batches come, and how busy an accelerator is kept.

rate          samples a second when a step takes no time
utilisation   of an accelerator: the share of time in which it works, after the loader has filled up
min_step      the shortest step with a utilisation of 95 %
at 40 %       the epoch's length at the step that keeps a peer's accelerator 40 % busy
"""

import contextlib

import stores
import synthetic
from measure import median, show

from . import contenders
from .contenders import running
from .dataset import BUCKET, SAMPLE, Dataset
from .sides import Sides

BATCH = 32
LATENCY = "lognormal:10ms,0.5"
BUSY = 0.95


def utilisation(record):
    """Of the steps behind those whose batches were fetched before the first step began."""
    came, step = record["came"], record["step_s"]
    skip = min(2 * record["workers"], len(came) // 2)
    return (len(came) - skip) * step / (record["seconds"] - came[skip])


def search_workers(up, samples, most):
    """The number of workers from which twice as many bring less than 5 % more."""
    best, best_rate, workers = None, 0, 4
    while workers <= most:
        up.open(workers, BATCH // 4)
        rate = up.epoch(samples)["rate"]
        if rate < 1.05 * best_rate:
            break
        best, best_rate, workers = workers, rate, 2 * workers
    up.open(best, BATCH)
    return best


def rate(up, samples, rounds):
    """Epochs at step time zero: the record of the median one."""
    records = sorted((up.epoch(samples, seed=i) for i in range(rounds)), key=lambda r: r["rate"])
    return records[len(records) // 2]


def shortest_step(up, samples, at_full_rate, probes):
    """Bisection between a little less and well more than the loader's own pace."""
    pace = BATCH / at_full_rate
    low, high = 0.8 * pace, 1.8 * pace
    records = []
    for _ in range(probes):
        step = (low * high) ** 0.5
        records.append(up.epoch(samples, step))
        if utilisation(records[-1]) >= BUSY:
            high = step
        else:
            low = step
    return high, records


def check_bytes(up, samples):
    """A pass in which every byte is compared."""
    _, found = up.epoch(samples, digests=True)
    for key, digest in found.items():
        if digest != synthetic.digest(BUCKET, key, SAMPLE):
            raise RuntimeError(f"{up.contender.name}: wrong bytes of {key}")


@contextlib.contextmanager
def development(data, sides, *options, **more):
    with stores.development([data.synthetic], "--latency", LATENCY, *options, **more) as store:
        sides.store.admit(store.server.pid)
        yield store


def quick():
    samples = 1024
    clients = (contenders.S3FS, contenders.S3FS_ON_DEVICE, contenders.S3CONNECTOR, contenders.MOUNT,
               contenders.PLAN, contenders.GDD)
    data = Dataset(256)
    result, chosen = {}, {}
    with Sides() as sides, development(data, sides) as store:
        for contender in clients:
            with running(contender, store, data, sides) as up:
                chosen[contender] = search_workers(up, 384, 16)
                check_bytes(up, 64)
                slow = up.epoch(64)["seconds"] > 0.5
                r = rate(up, samples, 1 if slow else 5)
                step, _ = shortest_step(up, samples, r["rate"], 3)
            result[contender.name] = {
                **{k: r[k] for k in ("rate", "host_cpu_s", "device_cpu_s", "total_cpu_s", "requests",
                                     "workers")}, "min_step_ms": step * 1e3}
            show(contender.name, **result[contender.name])
        for peer in ("s3fs", "s3connector"):
            step = 0.4 * BATCH / result[peer]["rate"]
            at = {}
            for contender in clients:
                with running(contender, store, data, sides) as up:
                    up.open(chosen[contender], BATCH)
                    at[contender.name] = up.epoch(samples, step)["seconds"]
            result[f"at_{peer}_40"] = at
            show(f"at_{peer}_40", **at)
    return result
