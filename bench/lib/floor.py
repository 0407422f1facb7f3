# SPDX-License-Identifier: Apache-2.0
"""floor: the bare client against wrk, on small GETs of one object, one thread and 64 connections each.

It shows that bench/raw is a fair thing to be measured by: to_wrk is raw's rate by wrk's.
"""

import re
import subprocess
import tempfile

import stores
from measure import median, median_ratio, raw, show

CONNECTIONS, SIZES = 64, {"4k": 4096, "100k": 100_000}


def run_raw(store, key, requests):
    with tempfile.NamedTemporaryFile("w", prefix="os2g-bench-") as paths:
        paths.write(f"/{store.bucket}/{key}\n" * requests)
        paths.flush()
        r = raw("keys", store.address, paths.name, "--connections", CONNECTIONS)
    return r["requests"] / r["seconds"]


def run_wrk(store, key, seconds):
    out = subprocess.run(["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}",
                          f"{store.endpoint}/{store.bucket}/{key}"], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise RuntimeError(out)
    return float(re.search(r"Requests/sec:\s*([0-9.]+)", out)[1])


def main(quick):
    result = {"connections": CONNECTIONS, "latency_s": 0}
    spec = "bench: " + "; ".join(f"{name}.bin {size}" for name, size in SIZES.items())
    with stores.development([spec]) as store:
        for name, size in SIZES.items():
            pairs = []
            for _ in range(3 if quick else 5):
                a = run_raw(store, f"{name}.bin", 120_000 if size < 10_000 else 30_000)
                b = run_wrk(store, f"{name}.bin", 2)
                show(name, raw=a, wrk=b)
                pairs.append((a, b))
            result[f"raw_{name}_rps"] = median(a for a, _ in pairs)
            result[f"wrk_{name}_rps"] = median(b for _, b in pairs)
            result[f"to_wrk_{name}"] = median_ratio(pairs)
    return result
