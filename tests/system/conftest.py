# SPDX-License-Identifier: Apache-2.0
"""Fixtures that more than one file of system tests uses."""

import pytest

import s3d


@pytest.fixture
def server():
    """Starts development servers: server("--option", ...); they end with the test."""
    running = []

    def start(*options, **kwargs):
        running.append(s3d.S3d(*options, **kwargs))
        return running[-1]

    yield start
    for one in running:
        one.stop()
