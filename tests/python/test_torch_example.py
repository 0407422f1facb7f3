# SPDX-License-Identifier: Apache-2.0
"""examples/imagenet_resnet18.py, on pictures of examples/make_images.py."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="no torch (Debian: python3-torch)")

import mounts  # noqa: E402
import s3d  # noqa: E402

EXAMPLES = s3d.ROOT / "examples"


def run(name, *words):
    done = subprocess.run([sys.executable, str(EXAMPLES / name), *map(str, words)], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                          env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return done.stdout


def samples(report):
    """The digests of the samples of each epoch that the example reports."""
    return [epoch["digests"] for epoch in json.loads(report.read_text())["epochs"]]


def test_the_example_reads_the_same_epochs_with_workers_over_a_mount_and_without(server, tmp_path):
    run("make_images.py", tmp_path / "store/box/train", "--images", 20, "--classes", 2)
    store = server("--data", tmp_path / "store")
    place = tmp_path / "mnt"
    place.mkdir()
    mount = mounts.Mount(place, "box", server=store)
    report, seen = tmp_path / "report", {}
    try:
        for client, data in [("gdd", "s3://box/train/"), ("plan", place / "train"),
                             ("files", tmp_path / "store/box/train")]:
            text = run("imagenet_resnet18.py", "--client", client, "--data", data, "--model", "none",
                       "--batch", 8, "--epochs", 2, "--workers", 2, "--endpoint", store.url,
                       "--device", "cpu", "--report", report, "--digests")
            assert text.startswith("epoch 0: 20 samples"), client
            seen[client] = samples(report)
    finally:
        mount.close()
    first, second = seen["files"]
    assert len(set(first)) == 20 and first != second and sorted(first) == sorted(second)
    assert seen == dict.fromkeys(seen, seen["files"])
