# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: programs, CPU of processes, medians, dropping caches."""

import contextlib
import itertools
import json
import os
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
GIB = 1 << 30
MIB = 1 << 20
TICK = os.sysconf("SC_CLK_TCK")


def build():
    return pathlib.Path(os.environ["OS2G_BUILD"])


def program(name):
    return str(build() / "bench" / name)


def run_json(*command, timeout=300):
    """Runs a program of bench/ that prints one line of JSON."""
    out = subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE,
                         timeout=timeout, text=True).stdout
    return json.loads(out.splitlines()[-1])


def raw(*args):
    return run_json(program("raw"), *args)


def reader(*args):
    return run_json(program("reader"), *args)


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")


def descendants(pid):
    """pid and the processes below it that still run."""
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += descendants(int(child))
    return found


def cpu_seconds(pid):
    """User and system time so far of a process and all below it, those that have ended too."""
    ticks = 0
    for process in descendants(pid):
        with contextlib.suppress(OSError):
            stat = pathlib.Path(f"/proc/{process}/stat").read_text()
            ticks += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return ticks / TICK


def status_kib(pid, *fields):
    """The sum of some fields of /proc/PID/status over a process and all below it."""
    total = 0
    for process in descendants(pid):
        try:
            text = pathlib.Path(f"/proc/{process}/status").read_text()
        except FileNotFoundError:
            continue
        for line in text.splitlines():
            name, _, value = line.partition(":")
            if name in fields:
                total += int(value.split()[0])
    return total


median = statistics.median


def median_ratio(pairs):
    """The median of a/b over (a, b) measured side by side."""
    return statistics.median(a / b for a, b in pairs)


def paired(ours, peers, figure):
    """(ours, peer's) of each round; a peer that ran once stands beside every round of ours."""
    return [(a[figure], b[figure]) for a, b in zip(ours, itertools.cycle(peers))]


def show(label, **values):
    text = "  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}"
                     for k, v in values.items())
    print(f"{label:24} {text}", flush=True)
