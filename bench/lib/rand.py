# SPDX-License-Identifier: Apache-2.0
"""rand: reads of 4-256 KiB at unaligned places of a 4 GiB object, 8 threads, latency 10 ms.

amplification is the bytes that the store sent by the bytes that the kernel asked the mount for.
"""

import stores
from measure import GIB, MIB, median, median_ratio, paired, reader, show
from clients import Os2g, S3fs

THREADS = 8


def run_mount(kind, store, ops, seed):
    with kind(store) as mount:
        store.reset_counters()
        r = reader("rand", mount.path / "big.bin", "--ops", ops, "--threads", THREADS,
                   "--seed", seed)
        result = {"mibps": r["bytes"] / MIB / r["seconds"], "cpu_s": mount.cpu(),
                  "requests": store.counters()["requests_total"]}
        if kind is Os2g:
            asked = mount.status()["fuse"]["read_bytes"]
            result["amplification"] = store.counters()["object_bytes_out"] / asked
    return result


def main(quick):
    got = {"os2g": [], "s3fs": []}
    with stores.development([f"bench: big.bin {4 * GIB}"], "--latency", "10ms") as store:
        for i in range(3 if quick else 5):
            got["os2g"].append(run_mount(Os2g, store, 4000, i))
            show("os2g", **got["os2g"][-1])
            if i == 0 or not quick:
                # fewer: it fetches megabytes for each of them
                got["s3fs"].append(run_mount(S3fs, store, 200 if quick else 500, i))
                show("s3fs", **got["s3fs"][-1])
    return {"latency_s": 0.01, "threads": THREADS,
            "os2g_mibps": median(r["mibps"] for r in got["os2g"]),
            "s3fs_mibps": median(r["mibps"] for r in got["s3fs"]),
            "amplification": max(r["amplification"] for r in got["os2g"]),
            "os2g_to_s3fs": median_ratio(paired(got["os2g"], got["s3fs"], "mibps"))}
