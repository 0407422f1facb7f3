# SPDX-License-Identifier: Apache-2.0
"""gdd: one object of 1 GiB into a registered region of host memory, no added latency.

gdd is os2g bench, a program on libos2g: 8 reads of 8 MiB under way, each to its place in the region.
raw is the bare client, on as many connections into memory of the same kind. fuse is a reader of the
same file through the mount. Memory of all sides is touched before the clock starts, and what gdd reads
has not been read before. CPU is in seconds per GiB: of the host (the program that wants the bytes, with
what the kernel does for it), of the device (os2gd), or both. The rows with tls have gdd and fuse on
TLS; the bare client has none.
"""

import clients
import stores
from measure import GIB, build, median, median_ratio, paired, raw, reader, run_json, show

CONNECTIONS, BLOCK, DEPTH = 8, "8M", 8
# of which the first is landed before the clock starts, so that the region is known to the device
KEYS = ["warm.bin", "big.bin"]


def run_raw(store, size):
    r = raw("get", store.address, f"/{store.bucket}/big.bin", size, "--range", BLOCK,
            "--connections", CONNECTIONS, "--in-place")
    return {"gibps": r["bytes"] / GIB / r["seconds"], "cpu": r["cpu_s"] / (size / GIB)}


def run_gdd(store, size):
    store.reset_counters()
    with clients.Os2g(store) as mount:
        r = run_json(build() / "bin" / "os2g", "bench", mount.path, "--op", "read", "--in-place",
                     "--key", "warm.bin", "--key", "big.bin", "--block-size", BLOCK, "--depth", DEPTH,
                     "--warm-up", size // (8 << 20), "--operations", size // (8 << 20), "--json",
                     "--device-pid", mount.pid)
    if r["bytes"] != size or r["errors"] or r["bounced_bytes"]:
        raise RuntimeError(f"gdd: not what was asked for: {r}")
    if store.counters()["object_bytes_out"] < len(KEYS) * size:
        raise RuntimeError("gdd: not all has come from the store")
    return {"gibps": r["gibps"], "host_cpu": r["host_cpu_s_per_gib"],
            "device_cpu": r["device_cpu_s_per_gib"], "total_cpu": r["total_cpu_s_per_gib"]}


def run_fuse(store, size):
    with clients.Os2g(store) as mount:
        r = reader("seq", mount.path / "big.bin")
        device = mount.cpu()
        if r["bytes"] != size:
            raise RuntimeError(f"fuse: {r['bytes']} bytes instead of {size}")
    gib = size / GIB
    return {"gibps": gib / r["seconds"], "host_cpu": r["cpu_s"] / gib, "device_cpu": device / gib,
            "total_cpu": (r["cpu_s"] + device) / gib}


def rounds(n, sides):
    """Each side once a round, one after the other."""
    got = {name: [] for name in sides}
    for _ in range(n):
        for name, run in sides.items():
            got[name].append(run())
            show(name, **got[name][-1])
    return got


def main(quick):
    n, size = (3 if quick else 5), GIB
    objects = "bench: " + "; ".join(f"{key} {size}" for key in KEYS)
    with stores.development([objects]) as store:
        got = rounds(n, {"raw": lambda: run_raw(store, size), "gdd": lambda: run_gdd(store, size),
                         "fuse": lambda: run_fuse(store, size)})
    with stores.development([objects], tls=True) as store:
        got |= rounds(1 if quick else n, {"gdd_tls": lambda: run_gdd(store, size),
                                          "fuse_tls": lambda: run_fuse(store, size)})
    result = {"connections": CONNECTIONS, "bytes": size}
    for name, runs in got.items():
        result |= {f"{name}_{figure}": median(r[figure] for r in runs) for figure in runs[0]}
    result["gdd_to_raw"] = median_ratio(paired(got["gdd"], got["raw"], "gibps"))
    result["device_cpu_to_raw"] = median_ratio(
        [(g["device_cpu"], r["cpu"]) for g, r in zip(got["gdd"], got["raw"])])
    for tls in ("", "_tls"):
        result[f"total_cpu_to_fuse{tls}"] = median_ratio(
            paired(got["gdd" + tls], got["fuse" + tls], "total_cpu"))
    return result
