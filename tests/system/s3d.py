# SPDX-License-Identifier: Apache-2.0
"""The development S3 server, os2g-s3d, for tests and benchmarks."""

import json
import os
import pathlib
import select
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OS2G_BUILD", ROOT / "build"))
PROGRAM = BUILD / "bin" / "os2g-s3d"

# The key pair that the server knows when it is told of no other.
ACCESS, SECRET = "os2g", "os2g-secret"


def free_port():
    """A port that nobody listens on at the moment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class S3d:
    """Runs os2g-s3d with these options until stop(). port: 0 for a free one."""

    def __init__(self, *options, port=0):
        self._command = [str(PROGRAM), "serve", *map(str, options)]
        self.port = port
        self.start()

    def start(self):
        """Starts it, again on the same port after a stop()."""
        self.process = subprocess.Popen([*self._command, "--listen", f"127.0.0.1:{self.port}"],
                                        stdout=subprocess.PIPE, text=True)
        ready, _, _ = select.select([self.process.stdout], [], [], 20)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("listening on "):
            self.stop()
            raise RuntimeError("os2g-s3d did not start")
        self.url = line.split()[-1]
        self.host, self.port = self.url.split("//")[1].split(":")[0], int(self.url.split(":")[-1])

    @property
    def pid(self):
        return self.process.pid

    def memory(self):
        """Bytes of anonymous memory that it has."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))

    def stop(self, how=signal.SIGTERM):
        """Ends it; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            code = self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.process.stdout.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()

    def admin(self, method, path, body=None):
        """One request to the server's own endpoints; the body of its answer."""
        request = urllib.request.Request(f"{self.url}/_s3d/{path}", method=method,
                                         data=body.encode() if body is not None else None)
        # it is our own server: whoever has signed its certificate
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=ssl._create_unverified_context()))
        try:
            with opener.open(request, timeout=20) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            raise ValueError(error.read().decode()) from None

    def counters(self):
        """What has happened since the last reset(), see os2g-s3d(1)."""
        return json.loads(self.admin("GET", "counters"))

    def reset(self):
        self.admin("POST", "reset")

    def faults(self, text):
        """Replaces the fault rules; "" for none."""
        self.admin("PUT", "faults", text)

    def latency(self, spec):
        self.admin("PUT", "latency", spec)

    def touch(self, bucket, key):
        """Makes a new version of a synthetic object; its generation."""
        query = urllib.parse.urlencode({"bucket": bucket, "key": key})
        return json.loads(self.admin("POST", f"touch?{query}"))["generation"]

    def expire_credentials(self):
        """Ends all issued key pairs at once; how many there were."""
        return json.loads(self.admin("POST", "expire-credentials"))["expired"]

    def client(self, access=ACCESS, secret=SECRET, token=None, region="us-east-1", **config):
        """A boto3 client of it; config goes to botocore's Config. access None: unsigned."""
        import boto3
        import botocore
        import botocore.config

        settings = {"signature_version": "s3v4", "retries": {"max_attempts": 0},
                    "s3": {"addressing_style": "path"}, "proxies": {}}
        if access is None:
            settings["signature_version"] = botocore.UNSIGNED
        settings.update(config)
        return boto3.client("s3", endpoint_url=self.url, region_name=region, verify=False,
                            aws_access_key_id=access, aws_secret_access_key=secret,
                            aws_session_token=token, config=botocore.config.Config(**settings))
