# SPDX-License-Identifier: Apache-2.0
"""The end of the demo: ResNet18 trained for a few batches, read in each of several ways.

examples/imagenet_resnet18.py does it, on its own data set in a bucket of its own. The same seed must give
the same batches, whatever brings them. Host CPU is that of the training, of torch's workers and of
s3fs, which runs on the host; (loading) is what of it went into having the batches."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from clients import Os2g, S3fs
from measure import ROOT, build

EXAMPLES = ROOT / "examples"
BUCKET = "train"
IMAGES, CLASSES = 96, 4
BATCH, BATCHES = 8, 6


def fill(store, directory):
    """Makes the pictures and their bucket; the store with that bucket."""
    subprocess.run([sys.executable, EXAMPLES / "make_images.py", directory, "--images", str(IMAGES),
                    "--classes", str(CLASSES)], check=True)
    client = store.s3_client()
    client.create_bucket(Bucket=BUCKET)
    for file in sorted(directory.glob("*/*")):
        client.put_object(Bucket=BUCKET, Key=str(file.relative_to(directory)),
                          Body=file.read_bytes())
    return store.on(BUCKET)


def run(client, data, report):
    """The example's report of its one epoch."""
    subprocess.run([sys.executable, EXAMPLES / "imagenet_resnet18.py", "--client", client,
                    "--data", data, "--device", "cpu", "--batch", str(BATCH),
                    "--batches", str(BATCHES), "--workers", "2", "--report", report, "--digests"],
                   check=True, stdout=subprocess.DEVNULL,
                   env=dict(os.environ, PYTHONPATH=str(build() / "python")))
    epoch, = json.loads(report.read_text())["epochs"]
    return epoch


class Table:
    """One row per client; its batches are compared with those of the first."""

    def __init__(self, store, top):
        self._store, self._report = store, top / "report"
        self._first, self.failures = None, 0
        print(f"\nResNet18, {BATCHES} batches of {BATCH}, on this CPU")
        print(f"{'client':22}{'samples/s':>10}{'waited s':>10}{'host CPU s':>12}{'(loading)':>11}"
              f"{'device CPU s':>14}{'requests':>10}{'loss':>15}  batches")

    def row(self, name, client, mount, data, on_host=False):
        """on_host: the mount's CPU is the host's, too."""
        self._store.reset_counters()
        mount.restart_cpu()
        epoch = run(client, data, self._report)
        mounts, device = (mount.cpu(), 0) if on_host else (0, mount.cpu())
        self._first = self._first or epoch["digests"]
        same = epoch["digests"] == self._first and len(self._first) == BATCHES * BATCH
        self.failures += not same
        losses = f"{epoch['losses'][0]:.2f} to {epoch['losses'][-1]:.2f}"
        print(f"{name:22}{epoch['rate']:10.1f}{epoch['waited_s']:10.2f}{epoch['cpu_s'] + mounts:12.2f}"
              f"{epoch['loading_cpu_s'] + mounts:11.2f}{device:14.2f}"
              f"{self._store.counters()['requests_total']:10}{losses:>15}"
              f"  {'the same' if same else 'OTHERS'}", flush=True)


def train(store):
    """Prints the table; how many of its rows are wrong."""
    with contextlib.ExitStack() as stack:
        top = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="os2g-demo-")))
        store = fill(store, top / "pictures")
        table = Table(store, top)
        with S3fs(store) as m:
            table.row("files over s3fs", "files", m, m.path, on_host=True)
        with Os2g(store) as m:
            table.row("files over os2g", "files", m, m.path)
        with Os2g(store) as m:
            table.row("... with a plan", "plan", m, m.path)
        with Os2g(store, "--socket", top / "socket") as m:
            table.row("landed by os2g (GDD)", "gdd", m, top / "socket")
    return table.failures
