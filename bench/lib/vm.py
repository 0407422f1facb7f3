# SPDX-License-Identifier: Apache-2.0
"""vm: a guest reads cached data with O_DIRECT from our virtio-fs device and from QEMU's own.

One guest (QEMU without KVM) has both: our export, and a directory of tmpfs that QEMU's virtiofsd
serves, each with a queue of 1,024. bar is the same data landing in the BAR of an ivshmem device,
through .os2g/gdd. Under TCG the guest's own copying is the limit, so what counts are the ratios. A
round is many short runs side by side, the fastest of which counts. device_cpu is seconds of CPU per GiB: of os2gd's processes, and of virtiofsd's.
"""

import contextlib
import pathlib
import tempfile

import stores
from clients import Os2g
from measure import GIB, MIB, ROOT, cpu_seconds, median, median_ratio, paired, show

FILE = 64 * MIB
BAR, DEPTH = 64 * MIB, 8
BLOCKS = {"1m": MIB, "4m": 4 * MIB}


def harness():
    """tests/system/vm.py, whose name is this module's too."""
    import importlib.util
    spec = importlib.util.spec_from_file_location("guest_vm", ROOT / "tests" / "system" / "vm.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Reader:
    """One way for the guest to get at the data."""

    def __init__(self, guest, pid, *command):
        self.guest, self.pid, self.command = guest, pid, command

    def run(self, block, total):
        before = cpu_seconds(self.pid)
        place = (DEPTH, total, 0) if self.command[0] == "gdd-stream" else (total,)
        middle = () if self.command[0] == "gdd-stream" else ("direct",)
        r = self.guest.run(*self.command, *middle, block, *place, timeout=300)
        return {"mibps": r["bytes"] / MIB / (r["ns"] / 1e9), "gib": r["bytes"] / GIB,
                "cpu": cpu_seconds(self.pid) - before}


@contextlib.contextmanager
def readers(store):
    vm = harness()
    why = vm.missing()
    if why:
        raise RuntimeError(why)
    with contextlib.ExitStack() as stack:
        top = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="os2g-bench-",
                                                                           dir="/dev/shm")))
        (top / "files").mkdir()
        (top / "files" / "big.bin").write_bytes(b"\x5a" * FILE)
        bar = vm.Memory(BAR)
        stack.callback(bar.close)
        bar.fill(0)  # every page is there from the start
        theirs = stack.enter_context(vm.Virtiofsd(top / "files"))
        ours = stack.enter_context(Os2g(store, "--memory", "256M", "--socket", top / "socket",
                                        "--gpu-memory", bar.path))
        guest = stack.enter_context(vm.Vm([(top / "socket", "os2g"), (theirs.socket, "theirs")],
                                          bar=bar))
        guest.run("mount", "os2g", "/mnt")
        guest.run("mount", "theirs", "/theirs")
        guest.run("gdd-open", "/mnt/.os2g/gdd")
        guest.run("gdd-lease", 0, DEPTH * max(BLOCKS.values()))
        yield {"os2g": Reader(guest, ours.pid, "read", "/mnt/big.bin"),
               "virtiofsd": Reader(guest, theirs.pid, "read", "/theirs/big.bin"),
               "bar": Reader(guest, ours.pid, "gdd-stream", "/mnt/big.bin")}


def round_of(ways, slices, total):
    """The ways in turns, many times; of each the fastest: what else the machine does only slows."""
    runs = {(name, size): [] for size in BLOCKS for name in ways}
    for _ in range(slices):
        for name, size in runs:
            runs[name, size].append(ways[name].run(BLOCKS[size], total))
    return {key: {"mibps": max(r["mibps"] for r in some),
                  "device_cpu": sum(r["cpu"] for r in some) / sum(r["gib"] for r in some)}
            for key, some in runs.items()}


def main(quick):
    rounds, slices, total = (3, 6, 64 * MIB) if quick else (5, 30, 128 * MIB)
    with stores.development([f"bench: big.bin {FILE}"]) as store, readers(store) as ways:
        for way in ways.values():
            way.run(MIB, 4 * FILE)  # from the third reading on the pool keeps it
        got = {(name, size): [] for size in BLOCKS for name in ways}
        for _ in range(rounds):
            for key, run in round_of(ways, slices, total).items():
                got[key].append(run)
                show(" ".join(key), **run)
    result = {"bytes": FILE, "block": MIB}
    for (name, size), runs in got.items():
        mid = {figure: median(r[figure] for r in runs) for figure in runs[0]}
        label = "" if size == "1m" else size + "_"
        result.update({f"{name}_{label}{figure}": value for figure, value in mid.items()})
    for size in BLOCKS:
        label = "" if size == "1m" else size + "_"
        result[f"{label}os2g_to_virtiofsd"] = median_ratio(
            paired(got["os2g", size], got["virtiofsd", size], "mibps"))
        result[f"{label}bar_to_os2g"] = median_ratio(
            paired(got["bar", size], got["os2g", size], "mibps"))
    return result
