# SPDX-License-Identifier: Apache-2.0
"""Objects into a GPU's memory by each way of landing; the CUDA driver is the test double."""

import hashlib
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

import mounts
import s3d
import synthetic
from test_gdd import FETCH_FAULTS

SPEC = "gpu: small/%03d.bin 100K x 64; odd 1000003; big.bin 96M; empty 0"
SMALL, BIG = 100 << 10, 96 << 20
DOUBLE = s3d.BUILD / "tests" / "double" / "libcuda-double.so"
READER = s3d.BUILD / "tests" / "system" / "gpu" / "gpu_reader"
OS2GD = mounts._reachable(s3d.BUILD / "bin" / "os2gd")
# where the daemon's worker, another user when root runs the tests, can load it
LIBRARY = mounts._reachable(DOUBLE)
WAYS = ["pull", "open", "ipc"]


def environment(**more):
    return mounts.environment(**{"OS2G_CUDA_LIBRARY": str(LIBRARY), **more})


def children(pid):
    """The processes that pid, or a thread of it, has started."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            found += [int(p) for p in (task / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


class Daemon:
    """os2gd with one export, and a socket for hosts."""

    def __init__(self, server, path, **env):
        self.path = path
        self.process = subprocess.Popen(
            [OS2GD, "--export", "s3://gpu", f"--endpoint-url={server.url}", "--socket", path,
             "--memory", "128M"], env=environment(**env), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.log = []
        self._reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr))
        self._reader.start()
        assert self.process.stdout.readline() == "ready\n", self.log

    def helpers(self):
        """The processes that drive the GPU, one for each session that has memory of it."""
        def name(pid):
            try:
                return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
            except (FileNotFoundError, ProcessLookupError):
                return ""

        below = [p for worker in children(self.process.pid) for p in children(worker)]
        return [p for p in below if name(p) == "os2g-gpu"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=30)
        self._reader.join(timeout=30)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


class Gpu:
    """A process with a GPU buffer of this size."""

    def __init__(self, where, way, size=BIG, **env):
        self.process = subprocess.Popen([READER, where, way, str(size)], env=environment(**env),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.events = []
        self._reader = threading.Thread(target=lambda: self.events.extend(self.process.stderr))
        self._reader.start()
        self.greeting = self.process.stdout.readline().strip()

    def begin(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def end(self):
        return self.process.stdout.readline().strip()

    def ask(self, *words):
        self.begin(*words)
        return self.end()

    def stop(self):
        self.process.stdin.close()
        try:
            code = self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._reader.join(timeout=30)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.fixture
def world(server, tmp_path):
    """world.daemon(...), world.gpu(way, ...); they end with the test, and well."""
    class World:
        store = None
        daemons, gpus = [], []

        def daemon(self, *options, **env):
            self.store = server("--synthetic", SPEC, *options)
            self.daemons.append(Daemon(self.store, tmp_path / f"socket{len(self.daemons)}", **env))
            return self.daemons[-1]

        def gpu(self, way, *size, **env):
            self.gpus.append(Gpu(self.daemons[-1].path, way, *size, **env))
            assert self.gpus[-1].greeting == "ready", self.gpus[-1].events
            return self.gpus[-1]

    tmp_path.chmod(0o755)
    one = World()
    yield one
    codes = [g.stop() for g in one.gpus] + [d.stop() for d in one.daemons]
    assert all(code == 0 for code in codes), (codes, [g.events for g in one.gpus],
                                              [d.log for d in one.daemons])


def right(key, offset, length):
    """What is to be answered when these bytes lie in the GPU's memory."""
    data = synthetic.expected("gpu", key, offset, length)
    return f"{hashlib.sha256(data).hexdigest()} {length}"


def read_all_kinds(gpu):
    assert gpu.ask("read", "big.bin", 0, BIG) == right("big.bin", 0, BIG)
    assert gpu.ask("read", "odd", 12345, 10 << 20) == right("odd", 12345, 1000003 - 12345)
    assert gpu.ask("read", "empty", 0, 100).endswith(" 0")
    assert gpu.ask("fetch", "small/007.bin") == right("small/007.bin", 0, SMALL)
    assert gpu.ask("fetch", "big.bin") == right("big.bin", 0, BIG)
    keys = [f"small/{i:03d}.bin" for i in range(48)]
    assert gpu.ask("batch", 1 << 17, *keys) == " ".join(right(k, 0, SMALL) for k in keys)
    assert gpu.ask("stream", "big.bin", 4321, 7 << 20) == right("big.bin", 4321, 7 << 20)
    assert gpu.ask("fetch", "nothing").startswith("error 2 ")


