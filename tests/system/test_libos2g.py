# SPDX-License-Identifier: Apache-2.0
"""libos2g against the real daemon: calls, threads, forks, daemons that are killed, private ones."""

import contextlib
import errno
import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import libos2g
import mounts
import s3d
import synthetic
from test_socket import OS2GD, Single, single  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(libos2g.sanitized() is not None, reason=str(libos2g.sanitized()))

SPEC = "lib: big 40M; small 100000; empty 0; dir/a 10; dir/b 20; dir/deep/c 3M; one 1"
SIZES = {"big": 40 << 20, "small": 100000, "empty": 0, "dir/a": 10, "dir/b": 20,
         "dir/deep/c": 3 << 20, "one": 1}


@pytest.fixture
def place(server, single):
    """An export's server, daemon and socket."""
    s = server("--synthetic", SPEC)
    d = single("lib", s)
    assert d.line() == "ready"
    return s, d, d.path


def expected(key, offset=0, length=None):
    return synthetic.expected("lib", key, offset, SIZES[key] - offset if length is None else length)


def child_of(pid, name):
    """The child with this name, or None."""
    for child in open(f"/proc/{pid}/task/{pid}/children").read().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if open(f"/proc/{child}/comm").read().strip() == name:
                return int(child)
    return None


# --- calls ---

def test_every_object_is_fetched_right(place):
    with libos2g.Connection(place[2], buffer=41 << 20) as c:
        for key, size in SIZES.items():
            assert c.fetch(key) == expected(key), key
            assert c.fetch(key, size=size, plain=True) == expected(key), key
        stats = c.stats()
        assert stats["bounced_bytes"] == sum(SIZES.values())
        assert stats["errors"] == 1  # the room for big was found too small


def test_reads_of_all_sorts_are_right(place):
    chance = random.Random(7)
    with libos2g.Connection(place[2], buffer=41 << 20) as c:
        f = c.open("big")
        assert f.size == 40 << 20
        assert f.read(41 << 20, 0) == expected("big")
        for _ in range(40):
            offset, size = chance.randrange(40 << 20), chance.choice([1, 511, 4096, 70000, 9 << 20])
            size = min(size, f.size - offset)
            got = f.read(size, offset, plain=chance.random() < 0.3)
            assert got == expected("big", offset, size)
        assert f.read(10, 40 << 20) == b""
        f.close()


def test_names_and_attributes_are_those_of_a_mount(place, mount):
    m = mount("lib", server=place[0])
    with libos2g.Connection(place[2]) as c:
        for directory in ("", "dir", "/dir/deep/"):
            got = {name: (size, is_dir) for name, size, is_dir in c.list(directory)}
            want = {e.name: (0 if e.is_dir() else e.stat().st_size, e.is_dir())
                    for e in os.scandir(m.path / directory.strip("/")) if e.name != ".os2g"}
            got.pop(".os2g", None)
            assert got == want
        size, mtime, is_dir, etag = c.stat("dir/a")
        assert (size, is_dir) == (10, False) and mtime == (m.path / "dir/a").stat().st_mtime
        assert etag.strip('"') == synthetic.etag("lib", "dir/a")
        assert c.stat("dir")[2]


def test_errors_have_their_numbers_and_sentences(place):
    with libos2g.Connection(place[2]) as c:
        for call, number in ((lambda: c.fetch("nothing"), errno.ENOENT),
                             (lambda: c.open("nothing"), errno.ENOENT),
                             (lambda: c.open("dir"), errno.EISDIR),
                             (lambda: c.list("one"), errno.ENOTDIR),
                             (lambda: c.fetch("small", size=10), errno.EFBIG)):
            with pytest.raises(libos2g.Error) as e:
                call()
            assert e.value.errno == number and e.value.strerror
        assert c.fetch("one") == expected("one")


def test_a_mount_is_connected_to_by_any_directory_in_it(server, mount):
    m = mount("lib", server=server("--synthetic", SPEC))
    for where in (m.path, m.path / "dir"):
        with libos2g.Connection(where) as c:
            assert c.fetch("dir/a") == expected("dir/a")
    m.umount()


