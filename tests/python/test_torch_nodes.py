# SPDX-License-Identifier: Apache-2.0
"""examples/ddp_two_nodes.sh: torchrun on two nodes, which are network namespaces."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

pytest.importorskip("torchvision", reason="no torchvision (Debian: python3-torchvision)")

import mounts  # noqa: E402
import s3d  # noqa: E402

SCRIPT = s3d.ROOT / "examples" / "ddp_two_nodes.sh"
ALL_RIGHT = "every sample was read as often as the samplers say"


def no_namespaces():
    """Why there can be no nodes here, or None."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    if not shutil.which("ip"):
        return "no ip (Debian: iproute2)"
    cables = "ip link add left type veth peer name right && ip link add middle type bridge"
    tried = subprocess.run(["unshare", "--net", "sh", "-c", cables], check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return f"no network namespaces here: {tried.stderr.strip()}" if tried.returncode else None


WHY = no_namespaces()
pytestmark = pytest.mark.skipif(WHY is not None, reason=str(WHY))


def start(**options):
    """The script under way."""
    words = mounts.arguments({"python": sys.executable, "build": s3d.BUILD, **options})
    return subprocess.Popen([str(SCRIPT), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env=dict(os.environ))


def left_of(line):
    """What is left of a run that has said which namespaces it made."""
    label, *names = line.split()
    assert label == "namespaces:" and len(names) == 3
    places = [pathlib.Path("/run/netns", name) for name in names]
    return [place for place in [*places, pathlib.Path("/tmp", names[0].rpartition("-")[0])]
            if place.exists()]


def run(**options):
    """The lines of a run that has succeeded."""
    with start(**options) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    lines = out.splitlines()
    assert not left_of(lines[0])
    return lines


def test_two_nodes_of_two_ranks_fetch_what_their_samplers_list():
    # 21 samples are no multiple of 4 ranks: each reads 6
    lines = run(model="none", ranks=2, images=21, epochs=1)
    assert sum("epoch 0: 6 samples" in line for line in lines) == 4
    assert any(line.startswith("both: 24 samples of 21 objects") for line in lines)
    assert lines[-1] == ALL_RIGHT


def test_two_nodes_with_mounts_train_by_a_plan():
    lines = run(client="plan", images=41, batch=4)
    assert any(line.startswith("loss: ") for line in lines)
    assert lines[-1] == ALL_RIGHT


def test_nodes_that_are_interrupted_leave_nothing():
    with start(model="none", images=21, epochs=1000) as process:
        namespaces = process.stdout.readline()
        assert len(left_of(namespaces)) == 4
        while "epoch 0" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert not left_of(namespaces)
