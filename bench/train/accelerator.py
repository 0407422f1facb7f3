# SPDX-License-Identifier: Apache-2.0
"""The accelerator mode: how fast batches come, and how busy an accelerator is kept.

rate          samples a second when a step takes no time
utilisation   of an accelerator: the share of time in which it works, after the loader has filled up
min_step      the shortest step with a utilisation of 95 %
at 40 %       the epoch's length at the step that keeps a peer's accelerator 40 % busy

Each epoch that is measured gives a record (contenders.py); all that is told is made of these.
"""

import contextlib

import stores
import synthetic
from measure import median, show

from . import contenders
from .contenders import running
from .dataset import BUCKET, SAMPLE, Dataset
from .sides import Sides

LATENCY = "lognormal:10ms,0.5"
BUSY = 0.95
# A client that is faster than this, in samples a second, is measured over longer epochs.
FAST, LONGER = 400, 4


def utilisation(record):
    """Of the steps behind those whose batches were fetched before the first step began."""
    came, step = record["came"], record["step_s"]
    skip = min(2 * record["workers"], len(came) // 2)
    return (len(came) - skip) * step / (record["seconds"] - came[skip])


class Measure:
    """What is asked of a contender that is up. records: of all that was measured so far."""

    def __init__(self, up, samples, batch, records, **labels):
        self._up, self._samples, self._batch = up, samples, batch
        self._records, self._labels = records, labels

    def epoch(self, what, samples, step=0.0):
        record = {"what": what, **self._labels, **self._up.epoch(samples, step)}
        record["utilisation"] = utilisation(record)
        self._records.append(record)
        return record

    def search_workers(self, most):
        """Doubles the workers until that brings less than 5 %; opens with those; the rate."""
        best, best_rate, workers = None, 0, 4
        while workers <= most:
            self._up.open(workers, self._batch // 2)  # each has several batches
            rate = self.epoch("search", self._samples // 2)["rate"]
            if rate < 1.05 * best_rate:
                break
            best, best_rate, workers = workers, rate, 2 * workers
        self._up.open(best, self._batch)
        return best_rate

    def rate(self, longer):
        """At step time zero. CPU and requests are those of so many samples as an epoch has."""
        times = LONGER if longer else 1
        record = self.epoch("rate", times * self._samples)
        return {"rate": record["rate"], "workers": record["workers"],
                **{k: record[k] / times
                   for k in ("host_cpu_s", "device_cpu_s", "total_cpu_s", "requests")}}

    def shortest_step(self, rate, probes):
        """Bisection between a little less and well more than the loader's own pace."""
        low, high = 0.8 * self._batch / rate, 1.6 * self._batch / rate
        for _ in range(probes):
            step = (low * high) ** 0.5
            if self.epoch("min_step", self._samples, step)["utilisation"] >= BUSY:
                high = step
            else:
                low = step
        return high


def check_bytes(up, samples):
    """A pass in which every byte is compared."""
    up.open(4, samples // 4)
    _, found = up.epoch(samples, digests=True)
    for key, digest in found.items():
        if digest != synthetic.digest(BUCKET, key, SAMPLE):
            raise RuntimeError(f"{up.contender.name}: wrong bytes of {key}")


@contextlib.contextmanager
def development(data, sides, *options, **more):
    with stores.development([data.synthetic], "--latency", LATENCY, *options, **more) as store:
        sides.store.admit(store.server.pid)
        yield store


PEERS = ("s3fs", "s3connector")


def compare(clients, data, sides, store, records, samples, batch, most_workers, probes, **labels):
    """Each client's rate, CPU and shortest step, and all of them at the steps that keep the peers'
    accelerators 40 % busy."""
    result = {}
    with contextlib.ExitStack() as stack:
        measures = {}
        for contender in clients:
            up = stack.enter_context(running(contender, store, data, sides))
            check_bytes(up, 64)
            measure = measures[contender.name] = Measure(up, samples, batch, records, **labels)
            row = measure.rate(measure.search_workers(most_workers) > FAST)
            row["min_step_ms"] = 1e3 * measure.shortest_step(row["rate"], probes)
            result[contender.name] = row
            show(contender.name, **row)
        for peer in PEERS:
            step = 0.4 * batch / result[peer]["rate"]
            at = {name: measure.epoch(f"at_{peer}_40", samples, step)["seconds"]
                  for name, measure in measures.items()}
            result[f"at_{peer}_40"] = at
            show(f"at_{peer}_40", **at)
    return result


def quick():
    data, records = Dataset(256), []
    with Sides() as sides, development(data, sides) as store:
        return compare(contenders.ALL, data, sides, store, records, samples=640, batch=16,
                       most_workers=16, probes=3)
