# SPDX-License-Identifier: Apache-2.0
"""The package as others get it: pip install, three lines, no root."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

import mounts
import s3d
import synthetic

THREE_LINES = """
import os2g
client = os2g.Client("s3://bench/", endpoint_url=ENDPOINT)
data = client.fetch("a.bin")
"""


@pytest.fixture
def place():
    """A directory that everybody can read."""
    with tempfile.TemporaryDirectory(prefix="os2g-wheel-") as path:
        os.chmod(path, 0o755)
        yield pathlib.Path(path)


def pip(*words, **options):
    return subprocess.run([sys.executable, "-m", "pip", *map(str, words)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **options)


@pytest.mark.timeout(600)
def test_the_wheel_is_all_it_takes(server, place, monkeypatch):
    monkeypatch.delenv("PYTHONPATH")
    got = pip("download", "--quiet", "--no-deps", "--dest", place / "download", "meson-python",
              timeout=60)
    if got.returncode != 0:
        pytest.skip(f"PyPI cannot be reached: {got.stdout.splitlines()[-1:]}")
    env = dict(os.environ)
    if shutil.which("ccache"):
        env["CC"] = "ccache cc"
    subprocess.run([s3d.ROOT / "scripts" / "wheel", place], check=True, env=env, timeout=500,
                   stdout=subprocess.DEVNULL)
    (wheel,) = place.glob("*.whl")
    assert "-cp39-abi3-linux_" in wheel.name
    subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True)
    python = place / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", wheel], check=True)

    s = server("--synthetic", "bench: a.bin 100000")
    home = place / "home"
    home.mkdir()
    who = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}
    if who:
        shutil.chown(home, **who)
    text = THREE_LINES.replace("ENDPOINT", repr(s.url)) + """
import hashlib, importlib.metadata, os
print(hashlib.sha256(data).hexdigest(), os2g.__file__)
assert any(one.name == "os2g" for one in importlib.metadata.entry_points()["fsspec.specs"])
"""
    run = subprocess.run([python, "-c", text], cwd=home, stdout=subprocess.PIPE, text=True, check=True,
                         timeout=mounts.SECONDS, extra_groups=[] if who else None, **who,
                         env=mounts.environment(HOME=str(home), XDG_RUNTIME_DIR=str(home), PATH="/bin"))
    digest, where = run.stdout.split()
    assert digest == synthetic.digest("bench", "a.bin", 100_000)
    assert pathlib.Path(where).is_relative_to(place / "venv")
