# SPDX-License-Identifier: Apache-2.0
"""docs/results.md, from the results: no figure and no statement about one is written by hand."""

import json
import textwrap

from dataset import PER_CLASS, SAMPLE

from . import tables, verdicts
from .markdown import NONE, change, listed, number, table, times
from .results import CLIENTS

STORES = {"os2g-s3d": "os2g-s3d", "ceph": "Ceph's gateway"}


def latencies(results):
    """Those of the drawn delays that the sections had."""
    return sorted({s.raw["latency"] for s in results.sections.values() if s.raw.get("latency")})


def head(results):
    delays = listed(f"`{text}`" for text in latencies(results)) or "none"
    yield "# Training from object storage on an emulated DPU"
    yield "<!-- written by bench/train/report.py from bench/results/train/; changes here are lost -->"
    yield """\
The experiment of OS2G's authors (Jin et al., ASPLOS 2025, doi 10.1145/3676641.3716265) on what can be had
without their hardware: how fast batches come from object storage, and what CPU that takes, with OS2G and
with the clients in use today. Everything here is written by `bench/train/report.py` from the raw data in
`bench/results/train/`, which has every epoch that was measured."""
    yield "## What is emulated, and what is not"
    yield "**There is no DPU, no GPU and no network in these figures.**"
    yield table(["in the paper", "here"], [
        ["the DPU's cores",
         "one core of the same machine, in a control group of its own (the *device*); as fast as "
         "the host's, but where it is throttled ([a weaker device](#a-weaker-device))"],
        ["the host", "one other core (the *host*): the training job, and clients that are not offloaded"],
        ["GPU memory", "host memory that is registered with the daemon, as GPU memory would be"],
        ["the GPU at work",
         "accelerator mode: sleep, for the same time each step; cpu mode: ResNet18 for real, on the host's core"],
        ["object storage",
         "`os2g-s3d` on the same machine, with the first byte of an answer after a delay that is "
         f"drawn (median and spread: {delays}); or Ceph's gateway, where it says so"],
        ["the network", "loopback: no card, no distance, no loss"],
        ["host to DPU: virtio over PCIe, DMA",
         "memory that two processes share: a vhost-user socket (GDD) or the kernel's FUSE (mounts)"],
    ], words=2)
    yield """\
The store runs on the two cores, too. It goes before host and device, as if it were on a machine of its
own; a client that is fast enough to need what the store leaves looks slower than it is. Loopback does part
of the receiving in the sender's context, where it is counted as the store's, for every client alike."""
    yield """\
Not emulated are the clients, which are the programs that people run, in the versions below; PyTorch's
`DataLoader`; S3's protocol with its signatures; the kernel's FUSE; and the CPU time, which is what the kernel
counted for each side. What can be carried over to other machines is how clients compare, not a figure by
itself; how a DPU and a GPU do has not been measured."""


def store(section):
    name = section.raw.get("store")
    return STORES.get(name, name or NONE)


def machine(results):
    yield "## The machine"
    machines, versions = {}, {}
    for section in results.sections.values():
        rest = {k: v for k, v in section.machine.items() if k != "versions"}
        machines.setdefault(json.dumps(rest, sort_keys=True), rest)
        for name, version in (section.machine.get("versions") or {}).items():
            versions.setdefault(name, set()).add(str(version))
    if not machines:
        yield "No section was run."
        return
    yield table(["CPU", "system", "kernel", "cores", "memory, GiB"],
                [[m.get("cpu", NONE), m.get("os", NONE), m.get("kernel", NONE), m.get("cores", NONE),
                  number(m.get("memory_gib"))] for m in machines.values()], words=3)
    yield "Versions: " + "; ".join(f"{name} {', '.join(sorted(found))}"
                                   for name, found in sorted(versions.items())) + "."
    yield table(["section", "date", "revision", "store", "latency", "samples", "batch", "epochs measured"],
                [[f"[{s.name}](../bench/results/train/{s.name}.json)", s.raw.get("date", NONE),
                  s.raw.get("revision") or NONE, store(s) + (", TLS" if s.raw.get("tls") else ""),
                  s.raw.get("latency") or NONE, number(s.samples), number(s.raw.get("batch")),
                  len(s.records)] for s in results.sections.values()], words=5)


