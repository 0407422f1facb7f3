# SPDX-License-Identifier: Apache-2.0
"""Fixtures that more than one file of system tests uses."""

import signal

import pytest

import mounts
import s3d


@pytest.fixture
def server():
    """Starts development servers: server("--option", ...); they end with the test."""
    running = []

    def start(*options, **kwargs):
        running.append(s3d.S3d(*options, **kwargs))
        return running[-1]

    yield start
    codes = [one.stop() for one in running]
    # a sanitizer's finding shows here; some tests kill theirs
    assert all(code in (0, -signal.SIGKILL) for code in codes), codes


@pytest.fixture
def mount(tmp_path_factory):
    """Mounts buckets: mount("bench", server=s, memory="64M") -> mounts.Mount, at .path; they end
    with the test. path: another directory than one of its own."""
    running = []

    def start(source, path=None, **options):
        path = path or tmp_path_factory.mktemp("mount").resolve()
        try:
            running.append(mounts.Mount(path, source, **options))
        finally:
            places.append(path)
        return running[-1]

    places = []
    yield start
    for one in reversed(running):
        one.close()
    assert not [p for p in places if mounts.is_mounted(p)], "a mount is left"