def test_the_environment_names_a_daemon_for_a_bucket(place, monkeypatch):
    monkeypatch.setenv("OS2G_SOCKET", str(place[2]))
    with libos2g.Connection("s3://lib") as c:
        assert c.fetch("one") == expected("one")


def test_a_daemon_named_by_the_environment_is_to_serve_what_is_asked_for(place, monkeypatch):
    monkeypatch.setenv("OS2G_SOCKET", str(place[2]))
    for where, server in (("s3://other", place[0].url), ("s3://lib", "http://127.0.0.1:1")):
        monkeypatch.setenv("AWS_ENDPOINT_URL", server)
        with pytest.raises(libos2g.Error) as e:
            libos2g.Connection(where)
        assert e.value.errno == errno.EINVAL
        for text in (where, server, "s3://lib/", place[0].url, str(place[2])):
            assert text in e.value.strerror
    with libos2g.Connection(place[2]) as c:  # by its path it is what it is
        assert c.fetch("one") == expected("one")


def test_a_daemon_serves_what_is_below_its_export(place, monkeypatch):
    monkeypatch.setenv("OS2G_SOCKET", str(place[2]))
    with libos2g.Connection("s3://lib/dir") as c:
        assert c.fetch("a") == expected("dir/a")
        assert {name for name, _, _ in c.list("")} == {"a", "b", "deep"}
        assert c.stat("deep/c")[0] == SIZES["dir/deep/c"]
        with contextlib.closing(c.open("deep/c")) as f:
            assert f.read(SIZES["dir/deep/c"], 0) == expected("dir/deep/c")
        with pytest.raises(libos2g.Error):
            c.fetch("one")


def test_a_place_without_a_daemon_is_an_error(tmp_path):
    for where in (tmp_path, tmp_path / "none"):
        with pytest.raises(libos2g.Error) as e:
            libos2g.Connection(where)
        assert e.value.errno == errno.ENOENT and str(where) in e.value.strerror


# --- threads, forks ---

def read_randomly(f, slot, rounds, wrong, until=None):
    chance = random.Random(slot)
    for i in range(rounds):
        if until and until.is_set():
            break
        size = chance.choice([100, 5000, 1 << 20])
        offset = chance.randrange((40 << 20) - size)
        if f.read(size, offset, at=slot << 20, plain=i % 4 == 0) != expected("big", offset, size):
            wrong.append((slot, offset, size))