METHOD = f"""## How it was measured

- **Samples** in the accelerator mode are ready tensors of {SAMPLE:,} bytes, in directories of {PER_CLASS}. Each epoch
  takes the next directories of a set that is larger than any cache, shuffled, with the kernel's caches dropped,
  so that every client fetches every sample. In a separate pass every byte that a client delivers is compared.
- **Workers**: each client gets as many as serve it best; they are doubled until that brings less than 5 %. GDD
  has no workers, but as many batches under way.
- **Samples/s** is that of an epoch whose steps take no time; for fast clients of a longer one, behind another of
  that length, for what memory costs that is touched for the first time would be a good part of it. Its **CPU**
  is what the kernel counted for all processes of a side, and is told for 1,000 samples. *Busy cores* has the
  store's CPU in it, too: where it comes to what the machine has, the machine was the limit.
- **Utilisation** is the part of the time in which the accelerator works, over whole turns of the workers: what
  was fetched before its first step does not count, nor where in a burst of batches an epoch ends. The
  **shortest step** is the shortest time of a step with a utilisation of 95 %, found by bisection.
- **At 40 %**: a step's time is chosen so that the peer's accelerator is busy for 40 % of the time at the
  peer's own rate; all clients run with it.
- Clients are measured one after the other, in the same run and against the same store; "×" is a ratio within a
  section."""


def claim(results):
    yield "## What it must show"
    words = {True: "yes", False: "**no**"}
    rows = []
    for v in verdicts.ratios(results):
        wanted = "reported" if v.threshold is None else f"{'≥' if v.at_least else '≤'} {v.threshold:g} ×"
        measured = NONE if v.measured is None else f"{times(v.measured)} ×"
        said = words.get(v.holds, NONE) if v.measured is not None else "not run"
        rows.append([v.what, v.against, wanted, measured, said])
    for name, label in tables.DATA.items():
        rows += training_rows(results, name, label, words)
    yield table(["comparison", "against", "must be", "measured", "holds"], rows, words=2)
    held, missed, absent = (sum(row[-1] == word for row in rows) for word in ("yes", "**no**", "not run"))
    yield f"Of these {held} hold, {missed} do not, and {absent} were not run."
    yield from beside_the_paper(results)


def training_rows(results, name, label, words):
    section, every = results.get("cpu"), "with every client"
    rows = section.result.get(name) if section else None
    falls = [f"ResNet18, {label}: loss falls", "", every]
    alike = [f"ResNet18, {label}: same seed, same batches", "", every]
    if not rows:
        return [[*falls, NONE, "not run"], [*alike, NONE, "not run"]]
    risen, other, unknown = ([CLIENTS[c] for c in found] for found in verdicts.training(rows))
    own = [CLIENTS[name] for name in verdicts.own_order(rows)]
    same = f"{every}; of {listed(own)} the same samples" if own else every
    return [[*falls, f"not with {listed(risen)}" if risen else every, words[not risen]],
            [*alike, f"not with {listed(other + unknown)}" if other + unknown else same,
             words[not other + unknown]]]


def beside_the_paper(results):
    section, rows = results.get("compare"), []
    for peer, label in verdicts.PEERS.items():
        paper = verdicts.PAPER[peer]
        rows.append([label, change(1 + paper["time"]), change(verdicts.epoch_time(section, peer, "gdd")),
                     change(1 + paper["cpu"]), change(results.ratio("compare", "host_cpu_s", "gdd", peer)),
                     change(results.ratio("compare", "total_cpu_s", "gdd", peer))])
    yield """\
Beside the figures that the paper gives for ResNet18 on its hardware, from which the thresholds of time come.
Time here is the epoch's at the step that keeps the peer's accelerator 40 % busy, CPU that of loading alone:"""
    yield table(["GDD against", "time, paper", "time, here", "CPU, paper", "host CPU, here",
                 "host and device CPU, here"], rows)


def write(results):
    """The whole document."""
    parts = [*head(results), *machine(results), METHOD, *claim(results)]
    for section in tables.ALL:
        parts += section(results)
    return "\n\n".join(map(wrapped, parts)) + "\n"


def wrapped(part):
    """Paragraphs in lines; what has a form of its own as it is."""
    return part if part[0] in "#|!<" else textwrap.fill(part, 110, break_long_words=False,
                                                        break_on_hyphens=False)
