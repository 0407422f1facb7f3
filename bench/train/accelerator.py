# SPDX-License-Identifier: Apache-2.0
"""The accelerator mode: how fast batches come, and how busy an accelerator is kept.

rate          samples a second when a step takes no time
utilisation   of an accelerator: the share of time in which it works
min_step      the shortest step with a utilisation of 95 %
at 40 %       the epoch's length at the step that keeps a peer's accelerator 40 % busy

Each epoch that is measured gives a record (contenders.py); all that is told is made of these.
"""

import contextlib

import stores
import synthetic
from measure import show

from . import contenders
from .contenders import running
from .dataset import BUCKET, SAMPLE, Dataset
from .sides import Sides

LATENCY = "lognormal:10ms,0.5"
BUSY = 0.95
PEERS = ("s3fs", "s3connector")
# A client that is faster than this, in samples a second, is measured over longer epochs.
FAST, LONGER = 400, 4


def utilisation(record):
    """Over whole turns of the workers, from each batch on that so many follow; None if that is none.
    Batches come in bursts, one of each worker: from one batch to the next of the same worker it takes
    as long as that worker needs, however the rest of them lie in between."""
    came, turn = record["came"], record["workers"]
    span = max(len(came) // turn - 1, 1) * turn
    took = [end - begin for begin, end in zip(came, came[span:])]
    return len(took) * span * record["step_s"] / sum(took) if took else None


class Measure:
    """What is asked of a contender that is up."""

    def __init__(self, up, setting):
        self._up, self._setting = up, setting
        self.fast = False

    def epoch(self, what, samples, step=0.0):
        record = {"what": what, **self._up.epoch(samples, step)}
        record["utilisation"] = utilisation(record)
        self._setting.records.append(record)
        return record

    def search_workers(self):
        """Doubles the workers until that brings less than 5 %, and opens the loader with those."""
        best, best_rate, workers = None, 0, 4
        while workers <= self._setting.most_workers:
            self._up.open(workers, 8)  # small, so that each worker has several
            rate = self.epoch("search", 256)["rate"]
            if rate > FAST:  # that was too short to tell
                rate = self.epoch("search", 1024)["rate"]
            if rate < 1.05 * best_rate:
                break
            best, best_rate, workers = workers, rate, 2 * workers
        self.fast = best_rate > FAST
        self._up.open(best, self._setting.batch)

    def rate(self):
        """At step time zero. CPU, requests and bytes are those of so many samples as an epoch has."""
        # what is read again was read two such epochs ago, and is in no cache any more
        most = len(self._setting.data.keys) // (3 * self._setting.samples)
        times = min(LONGER, most) if self.fast else 1
        if self.fast:  # memory that is touched for the first time would be a good part of so short an epoch
            self.epoch("warm", times * self._setting.samples)
        record = self.epoch("rate", times * self._setting.samples)
        parts = ("host_cpu_s", "device_cpu_s", "total_cpu_s", "store_cpu_s", "requests", "bytes")
        return {"rate": record["rate"], "workers": record["workers"],
                **{k: record[k] / times for k in parts if record[k] is not None}}

    def shortest_step(self, rate):
        """Between one that is kept up with and one that is not, around the loader's own pace, by
        bisection."""
        high = low = self._setting.batch / rate
        slowest = 20 * high
        if self._keeps_up(high):
            low = 0.8 * high
            while self._keeps_up(low):
                high, low = low, 0.8 * low
        else:
            high = 1.25 * low
            while not self._keeps_up(high):
                if high > slowest:
                    name = self._up.contender.name
                    raise RuntimeError(f"{name} never keeps an accelerator {BUSY:.0%} busy")
                low, high = high, 1.25 * high
        for _ in range(max(self._setting.probes, 2 if self.fast else 0)):
            step = (low * high) ** 0.5
            if self._keeps_up(step):
                high = step
            else:
                low = step
        return high

    def _keeps_up(self, step):
        """Of a fast client twice, as its epochs are short."""
        samples = max(self._setting.samples // (1 if self.fast else 2), self.two_turns())
        return all(self.epoch("min_step", samples, step)["utilisation"] >= BUSY
                   for _ in range(2 if self.fast else 1))

    def two_turns(self):
        """Samples of an epoch of which a utilisation can be told."""
        return 2 * self._up.workers * self._up.batch


def check_bytes(up, store, samples):
    """A pass in which every byte is compared; of batches so small that a worker uses memory again."""
    up.open(4, samples // 24)
    for key, digest in up.epoch(samples, digests=True)[1].items():
        if digest != store.digest(key):
            raise RuntimeError(f"{up.contender.name}: wrong bytes of {key}")


class Setting:
    """Sides, a store with the data set, and sizes: what measurements share. probes: bisections for the
    shortest step, of fast clients 2 at least. at_longer: so many times as long are epochs at a fast
    peer's 40 %, as its workers' first and last bursts would be a good part of them. records: of all
    epochs."""

    def __init__(self, sides, store, data, samples, batch, most_workers=16, probes=3, at_longer=LONGER):
        self.sides, self.store, self.data = sides, store, data
        self.samples, self.batch = samples, batch
        self.most_workers, self.probes = most_workers, probes
        self.at_longer = at_longer
        self.records = []

    @contextlib.contextmanager
    def measure(self, contender):
        """A contender whose bytes have been checked, with as many workers as it needs."""
        with running(contender, self.store, self.data, self.sides) as up:
            check_bytes(up, self.store, 192)
            measure = Measure(up, self)
            measure.search_workers()
            yield measure


@contextlib.contextmanager
def development(sides, classes=256, **options):
    """The data set on os2g-s3d, on its side."""
    data = Dataset(classes)
    with stores.development([data.synthetic], "--latency", LATENCY, **options) as store:
        sides.store.admit(store.server.pid)
        store.digest = lambda key: synthetic.digest(BUCKET, key, SAMPLE)
        yield store, data


@contextlib.contextmanager
def ceph(sides, classes=24):
    """The data set on Ceph's gateway, on the store's side."""
    data = Dataset(classes)
    with stores.ceph(dict.fromkeys(data.keys, SAMPLE), BUCKET, distinct=True) as store:
        for pid in store.pids():
            sides.store.admit(pid)
        store.digest = lambda key: store.digests[key].hex()
        yield store, data


def compare(setting, clients):
    """Each client's rate, CPU and shortest step, and all of them at the steps that keep the peers'
    accelerators 40 % busy."""
    result = {}
    with contextlib.ExitStack() as stack:
        measures = {}
        for contender in clients:
            measure = stack.enter_context(setting.measure(contender))
            row = measure.rate()
            row["min_step_ms"] = 1e3 * measure.shortest_step(row["rate"])
            measures[contender.name], result[contender.name] = measure, row
            show(contender.name, **row)
        for peer in PEERS:
            step = 0.4 * setting.batch / result[peer]["rate"]
            samples = setting.samples * (setting.at_longer if measures[peer].fast else 1)
            at = {name: measure.epoch(f"at_{peer}_40", samples, step)["seconds"]
                  for name, measure in measures.items()}
            result[f"at_{peer}_40"] = at
            show(f"at_{peer}_40", **at)
    return result


def quick():
    with Sides() as sides, development(sides) as (store, data):
        setting = Setting(sides, store, data, samples=1024, batch=32, probes=0, at_longer=1)
        return compare(setting, contenders.ALL)