@pytest.mark.parametrize("way", WAYS)
def test_every_call_lands_the_right_bytes(world, way):
    daemon = world.daemon()
    gpu = world.gpu(way)
    assert len(daemon.helpers()) == (0 if way == "pull" else 1)
    read_all_kinds(gpu)
    assert int(gpu.ask("stats").split()[0]) > 2 * BIG
    assert gpu.events == []
    world.gpus.remove(gpu)
    assert gpu.stop() == 0
    mounts.wait_until(lambda: not daemon.helpers(), what="the helper outlives its session")


@pytest.mark.parametrize("way", WAYS)
def test_bytes_are_right_while_the_store_misbehaves(world, way, tmp_path):
    faults = tmp_path / "faults"
    # a stalled body costs ten seconds, and has its test elsewhere
    faults.write_text("\n".join(line for line in FETCH_FAULTS.splitlines() if " stall " not in line))
    world.daemon("--faults", faults)
    gpu = world.gpu(way)
    for _ in range(3):
        assert gpu.ask("read", "big.bin", 0, BIG) == right("big.bin", 0, BIG)
    for i in range(64):
        assert gpu.ask("fetch", f"small/{i:03d}.bin") == right(f"small/{i:03d}.bin", 0, SMALL)


@pytest.mark.parametrize("way", WAYS)
def test_slow_copies_lose_nothing(world, way):
    world.daemon(OS2G_CUDA_DOUBLE_DELAY_US="3000")
    gpu = world.gpu(way, OS2G_CUDA_DOUBLE_DELAY_US="3000")
    assert gpu.ask("read", "big.bin", 0, BIG) == right("big.bin", 0, BIG)
    assert gpu.ask("stream", "big.bin", 99, 9 << 20) == right("big.bin", 99, 9 << 20)


def test_a_daemon_without_the_gpu_is_pulled_from_and_that_is_told(world):
    world.daemon(CUDA_VISIBLE_DEVICES="")
    gpu = world.gpu("any")
    assert gpu.ask("read", "odd", 0, 1000003) == right("odd", 0, 1000003)
    assert len(gpu.events) == 1 and gpu.events[0].startswith("event fallback: "), gpu.events


def test_a_machine_without_a_driver_has_no_helper_and_pulls(world):
    daemon = world.daemon(OS2G_CUDA_LIBRARY="")
    gpu = world.gpu("any")
    assert gpu.ask("fetch", "odd") == right("odd", 0, 1000003)
    assert daemon.helpers() == []


def test_a_helper_that_is_killed_costs_its_session_alone(world):
    daemon = world.daemon(OS2G_CUDA_DOUBLE_DELAY_US="20000")
    first, second = world.gpu("open"), world.gpu("ipc")
    helpers = daemon.helpers()
    assert len(helpers) == 2
    first.begin("read", "big.bin", 0, BIG)
    second.begin("read", "big.bin", 0, BIG)
    os.kill(min(helpers), signal.SIGKILL)
    answers = [first.end(), second.end()]
    # whichever lost its helper: an error or, after another session, the right bytes
    good = right("big.bin", 0, BIG)
    assert good in answers and all(a == good or a.startswith("error 5 ") for a in answers), answers
    for gpu in (first, second):
        assert gpu.ask("read", "odd", 0, 1000003) == right("odd", 0, 1000003)
    assert len(daemon.helpers()) == 2
    assert daemon.process.poll() is None


def test_a_cuda_error_costs_its_session_alone(world):
    daemon = world.daemon(OS2G_CUDA_DOUBLE_FAIL="copy:40:719")
    first = world.gpu("open")
    # not more than 39 copies with either of these
    second = world.gpu("open")
    answer = first.ask("read", "big.bin", 0, BIG)
    assert answer == right("big.bin", 0, BIG) or answer.startswith("error "), answer
    assert second.ask("fetch", "small/001.bin") == right("small/001.bin", 0, SMALL)
    assert not any("lost" in e for e in second.events)
    assert daemon.process.poll() is None
    mounts.wait_until(lambda: any("unspecified launch failure" in line for line in daemon.log))


