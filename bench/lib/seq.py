# SPDX-License-Identifier: Apache-2.0
"""seq: one large object, front to back, by one reader with 1 MiB reads, no added latency.

raw is the bare client on 8 connections with ranges of 8 MiB, what os2g's stream uses too. nullfuse is
a FUSE server that answers from memory: with raw it makes the floor of what a mount's CPU can be.
CPU is seconds of the daemon (or of the bare client) per GiB; total_cpu adds the reader's.
"""

import stores
from measure import GIB, median, median_ratio, paired, raw, reader, show
from clients import NullFuse, Os2g, Rclone, S3fs

CONNECTIONS = 8


def run_raw(store, key, size):
    r = raw("get", store.address, f"/{store.bucket}/{key}", size, "--range", "8M",
            "--connections", CONNECTIONS)
    return {"gibps": r["bytes"] / GIB / r["seconds"], "cpu": r["cpu_s"] / (size / GIB)}


def run_mount(kind, store, key, size, *options):
    with kind(store, *options) as mount:
        r = reader("seq", mount.path / key)
        cpu = mount.cpu()
        if r["bytes"] != size:
            raise RuntimeError(f"{kind.name}: {r['bytes']} bytes instead of {size}")
    return {"gibps": size / GIB / r["seconds"], "cpu": cpu / (size / GIB),
            "total_cpu": (cpu + r["cpu_s"]) / (size / GIB)}


def run_null(size):
    # with the read-ahead that os2g asks for
    return run_mount(NullFuse, None, "big", size, "--size", str(size), "--read-ahead", "4M")


def rounds(store, key, size, ours, peers, label):
    """ours and peers: how many rounds; within a round they run one after the other."""
    got = {"raw": [], "null": [], "os2g": [], "s3fs": [], "rclone": []}
    for i in range(ours):
        got["raw"].append(run_raw(store, key, size))
        got["null"].append(run_null(size))
        got["os2g"].append(run_mount(Os2g, store, key, size))
        if i < peers:
            got["s3fs"].append(run_mount(S3fs, store, key, size))
            got["rclone"].append(run_mount(Rclone, store, key, size))
        for name, runs in got.items():
            if len(runs) == i + 1:
                show(f"{label} {name}", **runs[-1])
    return got


def summary(got):
    mid = {name: {k: median(r[k] for r in runs) for k in runs[0]} for name, runs in got.items()}
    cpu_floor = [(o["cpu"], r["cpu"] + n["cpu"])
                 for o, r, n in zip(got["os2g"], got["raw"], got["null"])]
    return {
        "raw_gibps": mid["raw"]["gibps"], "os2g_gibps": mid["os2g"]["gibps"],
        "s3fs_gibps": mid["s3fs"]["gibps"], "rclone_gibps": mid["rclone"]["gibps"],
        "raw_cpu": mid["raw"]["cpu"], "nullfuse_cpu": mid["null"]["cpu"],
        "os2g_cpu": mid["os2g"]["cpu"], "s3fs_cpu": mid["s3fs"]["cpu"],
        "os2g_total_cpu": mid["os2g"]["total_cpu"], "s3fs_total_cpu": mid["s3fs"]["total_cpu"],
        "rclone_cpu": mid["rclone"]["cpu"],
        "os2g_to_raw": median_ratio(paired(got["os2g"], got["raw"], "gibps")),
        "os2g_to_s3fs": median_ratio(paired(got["os2g"], got["s3fs"], "gibps")),
        "os2g_to_rclone": median_ratio(paired(got["os2g"], got["rclone"], "gibps")),
        "cpu_to_floor": median_ratio(cpu_floor),
        "cpu_to_s3fs": median_ratio(paired(got["os2g"], got["s3fs"], "cpu")),
    }


def main(quick):
    size = 2 * GIB if quick else 4 * GIB
    with stores.development([f"bench: big.bin {size}"]) as store:
        got = rounds(store, "big.bin", size, 3 if quick else 5, 1 if quick else 5, "s3d")
    result = {"connections": CONNECTIONS, "latency_s": 0, "bytes": size, **summary(got)}
    if not quick:
        with stores.ceph({"big.bin": GIB}) as store:
            got = rounds(store, "big.bin", GIB, 5, 5, "ceph")
        result["ceph"] = summary(got)
    return result
