# SPDX-License-Identifier: Apache-2.0
"""The mounts that are compared: ours, s3fs and rclone, the peers tuned as their users tune them.

Each is a context manager with .path, .pid (the process whose CPU counts, with all below it). A mount
is made anew for each run and the kernel's caches are dropped before, so that nothing is left over.
side: whose cores its processes have (bench/train/sides.py).
"""

import copy
import os
import pathlib
import subprocess
import tempfile
import time

from measure import build, cpu_seconds, drop_caches


class Store:
    """Where a bucket is: what every mount needs to know. ca: the file of who has signed its
    certificate, on TLS."""

    ca = None

    def __init__(self, endpoint, bucket, access_key, secret_key, region="us-east-1"):
        self.endpoint, self.bucket, self.region = endpoint, bucket, region
        self.access_key, self.secret_key = access_key, secret_key

    @property
    def address(self):
        return self.endpoint.split("//")[1]

    def on(self, bucket):
        """The same, with another bucket."""
        other = copy.copy(self)
        other.bucket = bucket
        return other

    def env(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        if self.ca:
            env |= {"CURL_CA_BUNDLE": str(self.ca), "SSL_CERT_FILE": str(self.ca)}
        return dict(env, AWS_ACCESS_KEY_ID=self.access_key, AWS_SECRET_ACCESS_KEY=self.secret_key,
                    AWS_DEFAULT_REGION=self.region, AWS_EC2_METADATA_DISABLED="true")

    def s3_client(self):
        """A boto3 client of it."""
        import boto3
        import botocore.config
        return boto3.client(
            "s3", endpoint_url=self.endpoint, region_name=self.region,
            aws_access_key_id=self.access_key, aws_secret_access_key=self.secret_key,
            verify=str(self.ca) if self.ca else None,
            config=botocore.config.Config(s3={"addressing_style": "path"}, proxies={}))

    def os2g_options(self):
        return ["--endpoint-url", self.endpoint, *(["--ca-file", str(self.ca)] if self.ca else [])]


class Mount:
    name = None

    def __init__(self, store, *options, side=None):
        self.store, self.options, self.side = store, options, side

    def command(self):
        raise NotImplementedError

    def env(self):
        return self.store.env()

    def __enter__(self):
        self._dir = tempfile.TemporaryDirectory(prefix="os2g-bench-")
        top = pathlib.Path(self._dir.name)
        self.path, self.work = top / "mnt", top / "work"
        self.path.mkdir()
        self.work.mkdir()
        drop_caches()
        log = open(top / "log", "w")
        self._process = subprocess.Popen(self.command(), env=self.env(), stdout=log, stderr=log,
                                         preexec_fn=self.side.enter if self.side else None)
        log.close()
        self.pid = self._process.pid
        for _ in range(300):
            if os.path.ismount(self.path):
                break
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        if not os.path.ismount(self.path):
            self._process.kill()
            self._process.wait()
            raise RuntimeError(f"{self.name}: no mount\n" + (top / "log").read_text())
        os.stat(self.path)
        self._cpu = cpu_seconds(self.pid)
        return self

    def restart_cpu(self):
        self._cpu = cpu_seconds(self.pid)

    def cpu(self):
        """CPU seconds of the daemon since the mount was ready (or restart_cpu)."""
        return cpu_seconds(self.pid) - self._cpu

    def __exit__(self, *_):
        subprocess.run(["umount", self.path], check=False)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            subprocess.run(["umount", "-l", self.path], check=False)
            self._process.terminate()
            self._process.wait(10)
        self._dir.cleanup()


class Os2g(Mount):
    name = "os2g"

    def command(self):
        return [str(build() / "bin" / "os2g"), "mount", f"s3://{self.store.bucket}", str(self.path),
                *self.store.os2g_options(), "--foreground", *self.options]

    def status(self):
        import json
        out = subprocess.run([str(build() / "bin" / "os2g"), "status", "--json", str(self.path)],
                             check=True, stdout=subprocess.PIPE).stdout
        return json.loads(out)


class NullFuse(Mount):
    """The floor: a FUSE server that answers from memory. Its one file is big."""

    name = "nullfuse"

    def command(self):
        return [str(build() / "bench" / "nullfuse"), *self.options, str(self.path)]

    def env(self):
        return dict(os.environ)


class S3fs(Mount):
    name = "s3fs"

    def command(self):
        passwd = self.work / "passwd"
        passwd.write_text(f"{self.store.access_key}:{self.store.secret_key}\n")
        passwd.chmod(0o600)
        options = ("ro,use_path_request_style,sigv4,max_stat_cache_size=1000000,"
                   "enable_noobj_cache,parallel_count=16,multireq_max=64,multipart_size=16,"
                   f"url={self.store.endpoint},endpoint={self.store.region},"
                   f"passwd_file={passwd}")
        return ["s3fs", self.store.bucket, str(self.path), "-f", "-o", options, *self.options]


class Rclone(Mount):
    name = "rclone"

    def command(self):
        remote = (f":s3,provider=Other,env_auth=true,endpoint='{self.store.endpoint}',"
                  f"region={self.store.region}:{self.store.bucket}")
        return ["rclone", "mount", remote, str(self.path), "--config", "/dev/null", "--read-only",
                "--vfs-cache-mode", "off", "--no-modtime", "--dir-cache-time", "1h",
                "--attr-timeout", "1h", "--buffer-size", "32M", "--vfs-read-chunk-size", "32M",
                *self.options]