def test_a_worker_that_is_killed_takes_its_helper_along_and_the_next_goes_on(world):
    daemon = world.daemon(OS2G_CUDA_DOUBLE_DELAY_US="2000")
    gpu = world.gpu("open")
    helper, = daemon.helpers()
    worker, = [p for p in children(daemon.process.pid) if helper in children(p)]
    gpu.begin("read", "big.bin", 0, BIG)
    os.kill(worker, signal.SIGKILL)
    assert gpu.end() == right("big.bin", 0, BIG)
    mounts.wait_until(lambda: not mounts.alive(helper), what="the helper outlives its worker")


class LastPart:
    """What the kernel keeps of a process for a while after it was killed, as a GPU's driver makes it
    do: the end of the pipe by which the supervisor sees that."""

    def __init__(self, pid):
        self.fd = os.open(f"/proc/{pid}/fd/8", os.O_WRONLY | os.O_CLOEXEC)
        assert "pipe:" in os.readlink(f"/proc/self/fd/{self.fd}")

    def end(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def begin_and_kill_the_worker(daemon, gpu):
    """With a read under way. What is left of its helper."""
    helper, = daemon.helpers()
    worker, = [p for p in children(daemon.process.pid) if helper in children(p)]
    gpu.begin("read", "big.bin", 0, BIG)
    last = LastPart(helper)
    os.kill(worker, signal.SIGKILL)
    mounts.wait_until(lambda: not mounts.alive(helper) and not children(daemon.process.pid))
    return last


def test_the_next_worker_waits_until_nothing_is_left_of_the_helper(world):
    daemon = world.daemon(OS2G_CUDA_DOUBLE_DELAY_US="2000")
    gpu = world.gpu("open")
    with begin_and_kill_the_worker(daemon, gpu) as last:
        time.sleep(1)
        assert not children(daemon.process.pid)
        last.end()
        assert gpu.end() == right("big.bin", 0, BIG)
    assert not any("going on without" in line for line in daemon.log)


def test_a_helper_that_does_not_end_is_not_waited_for_for_ever(world):
    daemon = world.daemon(OS2G_CUDA_DOUBLE_DELAY_US="2000")
    gpu = world.gpu("open")
    with begin_and_kill_the_worker(daemon, gpu):
        assert gpu.end() == right("big.bin", 0, BIG)
        mounts.wait_until(lambda: any("going on without" in line for line in daemon.log))


def test_a_daemon_that_is_to_end_hangs_up_when_nothing_is_left_of_the_helper(world):
    daemon = world.daemon(OS2G_CUDA_DOUBLE_DELAY_US="2000")
    gpu = world.gpu("open")
    with begin_and_kill_the_worker(daemon, gpu) as last:
        daemon.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert daemon.process.poll() is None and not any("lost" in e for e in gpu.events)
        last.end()
        mounts.wait_until(lambda: daemon.process.poll() is not None)
        mounts.wait_until(lambda: any("lost" in e for e in gpu.events))
    assert daemon.process.returncode == 0
    world.gpus.remove(gpu)
    gpu.process.kill()  # it waits for the daemon to come back
    gpu.stop()


def test_the_example_streams_objects_into_gpu_memory(world):
    daemon = world.daemon()
    done = subprocess.run([s3d.BUILD / "examples" / "gpu_stream", f"{daemon.path}"], env=environment(),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    # at the top: one object that fits into a slot, the empty one, and one that does not
    assert done.stdout.startswith("2 objects, 1000003 bytes in GPU memory, 1 failed"), done.stdout


def test_gpu_check_works_but_for_the_gpu(tmp_path):
    script = s3d.ROOT / "scripts" / "gpu-check"
    done = subprocess.run([script, "--double", "--build", s3d.BUILD, "--size", str(32 << 20)],
                          env=mounts.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(" right") == 4, done.stdout


def test_gpu_check_says_what_is_missing(tmp_path):
    script = s3d.ROOT / "scripts" / "gpu-check"
    env = mounts.environment(PATH="/nonexistent")
    done = subprocess.run(["/usr/bin/python3", script, "--build", tmp_path], env=env,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert "meson" in done.stderr and "--pack" in done.stderr
