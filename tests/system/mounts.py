# SPDX-License-Identifier: Apache-2.0
"""Mounts of os2g, for tests and benchmarks."""

import atexit
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import s3d


def _reachable(program):
    """program, or a copy of it where other users can run it: root's home, say, is closed to them."""
    if all(parent.stat().st_mode & 0o001 for parent in program.resolve().parents):
        return program
    place = tempfile.mkdtemp(prefix="os2g-bin-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    os.chmod(place, 0o755)
    return pathlib.Path(shutil.copy(program, place))


PROGRAM = _reachable(s3d.BUILD / "bin" / "os2g")
SECONDS = 30


def environment(access=s3d.ACCESS, secret=s3d.SECRET, **more):
    """What the programs see of the environment: no keys or settings of who runs the tests."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")
           and k.lower() not in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")}
    env.update(AWS_EC2_METADATA_DISABLED="true", AWS_CONFIG_FILE="/dev/null",
               AWS_SHARED_CREDENTIALS_FILE="/dev/null")
    if access:
        env.update(AWS_ACCESS_KEY_ID=access, AWS_SECRET_ACCESS_KEY=secret)
    env.update(more)
    return env


def arguments(options):
    """memory="1G", allow_other=True -> --memory 1G --allow-other"""
    words = []
    for name, value in options.items():
        if value is not None and value is not False:
            words.append("--" + name.replace("_", "-"))
            if value is not True:
                words.append(str(value))
    return words


def slowed_down():
    """How many times slower than usual the build under test may be: sanitizers take their time."""
    program = PROGRAM.read_bytes()
    return 5 if b"__tsan_init" in program or b"__asan_init" in program else 1


def wait_until(condition, seconds=SECONDS, what="what was waited for did not happen"):
    """The first true value of condition(); an AssertionError after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, what
        time.sleep(0.01)


def alive(pid):
    """Whether a process runs (a zombie does not)."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def is_mounted(path):
    return any(line.split()[4] == str(path) for line in open("/proc/self/mountinfo"))


def status_of(path, env=None, prefix=()):
    """All counters of the mount at path, see os2g(1)."""
    out = subprocess.run([*prefix, str(PROGRAM), "status", "--json", str(path)], check=True,
                         env=env or environment(), timeout=SECONDS, stdout=subprocess.PIPE)
    answer = json.loads(out.stdout)
    return answer[0] if isinstance(answer, list) else answer


class Mount:
    """`os2g mount SOURCE PATH` until umount(). source: "bench" or "bench/prefix/". What the command
    says when it fails is in the CalledProcessError's stderr. as_user: runs it as that user, who
    must be able to write to path. foreground: self.process is the supervisor."""

    def __init__(self, path, source, server=None, env=None, as_user=None, foreground=False,
                 command=("mount",), program=PROGRAM, **options):
        self.path = pathlib.Path(path)
        self.env = env or environment()
        self._as = ["runuser", "-u", as_user, "--"] if as_user else []
        self.process = None
        self.log = self.path.parent / (self.path.name + ".log")
        if server is not None:
            options.setdefault("endpoint_url", server.url)
        line = [*self._as, str(program), *command, *arguments(options), f"s3://{source}", str(path)]
        if not foreground:
            subprocess.run(line, env=self.env, check=True, timeout=90, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
            return
        self.process = subprocess.Popen([*line, "--foreground"], env=self.env,
                                        stderr=open(self.log, "w"))
        wait_until(lambda: is_mounted(self.path) or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise subprocess.CalledProcessError(self.process.returncode, line,
                                                stderr=self.log.read_text())

    def status(self):
        """All counters, see os2g(1)."""
        return status_of(self.path, self.env, self._as)

    def worker_pid(self):
        return self.status()["worker"]["pid"]

    def supervisor_pid(self):
        return self.status()["worker"]["supervisor_pid"]

    def child_pid(self):
        """The worker's pid without asking it, or None while there is none."""
        if not hasattr(self, "_supervisor"):
            self._supervisor = self.supervisor_pid()
        children = pathlib.Path(
            f"/proc/{self._supervisor}/task/{self._supervisor}/children").read_text().split()
        for pid in children:
            try:
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "os2g-worker":
                    return int(pid)
            except (FileNotFoundError, ProcessLookupError):
                pass
        return None

    def kill_worker(self):
        """kill -9 of the worker there is at the moment; its pid."""
        def kill():
            pid = self.child_pid()
            try:
                os.kill(pid, signal.SIGKILL)
            except (TypeError, ProcessLookupError):
                return None  # none there, or it was being reaped
            return pid

        return wait_until(kill)

    def umount(self, *options, check=True):
        """The CompletedProcess of os2g umount."""
        done = subprocess.run([*self._as, str(PROGRAM), "umount", *options, str(self.path)],
                              env=self.env, timeout=SECONDS, stderr=subprocess.PIPE, text=True)
        if check and done.returncode:
            raise subprocess.CalledProcessError(done.returncode, done.args, stderr=done.stderr)
        if self.process and done.returncode == 0:
            self.process.wait(timeout=SECONDS)
        return done

    def close(self):
        """Whatever the test has left of it."""
        if is_mounted(self.path):
            self.umount("--lazy", check=False)
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
