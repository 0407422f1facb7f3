# SPDX-License-Identifier: Apache-2.0
"""list: find -type f -size +0 over many objects in 100 directories, cold, latency 10 ms.

raw_list is the bare client listing the same prefixes one after the other on one connection, parsing
with the product's parser. heads counts the HEAD requests that ours made.
"""

import subprocess
import tempfile
import time

import stores
from measure import median, median_ratio, raw, show
from clients import Os2g, S3fs

DIRECTORIES = 100


def run_raw(store, prefixes):
    return {"seconds": raw("list", store.address, store.bucket, prefixes)["seconds"]}


def run_mount(kind, store, objects, timeout):
    with kind(store) as mount:
        store.reset_counters()
        start = time.monotonic()
        out = subprocess.run(["find", str(mount.path), "-type", "f", "-size", "+0"], check=True,
                             stdout=subprocess.PIPE, timeout=timeout).stdout
        seconds = time.monotonic() - start
        found = out.count(b"\n")
        if found != objects:
            raise RuntimeError(f"{kind.name}: find saw {found} of {objects} objects")
        counters = store.counters()
    return {"seconds": seconds, "heads": counters["requests"].get("HEAD", 0),
            "requests": counters["requests_total"]}


def main(quick):
    each = 200 if quick else 1000
    objects = DIRECTORIES * each
    got = {"raw": [], "os2g": [], "s3fs": []}
    with tempfile.NamedTemporaryFile("w", prefix="os2g-bench-") as prefixes, \
            stores.development([f"bench: d%03d/f%04d.bin 1K x {DIRECTORIES} x {each}"],
                               "--latency", "10ms") as store:
        prefixes.write("\n" + "".join(f"d{i:03d}/\n" for i in range(DIRECTORIES)))
        prefixes.flush()
        for i in range(3 if quick else 5):
            got["raw"].append(run_raw(store, prefixes.name))
            show("raw", **got["raw"][-1])
            got["os2g"].append(run_mount(Os2g, store, objects, 300))
            show("os2g", **got["os2g"][-1])
            if i == 0 or not quick:
                got["s3fs"].append(run_mount(S3fs, store, objects, 600))
                show("s3fs", **got["s3fs"][-1])
    return {"latency_s": 0.01, "objects": objects,
            "os2g_s": median(r["seconds"] for r in got["os2g"]),
            "raw_list_s": median(r["seconds"] for r in got["raw"]),
            "s3fs_s": median(r["seconds"] for r in got["s3fs"]),
            "os2g_to_raw": median_ratio([(o["seconds"], r["seconds"])
                                         for o, r in zip(got["os2g"], got["raw"])]),
            "heads": max(r["heads"] for r in got["os2g"])}
