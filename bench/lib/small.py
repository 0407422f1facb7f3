# SPDX-License-Identifier: Apache-2.0
"""small: objects of 100 KB, each read once, in random order, 8 threads, latency 10 ms.

The directory is known (listed) before the clock starts, for every mount. plan is os2g again, told the
order before. raw is the bare client on 64 connections.
"""

import random
import subprocess

import stores
from measure import build, median, median_ratio, paired, raw, reader, show
from clients import Os2g, Rclone, S3fs

THREADS, LATENCY, SIZE, OBJECTS = 8, 0.010, 100_000, 10_000


class Order:
    """The first n of a shuffled order, as files of names, for reader, raw and os2g prefetch."""

    def __init__(self, directory, bucket, n, seed):
        names = [f"small/{i:06d}.bin" for i in range(OBJECTS)]
        random.Random(seed).shuffle(names)
        self.n = n
        self.names, self.paths = directory / f"names-{n}-{seed}", directory / f"paths-{n}-{seed}"
        self.names.write_text("".join(f"{name}\n" for name in names[:n]))
        self.paths.write_text("".join(f"/{bucket}/{name}\n" for name in names[:n]))


def run_raw(store, order):
    r = raw("keys", store.address, order.paths, "--connections", 64)
    return {"fps": order.n / r["seconds"], "cpu_us_per_file": r["cpu_s"] / order.n * 1e6}


def run_mount(kind, store, order, plan=False):
    with kind(store) as mount:
        subprocess.run(["ls", "-U", mount.path / "small"], stdout=subprocess.DEVNULL, check=True)
        store.reset_counters()
        mount.restart_cpu()
        planner = None
        if plan:
            planner = subprocess.Popen([build() / "bin" / "os2g", "prefetch", str(mount.path),
                                        "--order", str(order.names), "--quiet"],
                                       stdout=subprocess.PIPE)
            planner.stdout.readline()  # the plan is set
        r = reader("files", mount.path, order.names, "--threads", THREADS)
        result = {"fps": order.n / r["seconds"], "cpu_us_per_file": mount.cpu() / order.n * 1e6,
                  "requests_per_file": store.counters()["requests_total"] / order.n}
        if planner:
            planner.communicate()
        if r["bytes"] != order.n * SIZE:
            raise RuntimeError(f"{kind.name}: {r['bytes']} bytes of {order.n * SIZE}")
    return result


def rounds(store, orders, ours, peers, label):
    got = {"raw": [], "os2g": [], "plan": [], "s3fs": [], "rclone": []}
    for i in range(ours):
        got["raw"].append(run_raw(store, orders["plan"]))
        got["os2g"].append(run_mount(Os2g, store, orders["os2g"]))
        got["plan"].append(run_mount(Os2g, store, orders["plan"], plan=True))
        if i < peers:
            got["s3fs"].append(run_mount(S3fs, store, orders["peers"]))
            got["rclone"].append(run_mount(Rclone, store, orders["peers"]))
        for name, runs in got.items():
            if len(runs) == i + 1:
                show(f"{label} {name}", **runs[-1])
    return got


def summary(got):
    result = {f"{name}_fps": median(r["fps"] for r in runs) for name, runs in got.items()}
    result["requests_per_file"] = max(r["requests_per_file"] for r in got["os2g"] + got["plan"])
    for name, peer in (("plan", "os2g"), ("plan", "raw"), ("plan", "s3fs"), ("os2g", "s3fs"),
                       ("plan", "rclone")):
        result[f"{name}_to_{peer}"] = median_ratio(paired(got[name], got[peer], "fps"))
    for name, runs in got.items():
        result[f"{name}_cpu_us"] = median(r["cpu_us_per_file"] for r in runs)
    return result


def main(quick):
    import pathlib
    import tempfile
    with tempfile.TemporaryDirectory(prefix="os2g-bench-") as top:
        counts = {"os2g": 2000, "plan": 8000, "peers": 800} if quick else \
                 {"os2g": 5000, "plan": 10000, "peers": 2000}
        orders = {k: Order(pathlib.Path(top), "bench", n, 1) for k, n in counts.items()}
        with stores.development([f"bench: small/%06d.bin {SIZE} x {OBJECTS}"],
                                "--latency", "10ms") as store:
            got = rounds(store, orders, 3 if quick else 5, 1 if quick else 5, "s3d")
        result = {"latency_s": LATENCY, "threads": THREADS, "raw_connections": 64, **summary(got)}
        if not quick:
            objects = {f"small/{i:06d}.bin": SIZE for i in range(2000)}
            names = list(objects)
            random.Random(2).shuffle(names)
            order = Order(pathlib.Path(top), "bench", 0, 2)
            order.n = len(names)
            order.names.write_text("".join(f"{n}\n" for n in names))
            order.paths.write_text("".join(f"/bench/{n}\n" for n in names))
            with stores.ceph(objects) as store:
                got = rounds(store, dict.fromkeys(orders, order), 5, 5, "ceph")
            result["ceph"] = summary(got)
    return result
