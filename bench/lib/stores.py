# SPDX-License-Identifier: Apache-2.0
"""The servers of the benchmarks: the development server with synthetic buckets, Ceph's gateway."""

import contextlib
import hashlib
import os
import pathlib
import subprocess
import tempfile
import time

import clients
import s3d
from measure import ROOT

# of the repeated pattern on Ceph: a prime number of bytes, so that a misplaced part shows
BLOCK = 1048573
ACCESS, SECRET = "TESTACCESSKEY0000001", "TestSecretKey000000000000000000000000001"


class Ceph(clients.Store):
    """A bucket on Ceph's gateway; requests are counted in the gateway's log."""

    def __init__(self, url, bucket, directory):
        super().__init__(url, bucket, ACCESS, SECRET)
        self.digests = {}
        self._directory = pathlib.Path(directory)
        self._log, self._seen = self._directory / "log" / "client.rgw.log", 0

    def reset_counters(self):
        self._seen = self._count()

    def counters(self):
        return {"requests_total": self._count() - self._seen}

    def pids(self):
        """Of its daemons."""
        return [int(file.read_text().split()[0]) for file in self._directory.glob("pid/*")]

    def _count(self):
        time.sleep(0.5)  # the gateway writes its log a little later
        return self._log.read_bytes().count(b" beast: ")


class Development(clients.Store):
    """A bucket on os2g-s3d, with the server's counters."""

    def __init__(self, server, bucket, ca=None):
        super().__init__(server.url, bucket, ACCESS, SECRET)
        self.server, self.ca = server, ca

    def reset_counters(self):
        self.server.reset()

    def counters(self):
        return self.server.counters()


def certify(directory):
    """A certificate for 127.0.0.1 that signs itself; its file, and its key's."""
    pem, key = pathlib.Path(directory, "cert.pem"), pathlib.Path(directory, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=store", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", key, "-out", pem], check=True, stderr=subprocess.DEVNULL)
    return pem, key


@contextlib.contextmanager
def development(buckets, *options, tls=False, bucket=None):
    """buckets: specifications for --synthetic; bucket: the store's, otherwise the first of them."""
    arguments = [a for b in buckets for a in ("--synthetic", b)]
    with tempfile.TemporaryDirectory(prefix="os2g-bench-") as top:
        ca = None
        if tls:
            ca, key = certify(top)
            arguments += ["--tls-cert", ca, "--tls-key", key]
        server = s3d.S3d(*arguments, "--access-key", ACCESS, "--secret-key", SECRET, "--anonymous",
                         *options)
        try:
            yield Development(server, bucket or buckets[0].partition(":")[0], ca)
        finally:
            server.stop()


@contextlib.contextmanager
def ceph(objects, bucket="bench", distinct=False):
    """Ceph's gateway with objects {key: size} in a bucket that anybody may read.

    distinct: each with bytes of its own; the store's .digests then has their SHA-256."""
    script = ROOT / "scripts" / "ceph-rgw.sh"
    with tempfile.TemporaryDirectory(prefix="os2g-ceph-") as top:
        port = s3d.free_port()
        env = dict(os.environ, S3_ACCESS_KEY=ACCESS, S3_SECRET_KEY=SECRET)
        subprocess.run([script, "start", top, str(port)], check=True, env=env)
        try:
            url = f"http://127.0.0.1:{port}"
            store = Ceph(url, bucket, top)
            client = store.s3_client()
            client.create_bucket(Bucket=bucket, ACL="public-read")
            block = os.urandom(BLOCK)
            for i, (key, size) in enumerate(objects.items()):
                if distinct:
                    block = i.to_bytes(8, "little") + block[8:]
                    store.digests[key] = repeated_digest(block, size)
                upload(client, bucket, key, size, block)
            yield store
        finally:
            subprocess.run([script, "stop", top], check=True)


def repeated_digest(block, size):
    digest = hashlib.sha256()
    while size > 0:
        digest.update(block[:size])
        size -= len(block)
    return digest.digest()


def upload(client, bucket, key, size, block):
    """size bytes of repeated block, in parts when large, readable by anybody."""
    part = 64 * len(block)  # a multiple, so that each part begins with the block's first byte
    if size <= part:
        body = (block * (size // len(block) + 1))[:size]
        client.put_object(Bucket=bucket, Key=key, Body=body, ACL="public-read")
        return
    upload_id = client.create_multipart_upload(Bucket=bucket, Key=key,
                                               ACL="public-read")["UploadId"]
    parts = []
    for number, offset in enumerate(range(0, size, part), 1):
        body = (block * 64)[:size - offset]
        answer = client.upload_part(Bucket=bucket, Key=key, PartNumber=number, UploadId=upload_id,
                                    Body=body)
        parts.append({"ETag": answer["ETag"], "PartNumber": number})
    client.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id,
                                     MultipartUpload={"Parts": parts})
