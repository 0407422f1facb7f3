# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the worker, and upgrades, while hosts that share memory read: a guest's driver and
libos2g, as far as the wire tells them apart. What they see is a pause."""

import contextlib
import os
import random
import shutil
import signal
import threading
import time

import pytest

import mounts
import synthetic
import vhost_frontend

KILLS = 20
SPEC = "bench: big/one.bin 256M; small/%03d.bin 100K x 200"
MEMORY = 64 << 20


def check(data, key, offset, size):
    """What is wrong with data that should be size bytes of key from offset on, or None."""
    if len(data) != size:
        return f"{key}: {len(data)} bytes instead of {size}"
    at = synthetic.first_wrong(data, "bench", key, offset)
    return None if at is None else f"{key}: byte {offset + at} is wrong"


class Host:
    """A session that reads until stop(); what went wrong is in errors, and how long it waited for
    an answer at most in longest."""

    def __init__(self, path, hello):
        self.errors, self.rounds, self.longest, self.hello = [], 0, 0.0, hello
        self._path, self._end = path, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            with vhost_frontend.Session(self._path, size=MEMORY, hello=self.hello) as session:
                rng = random.Random(self.hello)
                node, handle = session.open_path("big/one.bin")
                start = session.memory._next
                while not self._end.is_set():
                    self._round(session, rng, node, handle)
                    session.memory._next = start
                    self.rounds += 1
                session.release(node, handle)
                session.forget(node)
        except (OSError, AssertionError, vhost_frontend.Ended) as error:
            self.errors.append(repr(error))

    def _round(self, session, rng, node, handle):
        """Several requests at a time: reads of the open file, a lookup, and a whole object."""
        begin = time.monotonic()
        largest = (4 << 20) if self.hello else (1 << 20)
        reads = []
        for _ in range(6):
            size = rng.randrange(1, largest)
            offset = rng.randrange(0, (256 << 20) - size)
            reads.append((session.start_read(node, handle, offset, size), offset, size))
        key = f"small/{rng.randrange(200):03d}.bin"
        if self.hello:
            wrong = check(session.fetch(key, 128 << 10), key, 0, 102400)
        else:
            small = session.lookup_path(key)
            opened = session.open(small)
            wrong = check(session.read(small, opened, 0, 1 << 17), key, 0, 102400)
            session.release(small, opened)
            session.forget(small)
        self._note(wrong)
        for (request, memory, at), offset, size in reads:
            error, _ = request.answer()
            self._note(f"error {error}" if error else
                       check(memory.bytes(at, size), "big/one.bin", offset, size))
        self.longest = max(self.longest, time.monotonic() - begin)

    def _note(self, wrong):
        if wrong:
            self.errors.append(wrong)
            self._end.set()

    def stop(self):
        self._end.set()
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), "a host hangs"


@contextlib.contextmanager
def hosts_of(path):
    """A guest and a libos2g that read, and have read something."""
    hosts = [Host(path, hello=False), Host(path, hello=True)]
    try:
        mounts.wait_until(lambda: all(h.rounds or h.errors for h in hosts))
        yield hosts
    finally:
        for h in hosts:
            h.stop()
    assert not [e for h in hosts for e in h.errors]


@pytest.fixture
def place(tmp_path):
    """Where the socket is."""
    return tmp_path / "socket"


def test_twenty_crashes_are_not_noticed(server, mount, place):
    m = mount("bench", server=server("--synthetic", SPEC, "--latency", "2ms"), socket=place)
    longest = []
    with hosts_of(place) as hosts:
        for _ in range(KILLS):
            for h in hosts:
                h.longest = 0.0
            m.kill_worker()
            before = [h.rounds for h in hosts]
            mounts.wait_until(lambda b=before: all(h.rounds > n + 1 or h.errors
                                                   for h, n in zip(hosts, b)))
            longest.append(max(h.longest for h in hosts))
            if any(h.errors for h in hosts):
                break
        status = m.status()
    assert status["worker"]["restarts"] == KILLS
    assert status["vhost"]["bad"] == 0 and status["vhost"]["sessions"] == 2
    longest.sort()
    assert longest[KILLS // 2] < 2 * mounts.slowed_down(), longest
    assert longest[-1] < 10 * mounts.slowed_down(), longest
    # what the hosts held has been given back
    mounts.wait_until(lambda: m.status()["vhost"]["sessions"] == 0)
    mounts.wait_until(lambda: m.status()["fs"]["handles"] == 0)


def test_a_worker_that_is_killed_at_once_again_is_followed_by_the_next(server, mount, place):
    m = mount("bench", server=server("--synthetic", SPEC), socket=place)
    with vhost_frontend.Session(place, hello=True) as session:
        for _ in range(6):
            m.kill_worker()
        assert check(session.fetch("small/007.bin", 1 << 17), "small/007.bin", 0, 102400) is None


def test_hosts_that_come_and_go_while_there_is_no_worker_are_served_by_the_next(server, mount,
                                                                               place):
    m = mount("bench", server=server("--synthetic", SPEC), socket=place)
    staying = vhost_frontend.Session(place, hello=True)
    leaving = vhost_frontend.Session(place, hello=True)
    node, handle = staying.open_path("small/001.bin")
    leaving.open_path("small/002.bin")
    m.kill_worker()
    leaving.close()
    # what the one that left held is given back
    mounts.wait_until(lambda: m.status()["fs"]["handles"] == 1)
    with staying, vhost_frontend.Session(place) as coming:
        other, opened = coming.open_path("small/003.bin")
        data = coming.read(other, opened, 0, 1 << 17)
        assert check(data, "small/003.bin", 0, 102400) is None
        data = staying.read(node, handle, 0, 1 << 17)
        assert check(data, "small/001.bin", 0, 102400) is None


def test_an_upgrade_is_not_noticed(server, mount, place, tmp_path):
    program = tmp_path / "os2g"
    shutil.copy(mounts.PROGRAM, program)
    m = mount("bench", server=server("--synthetic", SPEC), socket=place, program=program,
              foreground=True)
    with hosts_of(place) as hosts:
        for _ in range(3):
            old = m.worker_pid()
            copy = tmp_path / "copy"
            shutil.copy(mounts.PROGRAM, copy)
            os.rename(copy, program)
            m.process.send_signal(signal.SIGHUP)
            mounts.wait_until(lambda o=old: m.child_pid() not in (None, o))
            before = [h.rounds for h in hosts]
            mounts.wait_until(lambda b=before: all(h.rounds > n + 1 or h.errors
                                                   for h, n in zip(hosts, b)))
    assert max(h.longest for h in hosts) < 10 * mounts.slowed_down()