def test_threads_share_a_connection_and_a_file(place):
    wrong = []
    with libos2g.Connection(place[2]) as c:
        f = c.open("big")
        threads = [threading.Thread(target=read_randomly, args=(f, i, 50, wrong)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        f.close()
    assert not wrong


def test_a_child_goes_on_with_what_was_made_before(place):
    with libos2g.Connection(place[2]) as c:
        f = c.open("big")
        assert f.read(4096, 0) == expected("big", 0, 4096)
        pid = os.fork()
        if pid == 0:
            ok = f.read(1 << 20, 12345) == expected("big", 12345, 1 << 20)
            ok = ok and c.fetch("dir/b") == expected("dir/b")
            os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert f.read(1 << 20, 777) == expected("big", 777, 1 << 20)
        f.close()


# --- time-outs ---

def test_a_store_that_does_not_answer_is_a_time_out_in_time(place):
    with libos2g.Connection(place[2], timeout=1) as c:
        f = c.open("big")
        place[0].latency("20s")
        begin = time.monotonic()
        with pytest.raises(libos2g.Error) as e:
            f.read(1 << 20, 20 << 20)
        assert e.value.errno == errno.ETIMEDOUT and time.monotonic() - begin < 5
        place[0].latency("0ms")
        f.close()


@pytest.mark.parametrize("fault, word", [("status 403 InvalidObjectState", "archive"),
                                         ("status 503 SlowDown", "SlowDown"),
                                         ("reset", "given up after 1 s")])
def test_the_log_says_why_an_object_could_not_be_got(server, single, tmp_path, fault, word):
    s = server("--synthetic", SPEC)
    with open(tmp_path / "log", "a") as log:
        d = single("lib", s, "-o", "retry-timeout=1s", stderr=log)
    assert d.line() == "ready"
    with libos2g.Connection(d.path) as c:
        f = c.open("big")
        s.faults(f"GetObject * 1.0 {fault}")
        for name, call in (("small", lambda: c.fetch("small")),  # a landing of one GET,
                           ("big", lambda: f.read(2 << 20, 0)),  # of pieces,
                           ("big", lambda: f.read(100, 9 << 20))):  # by way of pages
            (tmp_path / "log").write_text("")
            with pytest.raises(libos2g.Error) as e:
                call()
            assert e.value.errno == errno.EIO and "log says why" in e.value.strerror
            said = (tmp_path / "log").read_text()
            assert name in said and word in said
        s.faults("")
        f.close()


# --- daemons that go ---

def test_a_killed_worker_is_not_noticed(place):
    _, daemon, path = place
    wrong, done = [], threading.Event()
    with libos2g.Connection(path) as c:
        f = c.open("big")
        threads = [threading.Thread(target=read_randomly, args=(f, i, 10000, wrong, done))
                   for i in range(3)]
        for t in threads:
            t.start()
        for _ in range(5):
            worker = mounts.wait_until(lambda: child_of(daemon.process.pid, "os2g-worker"))
            os.kill(worker, signal.SIGKILL)
            time.sleep(0.4)
        done.set()
        for t in threads:
            t.join()
        f.close()
        assert not wrong and c.events == []


@pytest.mark.parametrize("number", [signal.SIGCONT, signal.SIGKILL])
def test_memory_is_taken_back_from_requests_that_no_worker_has_taken_yet(place, number):
    with libos2g.Connection(place[2]) as c, libos2g.Connection(place[2]) as other:
        worker = child_of(place[1].process.pid, "os2g-worker")
        results = []
        buffers = [c.buffer(1 << 20) for _ in range(8)]
        os.kill(worker, signal.SIGSTOP)
        threads = [threading.Thread(target=lambda b=b: results.append(b.fetch("small")))
                   for b in buffers]
        threads += [threading.Thread(target=b.free) for b in buffers]
        for t in threads:
            t.start()
            time.sleep(0.02)
        os.kill(worker, number)
        for t in threads:
            t.join()
        # taken or not: what had begun to land before its memory went is whole
        assert -errno.ECANCELED in results and set(results) <= {0, -errno.ECANCELED}
        assert c.fetch("one") == other.fetch("one") == expected("one")
        assert c.events == other.events == []


def test_a_daemon_that_is_started_anew_is_found_again(server, single, tmp_path):
    s = server("--synthetic", SPEC)
    first = single("lib", s)
    assert first.line() == "ready"
    wrong, done = [], threading.Event()
    with libos2g.Connection(first.path) as c:
        f = c.open("big")
        thread = threading.Thread(target=read_randomly, args=(f, 0, 100000, wrong, done))
        thread.start()
        time.sleep(0.3)
        first.process.kill()
        first.process.wait()
        time.sleep(0.5)
        assert single("lib", s, path=first.path).line() == "ready"
        time.sleep(1)
        done.set()
        thread.join()
        assert not wrong
        assert c.fetch("dir/a") == expected("dir/a")
        assert c.events == ["lost", "reconnected"] and c.stats()["reconnects"] == 1
        f.close()


def test_an_object_that_has_changed_while_the_daemon_was_away_is_stale(server, single):
    s = server("--synthetic", SPEC)
    first = single("lib", s)
    assert first.line() == "ready"
    with libos2g.Connection(first.path) as c:
        f = c.open("big")
        assert f.read(10, 0) == expected("big", 0, 10)
        first.process.kill()
        first.process.wait()
        s.touch("lib", "big")
        assert single("lib", s, path=first.path).line() == "ready"
        with pytest.raises(libos2g.Error) as e:
            f.read(10, 0)
        assert e.value.errno == errno.ESTALE
        f.close()


def test_a_daemon_that_does_not_come_back_is_told(place):
    with libos2g.Connection(place[2], timeout=1) as c:
        place[1].process.kill()
        place[1].process.wait()
        with pytest.raises(libos2g.Error) as e:
            c.fetch("one")
        assert e.value.errno == errno.ENOTCONN


# --- private daemons ---

@pytest.fixture
def private(tmp_path, monkeypatch):
    """The environment of a user who has no daemon yet."""
    for name in [n for n in os.environ if n.startswith(("AWS_", "OS2G"))]:
        monkeypatch.delenv(name)
    for name, value in mounts.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OS2GD", str(OS2GD))
    monkeypatch.setenv("OS2G_TEST", str(tmp_path))  # a name of its own for this test's daemon
    yield None
    for pid in daemons(tmp_path):
        os.kill(pid, signal.SIGTERM)


def daemons(mark):
    """The supervisors of daemons that were started by this test."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            environment = open(f"/proc/{pid}/environ", "rb").read()
            comm = open(f"/proc/{pid}/comm").read().strip()
            if comm == "os2g-supervisor" and f"OS2G_TEST={mark}\0".encode() in environment:
                found.append(int(pid))
    return found


def test_many_processes_start_one_daemon_that_ends_after_them(server, private, tmp_path):
    s = server("--synthetic", SPEC)
    os.environ["AWS_ENDPOINT_URL"] = s.url
    users = [subprocess.Popen([sys.executable, libos2g.__file__, "fetch", "s3://lib/dir", "a"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
             for _ in range(8)]
    want = f"10 {hashlib.sha256(expected('dir/a')).hexdigest()}\n"
    assert [u.stdout.readline() for u in users] == [want] * 8
    pids = daemons(tmp_path)
    assert len(pids) == 1
    # nobody's child here, in a session of its own, without our descriptors
    assert os.getsid(pids[0]) not in (os.getsid(0), os.getpgid(0))
    assert os.readlink(f"/proc/{pids[0]}/fd/0") == "/dev/null"
    for u in users:
        u.stdin.close()
        assert u.wait(timeout=30) == 0
        u.stdout.close()
    mounts.wait_until(lambda: not daemons(tmp_path), what="the daemon stays")


def test_what_a_private_daemon_says_is_the_error(server, private):
    s = server("--synthetic", SPEC)
    with pytest.raises(libos2g.Error) as e:
        libos2g.Connection("s3://other-bucket", export_options={"endpoint-url": s.url})
    assert e.value.errno == errno.ENOENT and "other-bucket" in e.value.strerror
    with pytest.raises(libos2g.Error) as e:
        libos2g.Connection("s3://lib", export_options={"no-such-option": 1})
    assert "no-such-option" in e.value.strerror


def test_a_private_daemon_inherits_nothing(server, private):
    s = server("--synthetic", SPEC)
    ours, inherited = os.pipe()
    os.set_inheritable(inherited, True)
    with libos2g.Connection("s3://lib", export_options={"endpoint-url": s.url}) as c:
        os.close(inherited)
        os.set_blocking(ours, False)
        assert os.read(ours, 1) == b""  # nobody else holds its other end
        assert c.fetch("one") == expected("one")
    os.close(ours)


def test_no_daemon_is_started_against_ones_will(server, private):
    with pytest.raises(libos2g.Error) as e:
        libos2g.Connection("s3://lib", no_start=True)
    assert e.value.errno == errno.ENOENT


def test_a_program_that_is_not_there_is_told(private):
    with pytest.raises(libos2g.Error) as e:
        libos2g.Connection("s3://lib", program="/no/such/os2gd")
    assert e.value.errno == errno.ENOENT and "/no/such/os2gd" in e.value.strerror


def test_a_private_daemon_that_was_killed_is_started_again(server, private, tmp_path):
    s = server("--synthetic", SPEC)
    with libos2g.Connection("s3://lib", export_options={"endpoint-url": s.url}) as c:
        f = c.open("small")
        assert f.read(100, 5) == expected("small", 5, 100)
        os.kill(daemons(tmp_path)[0], signal.SIGKILL)

        def read_again():
            assert f.read(100, 50) == expected("small", 50, 100)
            return len(c.events) >= 2

        # the worker, which ends with its supervisor, may still answer
        mounts.wait_until(read_again)
        assert c.events == ["lost", "reconnected"]
        f.close()
