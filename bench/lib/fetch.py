# SPDX-License-Identifier: Apache-2.0
"""fetch: objects of 100 KB, each fetched whole by its key, no added latency.

os2g bench keeps 64 FETCHes of libos2g under way, into registered host memory, and waits for 8 ends at a
time; raw is the bare client on 64 connections. Both ask unsigned, for the same objects in the same
order. CPU is in microseconds an object.
"""

import pathlib
import tempfile

import clients
import stores
from measure import build, median, median_ratio, paired, raw, run_json, show

SIZE, DEPTH = 100_000, 64


def run_raw(store, paths, n):
    r = raw("keys", store.address, paths, "--connections", DEPTH)
    return {"ops": n / r["seconds"], "cpu_us": r["cpu_s"] / n * 1e6}


def run_fetch(store, names, n):
    with clients.Os2g(store, "--no-sign-request") as mount:
        r = run_json(build() / "bin" / "os2g", "bench", mount.path, "--op", "fetch", "--list", names,
                     "--object-size", SIZE, "--depth", DEPTH, "--reap", DEPTH // 8, "--loops", 1, "--json",
                     "--device-pid", mount.pid)
    if r["bytes"] != n * SIZE or r["errors"] or r["bounced_bytes"]:
        raise RuntimeError(f"fetch: not what was asked for: {r}")
    return {"ops": r["ops_per_s"], "host_us": r["host_us_per_op"], "device_us": r["device_us_per_op"],
            "p50_us": r["latency_us"]["p50"], "p99_us": r["latency_us"]["p99"]}


def main(quick):
    n = 20_000 if quick else 50_000
    with tempfile.TemporaryDirectory(prefix="os2g-bench-") as top, \
            stores.development([f"bench: small/%06d.bin {SIZE} x {n}"]) as store:
        names, paths = pathlib.Path(top, "names"), pathlib.Path(top, "paths")
        names.write_text("".join(f"small/{i:06d}.bin\n" for i in range(n)))
        paths.write_text("".join(f"/bench/small/{i:06d}.bin\n" for i in range(n)))
        got = {"raw": [], "fetch": []}
        for _ in range(3 if quick else 5):
            got["raw"].append(run_raw(store, paths, n))
            got["fetch"].append(run_fetch(store, names, n))
            for name, runs in got.items():
                show(name, **runs[-1])
    return {"depth": DEPTH, "bytes_per_object": SIZE, "objects": n,
            "fetch_ops": median(r["ops"] for r in got["fetch"]),
            "raw_ops": median(r["ops"] for r in got["raw"]),
            "fetch_to_raw": median_ratio(paired(got["fetch"], got["raw"], "ops")),
            "host_us_per_op": median(r["host_us"] for r in got["fetch"]),
            "device_us_per_op": median(r["device_us"] for r in got["fetch"]),
            "raw_us_per_op": median(r["cpu_us"] for r in got["raw"]),
            "p50_us": median(r["p50_us"] for r in got["fetch"]),
            "p99_us": median(r["p99_us"] for r in got["fetch"])}
