# SPDX-License-Identifier: Apache-2.0
"""The Python of the training jobs: a virtual environment with requirements.txt from PyPI (5 GB with
torch's CUDA libraries, which PyPI's torch does not do without), made once and kept in the cache."""

import hashlib
import os
import pathlib
import shutil
import subprocess

REQUIREMENTS = pathlib.Path(__file__).with_name("requirements.txt")


def python():
    """Its interpreter; made when it is not there yet."""
    mark = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    top = cache / "os2g" / f"bench-{mark}"
    if not (top / "ready").exists():
        shutil.rmtree(top, ignore_errors=True)
        print(f"installing PyTorch and the S3 Connector into {top}", flush=True)
        subprocess.check_call(["/usr/bin/python3", "-m", "venv", top])
        subprocess.check_call([top / "bin" / "pip", "install", "--quiet",
                               "--disable-pip-version-check", "-r", REQUIREMENTS])
        (top / "ready").touch()
    return top / "bin" / "python"
