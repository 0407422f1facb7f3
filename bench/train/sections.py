# SPDX-License-Identifier: Apache-2.0
"""The whole experiment, in sections that can be run one by one; each leaves bench/results/train/NAME.json
with its result and every epoch that was measured. report.py makes docs/results.md of these."""

import datetime
import json
import os
import platform
import re
import subprocess

from measure import ROOT, build, show

from . import accelerator, contenders, cpu_mode, environment
from .accelerator import Setting
from .contenders import on
from .sides import Sides

RESULTS = ROOT / "bench" / "results" / "train"
STEPS_MS = (0, 4, 8, 16, 32, 64, 128, 256, 512)
ENOUGH = 0.97  # utilisation from which longer steps tell nothing new


def _compare(sides, clients, store=accelerator.development, samples=1024, batch=32, **options):
    with store(sides, **options) as (bucket, data):
        setting = Setting(sides, bucket, data, samples, batch, most_workers=32, probes=4)
        return accelerator.compare(setting, clients), setting


def compare(sides):
    """Every client on os2g-s3d."""
    return _compare(sides, contenders.EVERY, samples=2048, batch=64)


def compare_tls(sides):
    """The same over TLS."""
    return _compare(sides, contenders.ALL, tls=True)


def compare_ceph(sides):
    """The same on Ceph's gateway."""
    return _compare(sides, contenders.ALL, store=accelerator.ceph)


def _rates(setting, clients):
    """Only how fast batches come, at which cost."""
    rows = {}
    for contender in clients:
        with setting.measure(contender) as measure:
            rows[contender.name] = measure.rate()
        show(contender.name, **rows[contender.name])
    return rows


def controls(sides):
    """Peers with both cores, and OS2G confined to the host's."""
    clients = [on(contender, "both", "both", f"{contender.name}@both cores")
               for contender in (contenders.S3FS, contenders.S3CONNECTOR, contenders.RCLONE)]
    clients += [on(contender, "host", "host", f"{contender.name}@host core")
                for contender in (contenders.MOUNT, contenders.PLAN, contenders.GDD)]
    with accelerator.development(sides) as (store, data):
        setting = Setting(sides, store, data, 1024, 32, most_workers=32)
        return _rates(setting, clients), setting


def curve(sides):
    """Utilisation over the time of a step."""
    result = {}
    with accelerator.development(sides) as (store, data):
        setting = Setting(sides, store, data, 512, 32)
        for contender in contenders.EVERY:
            with setting.measure(contender) as measure:
                points = result[contender.name] = []
                samples = max(setting.samples * (3 if measure.fast else 1), measure.two_turns())
                for step in STEPS_MS:
                    record = measure.epoch("curve", samples, step / 1e3)
                    points.append({k: record[k] for k in ("step_s", "seconds", "rate", "utilisation")})
                    if record["utilisation"] > ENOUGH:
                        break
            show(contender.name, steps=len(points), last_step_ms=points[-1]["step_s"] * 1e3)
    return result, setting


def ablation(sides):
    """What each idea brings, one after the other."""
    bare = on(contenders.MOUNT, "host", "host", "client", "--no-read-ahead")
    ideas = {"client": bare,
             "+ pre-reading": on(contenders.MOUNT, "host", "host", "mount@host"),
             "+ plan": on(contenders.PLAN, "host", "host", "plan@host"),
             "+ offload": contenders.PLAN,
             "+ landing": contenders.GDD}
    with accelerator.development(sides) as (store, data):
        setting = Setting(sides, store, data, 1024, 32, most_workers=32)
        rows = _rates(setting, ideas.values())
    return [{"idea": idea, **rows[contender.name]} for idea, contender in ideas.items()], setting


def device_curve(sides):
    """The device's core at full, half and quarter speed, as a weaker DPU's would be."""
    result = {}
    with accelerator.development(sides) as (store, data):
        setting = Setting(sides, store, data, 1024, 32)
        for part in (1, 0.5, 0.25):
            sides.device.throttle(part if part < 1 else None)
            print(f"device at {part}", flush=True)
            result[str(part)] = _rates(setting, (contenders.S3FS_ON_DEVICE, contenders.MOUNT,
                                                 contenders.PLAN, contenders.GDD))
        sides.device.throttle(None)
    return result, setting


def cpu(sides):
    """ResNet18 for real, on JPEG files and on ready tensors."""
    return cpu_mode.run(sides)


SECTIONS = {f.__name__: f for f in (compare, compare_tls, compare_ceph, controls, curve, ablation,
                                    device_curve, cpu)}


def revision():
    """Of the source, where that is known; what sections leave behind does not change it."""
    def git(*command):
        return subprocess.run(["git", "-C", ROOT, *command], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)

    try:
        found = git("rev-parse", "--short", "HEAD")
        changed = git("diff", "--quiet", "HEAD", "--", ".", ":!bench/results", ":!docs").returncode
    except OSError:
        return None
    return found.stdout.strip() + "-dirty" * (changed != 0) if found.returncode == 0 else None


def _first_line(*command):
    return subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False).stdout.splitlines()[0]


def _version(*command):
    found = re.search(r"[0-9]+(\.[0-9]+)+", _first_line(*command))
    return found.group() if found else None


def machine():
    cpu = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo", encoding="ascii").read())
    memory = re.search(r"MemTotal:\s*(\d+)", open("/proc/meminfo", encoding="ascii").read())
    system = dict(line.rstrip().split("=", 1) for line in open("/etc/os-release", encoding="utf-8")
                  if "=" in line)
    pinned = dict(re.findall(r"^(\w+)==(\S+)", environment.REQUIREMENTS.read_text(), re.M))
    return {"cpu": cpu.group(1) if cpu else platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(int(memory.group(1)) / (1 << 20)), "kernel": platform.release(),
            "os": system["PRETTY_NAME"].strip('"'),
            "versions": {"s3fs": _version("s3fs", "--version"),
                         "rclone": _version("rclone", "version"),
                         "os2g": _version(build() / "bin" / "os2g", "--version"),
                         **{k: pinned[k] for k in ("s3torchconnector", "torch", "webdataset")}}}


def run(names):
    RESULTS.mkdir(parents=True, exist_ok=True)
    done = {}
    for name in names:
        print(f"--- {name}: {SECTIONS[name].__doc__}", flush=True)
        source = revision()
        with Sides() as sides:
            result, setting = SECTIONS[name](sides)
        done[name] = result
        whole = {"section": name, "machine": machine(), "revision": source, "date": datetime.date.today().isoformat(),
                 "store": "ceph" if name.endswith("_ceph") else "os2g-s3d",
                 "tls": name.endswith("_tls"),
                 "latency": None if name.endswith("_ceph") else accelerator.LATENCY,
                 "samples": setting.samples, "batch": setting.batch, "result": result,
                 "records": [_short(record) for record in setting.records]}
        (RESULTS / f"{name}.json").write_text(json.dumps(whole, separators=(",", ":")) + "\n")
    return done


def _short(value):
    """Six digits are more than a clock's."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [_short(v) for v in value]
    return {k: _short(v) for k, v in value.items()} if isinstance(value, dict) else value
