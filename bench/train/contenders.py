# SPDX-License-Identifier: Apache-2.0
"""The clients that are compared, each from its daemon to the loader that takes batches from it.

A contender has a daemon on a side (or none), and a training job (job.py) on a side. What is told of an
epoch is what every part of it used.
"""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import tempfile

from clients import Os2g, Rclone, S3fs
from measure import build

from . import environment
from .copies import Copy, Local, Shards
from .dataset import BUCKET

DROP_CACHES = pathlib.Path("/proc/sys/vm/drop_caches")
JOB = pathlib.Path(__file__).with_name("job.py")


@dataclasses.dataclass(frozen=True)
class Contender:
    """name: as the tables have it. mount: a class of clients.py, Export, a Copy, or None. job: what job.py
    calls the client. daemon, trainer: names of sides. options: of the daemon."""

    name: str
    mount: object
    job: str
    daemon: str = "host"
    trainer: str = "host"
    options: tuple = ()


class Export(Os2g):
    """os2gd for libos2g alone: no mount, a socket."""

    name = "os2gd"

    def __enter__(self):
        self._dir = tempfile.TemporaryDirectory(prefix="os2g-bench-")
        self.path = pathlib.Path(self._dir.name, "socket")
        self._process = subprocess.Popen(
            [str(build() / "bin" / "os2gd"), "--export", f"s3://{self.store.bucket}",
             *self.store.os2g_options(), "--socket", str(self.path), *self.options],
            env=self.env(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            preexec_fn=self.side.enter if self.side else None, text=True)
        line = self._process.stdout.readline().strip()
        if line != "ready":
            raise RuntimeError(f"os2gd: {line or 'did not start'}")
        self.pid = self._process.pid
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(20)
        self._process.stdout.close()
        self._dir.cleanup()


class Job:
    """job.py in a process on its side; it imports torch while it starts."""

    def __init__(self, client, place, keys, env, side):
        self._keys = tempfile.NamedTemporaryFile("w", prefix="os2g-bench-keys-")
        self._keys.write("".join(f"{key}\n" for key in keys))
        self._keys.flush()
        self._process = subprocess.Popen(
            [environment.python(), "-W", "ignore::UserWarning", JOB, client, place, self._keys.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=side.enter,
            env=dict(env, PYTHONPATH=str(build() / "python"), OMP_NUM_THREADS="1"))

    def ask(self, **request):
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has said why
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"job.py ended with {self._process.wait()}")
        return json.loads(answer)

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._keys.close()


def cut(indices, batch):
    return [indices[i:i + batch] for i in range(0, len(indices), batch)]


class Running:
    """A contender that is up: opens loaders and measures epochs."""

    def __init__(self, contender, store, data, sides, mount, job):
        self.contender, self._store, self._data, self._sides = contender, store, data, sides
        self._mount, self._job = mount, job
        self.workers = self.batch = None

    def open(self, workers, batch):
        """A loader with so many workers (or, without any, batches under way), warmed up."""
        self.workers, self.batch = workers, batch
        indices, directories = self._data.take(2 * workers)
        self._list(directories)
        self._job.ask(open={"workers": workers, "batch": batch, "warm": cut(indices, 2)})

    def epoch(self, samples, step=0.0, seed=0, digests=False):
        """One epoch of objects that have not been read, in directories that have been listed: what
        it took, and if asked for, the digest of each sample by key."""
        indices, directories = self._data.take(samples, seed)
        self._list(directories)
        DROP_CACHES.write_text("1\n")  # what peers have read before
        self._store.reset_counters()
        before = {name: getattr(self._sides, name).cpu_seconds() for name in self._sides.NAMES}
        answer = self._job.ask(epoch=cut(indices, self.batch), step=step, digests=digests)
        used = {name: getattr(self._sides, name).cpu_seconds() - cpu for name, cpu in before.items()}
        counters = self._store.counters()
        found, keys = answer.pop("digests"), answer.pop("keys")
        if answer["samples"] != samples:
            raise RuntimeError(f"{self.contender.name}: {answer['samples']} samples of {samples}")
        record = {
            "client": self.contender.name, "workers": self.workers, "batch": self.batch,
            "step_s": step, **answer, "rate": samples / answer["seconds"],
            "host_cpu_s": used["host"] + used["both"], "device_cpu_s": used["device"],
            "total_cpu_s": used["host"] + used["both"] + used["device"],
            "store_cpu_s": used["store"], "requests": counters["requests_total"],
            "bytes": counters.get("object_bytes_out"),
        }
        keys = keys or [self._data.keys[i] for i in indices]
        return (record, dict(zip(keys, found))) if digests else record

    def _list(self, directories):
        if self._mount is not None and self.contender.mount is not Export:
            for directory in directories:
                subprocess.run(["ls", "-U", self._mount.path / directory], check=True,
                               stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def running(contender, store, data, sides):
    with contextlib.ExitStack() as stack:
        mount = None
        if contender.mount is not None:
            mount = stack.enter_context(contender.mount(
                store, *contender.options, side=getattr(sides, contender.daemon)))
        place = store.endpoint if mount is None else str(mount.path)
        if not contender.job.startswith(("files", "plan", "webdataset")):
            place += f",{BUCKET}"
        if isinstance(mount, Copy):
            data = mount.data
        job = Job(contender.job, place, data.keys, store.env(), getattr(sides, contender.trainer))
        stack.callback(job.close)
        yield Running(contender, store, data, sides, mount, job)


S3FS = Contender("s3fs", S3fs, "files")
S3FS_ON_DEVICE = Contender("s3fs_on_device", S3fs, "files", daemon="device")
S3CONNECTOR = Contender("s3connector", None, "s3connector")
RCLONE = Contender("rclone", Rclone, "files")
WEBDATASET = Contender("webdataset", Shards, "webdataset")
MOUNT = Contender("mount", Os2g, "files", daemon="device")
PLAN = Contender("plan", Os2g, "plan", daemon="device")
GDD = Contender("gdd", Export, "gdd", daemon="device")
LOCAL = Contender("local", Local, "files")

# those that bench/run train --quick compares
ALL = (S3FS, S3FS_ON_DEVICE, S3CONNECTOR, MOUNT, PLAN, GDD)
EVERY = (S3FS, S3FS_ON_DEVICE, S3CONNECTOR, RCLONE, WEBDATASET, MOUNT, PLAN, GDD, LOCAL)


def on(contender, daemon, trainer, name, *options):
    """The same on other sides, with these options of its daemon."""
    return dataclasses.replace(contender, daemon=daemon, trainer=trainer, name=name, options=options)
