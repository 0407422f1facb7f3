# SPDX-License-Identifier: Apache-2.0
"""What tests of the Python package use: the built package, servers, clients."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import mounts  # noqa: E402
import s3d  # noqa: E402

PACKAGE = s3d.BUILD / "python"
sys.path.insert(0, str(PACKAGE))

try:
    import os2g
except ImportError as error:
    # an extension of a build with sanitizers cannot be loaded by a Python without, and a build
    # without Python's headers has none
    os2g, WHY = None, str(error)
    if PACKAGE.exists() and not any(name in WHY for name in ("__asan", "__ubsan", "__tsan", "libtsan")):
        raise


class Skipped(pytest.Module):
    """A file of tests that is not even imported, and counts as skipped."""

    def collect(self):
        pytest.skip(f"{self.path.name}: no os2g to import: {WHY}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    return Skipped.from_parent(parent, path=module_path) if os2g is None else None


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Nothing of who runs the tests; the keys that os2g-s3d knows."""
    wanted = mounts.environment(PYTHONPATH=str(PACKAGE))
    for name in set(os.environ) - set(wanted):
        monkeypatch.delenv(name)
    for name in ("OS2G_SOCKET", "OS2GD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)


@pytest.fixture
def server():
    """Starts development servers: server("--option", ...); they end with the test."""
    running = []

    def start(*options):
        running.append(s3d.S3d(*options))
        return running[-1]

    yield start
    assert all(one.stop() in (0, -signal.SIGKILL) for one in running)


@pytest.fixture
def connect():
    """Clients of a private daemon: connect(server, "bench/prefix/", option=...)."""
    with contextlib.ExitStack() as stack:
        def start(server, source="bench", **options):
            return stack.enter_context(os2g.Client(f"s3://{source}", endpoint_url=server.url,
                                                   **options))
        yield start


@pytest.fixture
def program():
    """Python programs beside the test: program(text, *arguments), which end with it."""
    running = []

    def start(text, *arguments, **more):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
        running.append(subprocess.Popen([sys.executable, "-c", text, *map(str, arguments)],
                                        env=dict(os.environ), **options))
        return running[-1]

    yield start
    for one in running:
        if one.poll() is None:
            one.kill()
        one.communicate()
