# SPDX-License-Identifier: Apache-2.0
"""Fixtures that more than one file of system tests uses."""

import signal

import itertools
import subprocess

import pytest

import ceph
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


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """A certificate authority of our own: ca.pem, server.pem (with its key, for 127.0.0.1), and
    other.pem, an authority that has nothing to do with it."""
    top = tmp_path_factory.mktemp("authority")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=top, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE)

    for name in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-keyout", f"{name}.key", "-out", f"{name}.pem")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=store", "-keyout", "server.key",
            "-out", "server.csr")
    (top / "names").write_text("subjectAltName=IP:127.0.0.1")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", "names", "-out", "server.crt")
    (top / "server.pem").write_text((top / "server.key").read_text() +
                                    (top / "server.crt").read_text())
    return top


@pytest.fixture(scope="session")
def gateway(authority):
    """Ceph's gateway, one for all tests of this process."""
    why = ceph.missing()
    if why:
        pytest.skip(why)
    one = ceph.Ceph("rgw_max_listing_results=100", tls=authority / "server.pem")
    yield one
    one.stop()


class Store:
    """An empty bucket of its own on a real server: what tests that run on each of them need."""

    def __init__(self, kind, server, bucket, access, secret):
        self.kind, self.server, self.bucket = kind, server, bucket
        self.url, self.env = server.url, mounts.environment(access, secret)
        self.client = server.client()

    def put(self, key, data):
        self.client.put_object(Bucket=self.bucket, Key=key, Body=data)


BUCKETS = itertools.count()


@pytest.fixture(params=["s3d", "ceph"])
def store(request):
    """The same test on os2g-s3d and on Ceph's gateway."""
    if request.param == "s3d":
        start = request.getfixturevalue("server")
        return Store("s3d", start("--bucket", "box"), "box", s3d.ACCESS, s3d.SECRET)
    gateway = request.getfixturevalue("gateway")
    made = Store("ceph", gateway, f"box-{next(BUCKETS)}", gateway.access, gateway.secret)
    made.client.create_bucket(Bucket=made.bucket)
    return made
