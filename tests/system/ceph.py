# SPDX-License-Identifier: Apache-2.0
"""Ceph's object gateway with a monitor and an OSD, a real store for tests; see scripts/ceph-rgw.sh."""

import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import s3d

SCRIPT = s3d.ROOT / "scripts" / "ceph-rgw.sh"
ACCESS, SECRET = "TESTACCESSKEY0000001", "TestSecretKey000000000000000000000000001"
TRIES = 3


def missing():
    """Why it cannot run here, or None."""
    programs = [p for p in ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "curl")
                if not shutil.which(p)]
    if programs:
        return f"Ceph is not installed (no {', '.join(programs)})"
    return None if os.geteuid() == 0 else "Ceph's daemons are started by root only"


def three_free_ports():
    """The first of three ports in a row, below those that the kernel hands out by itself."""
    while True:
        base = random.SystemRandom().randrange(12000, 32000)
        try:
            for port in range(base, base + 3):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return base
        except OSError:
            pass


class Ceph:
    """Runs a gateway until stop(). conf: more lines for radosgw; tls: a file with key and certificate,
    for tls_url."""

    access, secret = ACCESS, SECRET

    def __init__(self, conf="", tls=None):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="os2g-ceph-"))
        env = dict(os.environ, S3_ACCESS_KEY=ACCESS, S3_SECRET_KEY=SECRET, S3_RGW_CONF=conf,
                   S3_TIMEOUT="120")
        if tls:
            env["S3_TLS_PEM"] = str(tls)
        for attempt in range(TRIES):  # somebody else may take the port meanwhile
            port = three_free_ports()
            done = subprocess.run([SCRIPT, "start", self.directory, str(port)], env=env, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if done.returncode == 0:
                break
        if done.returncode:
            self.stop()
            raise RuntimeError(f"Ceph's gateway did not start: {done.stdout}")
        self.url = f"http://127.0.0.1:{port}"
        self.tls_url = f"https://127.0.0.1:{port + 2}"

    def stop(self):
        subprocess.run([SCRIPT, "stop", self.directory], check=True)
        shutil.rmtree(self.directory)

    def client(self, **config):
        """A boto3 client of it that has patience."""
        import boto3
        import botocore.config

        config.setdefault("retries", {"max_attempts": 10, "mode": "standard"})
        settings = botocore.config.Config(s3={"addressing_style": "path"}, proxies={}, **config)
        return boto3.client("s3", endpoint_url=self.url, region_name="us-east-1",
                            aws_access_key_id=ACCESS, aws_secret_access_key=SECRET, config=settings)

    def statuses(self, method="GET"):
        """The status of every request of that method so far, from the gateway's log."""
        time.sleep(0.3)  # it is written a little later
        lines = (self.directory / "log" / "client.rgw.log").read_text(errors="replace").splitlines()
        return [int(line.split(f'"{method} ', 1)[1].split('" ', 1)[1].split()[0])
                for line in lines if "beast: " in line and f'"{method} ' in line]

    def freeze(self):
        """Stops the OSD, so that every answer which needs it hangs; the function that lets it go on."""
        pid = int((self.directory / "pid" / "osd").read_text().split()[0])
        os.kill(pid, signal.SIGSTOP)
        return lambda: os.kill(pid, signal.SIGCONT)
