# SPDX-License-Identifier: Apache-2.0
"""The socket of an export: where it is, who may connect, what garbage does; exports without a mount."""

import array
import contextlib
import ctypes
import errno
import os
import random
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time

import pytest

import mounts
import s3d
import synthetic
from test_os2gd import daemon, export  # noqa: F401 (a fixture)

SPEC = "one: a 5; b 7; big 100M"
OS2GD = mounts._reachable(s3d.BUILD / "bin" / "os2gd")

GET_FEATURES, SET_FEATURES, ADD_MEM_REG, SET_OWNER = 1, 2, 37, 3
NEED_REPLY = 8


class Host:
    """A vhost-user front-end, or what takes itself for one."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.settimeout(20)

    def send(self, request, payload=b"", flags=0, fds=()):
        message = struct.pack("<III", request, 1 | flags, len(payload)) + payload
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([message], rights)

    def ask(self, request, payload=b"", fds=()):
        """The u64 of the answer; None when the other side has ended."""
        self.send(request, payload, NEED_REPLY, fds)
        answer = self.socket.recv(20, socket.MSG_WAITALL)
        return struct.unpack("<IIIQ", answer)[3] if answer else None

    def add_memory(self, address, size):
        fd = os.memfd_create("host")
        os.truncate(fd, size)
        answer = self.ask(ADD_MEM_REG, struct.pack("<5Q", 0, address, size, address, 0), [fd])
        os.close(fd)
        return answer

    def is_ended(self):
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.socket.close()


@contextlib.contextmanager
def host(path):
    h = Host(path)
    try:
        yield h
    finally:
        h.close()


class Single:
    """os2gd --export SOURCE --socket PATH ..."""

    def __init__(self, source, server, path, *options, user=None, **more):
        prefix = ["runuser", "-u", user, "--"] if user else []
        self.path = path
        self.process = subprocess.Popen(
            [*prefix, OS2GD, "--export", f"s3://{source}", f"--endpoint-url={server.url}",
             "--socket", path, *options], env=mounts.environment(), stdout=subprocess.PIPE,
            text=True, **more)

    def line(self):
        return self.process.stdout.readline().rstrip("\n")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.stdout.close()
        return self.process.wait(timeout=30)


@pytest.fixture
def single(tmp_path):
    running = []

    def start(source, server, *options, path=None, **more):
        running.append(Single(source, server, path or tmp_path / "socket", *options, **more))
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.mark.parametrize("files", [8, 12, 20, 40])
def test_too_low_a_limit_of_open_files_is_named(server, single, files):
    d = single("one", server("--synthetic", SPEC), stderr=subprocess.PIPE,
               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
    said = d.process.stderr.read()
    d.process.stderr.close()
    assert d.stop() == 1 and f"only {files} files open" in said and "ulimit -Hn" in said, said


def test_a_low_limit_of_open_files_is_raised_where_it_may_be(server, single):
    d = single("one", server("--synthetic", SPEC),
               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (20, 1024)))
    assert d.line() == "ready"


def test_a_daemon_of_few_files_says_that_connections_will_be_few(server, single):
    d = single("one", server("--synthetic", SPEC), stderr=subprocess.PIPE,
               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80)))
    assert d.line() == "ready"
    assert "connections to the store" in d.process.stderr.readline()
    d.process.stderr.close()


def hosts_of(path):
    return mounts.status_of(path)["vhost"]["hosts"]


# --- beside a mount ---

def test_a_mount_offers_a_socket_to_its_user_alone(server, mount):
    m = mount("one", server=server("--synthetic", SPEC))
    path = m.status()["socket"]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with host(path) as h:
        assert h.ask(GET_FEATURES) & 1 << 32
    m.umount()
    assert not os.path.exists(path)


def test_the_environment_says_where_and_an_option_overrides_it(server, mount, tmp_path):
    s = server("--synthetic", SPEC)
    env = mounts.environment(OS2G_SOCKET=str(tmp_path / "env.sock"))
    m = mount("one", server=s, env=env)
    assert m.status()["socket"] == str(tmp_path / "env.sock")
    m.umount()
    m = mount("one", server=s, env=env, socket=tmp_path / "option.sock")
    assert m.status()["socket"] == str(tmp_path / "option.sock")
    assert not (tmp_path / "env.sock").exists()


def test_none_offers_none(server, mount):
    m = mount("one", server=server("--synthetic", SPEC), socket="none")
    assert m.status()["socket"] is None
    assert (m.path / "a").read_bytes() == synthetic.expected("one", "a", 0, 5)


def test_a_mount_is_asked_for_its_status_by_its_socket_too(server, mount, tmp_path):
    s = server("--synthetic", SPEC)
    for m in (mount("one", server=s), mount("one", server=s, socket=tmp_path / "its.sock")):
        path = m.status()["socket"]
        assert mounts.status_of(path)["directory"] == str(m.path)
        m.umount()
        done = subprocess.run([mounts.PROGRAM, "status", path], stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1, done.stderr


def test_what_a_killed_daemon_has_left_is_in_nobodys_way(server, mount, tmp_path):
    s = server("--synthetic", SPEC)
    m = mount("one", server=s)
    default = m.status()["socket"]
    m.umount()
    m = mount("one", path=m.path, server=s, socket=tmp_path / "its.sock")
    assert os.readlink(default) == str(tmp_path / "its.sock")
    os.kill(m.supervisor_pid(), signal.SIGKILL)
    subprocess.run([mounts.PROGRAM, "umount", "--lazy", str(m.path)], check=False)
    mounts.wait_until(lambda: not mounts.is_mounted(m.path))
    m = mount("one", path=m.path, server=s)
    assert m.status()["socket"] == default and not os.path.islink(default)
    m.umount()
    m = mount("one", path=m.path, server=s, socket=tmp_path / "its.sock")
    assert mounts.status_of(tmp_path / "its.sock")["directory"] == str(m.path)
    m.umount()
    assert not os.path.lexists(default) and not (tmp_path / "its.sock").exists()


def test_the_socket_has_the_mode_and_group_that_were_asked_for(server, mount, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to give a socket away")
    s = server("--synthetic", SPEC)
    mount("one", server=s, socket=tmp_path / "s", socket_group="nogroup")
    st = os.stat(tmp_path / "s")
    assert stat.S_IMODE(st.st_mode) == 0o660 and st.st_gid == 65534
    mount("one", server=s, socket=tmp_path / "t", socket_mode="0640")
    assert stat.S_IMODE(os.stat(tmp_path / "t").st_mode) == 0o640


ASK_AS_OTHER = """
import socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
try:
    s.connect(sys.argv[1])
except PermissionError:
    sys.exit("closed")
try:
    s.sendall(struct.pack("<III", 1, 1, 0))
    sys.exit("answered" if s.recv(20) else "refused")
except (BrokenPipeError, ConnectionResetError):
    sys.exit("refused")
"""


def ask_as_nobody(path):
    done = subprocess.run(["runuser", "-u", "nobody", "--", "/usr/bin/python3", "-c", ASK_AS_OTHER,
                           str(path)], stderr=subprocess.PIPE, text=True, timeout=60)
    return done.stderr.strip()


def test_a_peer_is_known_by_what_the_kernel_says_of_it(server, mount):
    if os.geteuid() != 0:
        pytest.skip("needs root to be somebody else")
    s = server("--synthetic", SPEC)
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        mount("one", server=s, socket=f"{place}/a")
        mount("one", server=s, socket=f"{place}/b", socket_mode="0666")
        mount("one", server=s, socket=f"{place}/c", socket_mode="0666", socket_allow="root,nobody")
        mount("one", server=s, socket=f"{place}/d", socket_group="nogroup")
        assert ask_as_nobody(f"{place}/a") == "closed"
        assert ask_as_nobody(f"{place}/b") == "refused"
        assert ask_as_nobody(f"{place}/c") == "answered"
        assert ask_as_nobody(f"{place}/d") == "answered"  # the group was asked for


# --- exports without a mount ---

def test_an_export_of_the_configuration_may_have_a_socket_alone(server, daemon, tmp_path):  # noqa: F811
    s = server("--synthetic", SPEC)
    path = tmp_path / "bucket.sock"
    d = daemon(export("mounted", "one", tmp_path / "m", s) +
               f"[export alone]\nsource = s3://one\nendpoint-url = {s.url}\nsocket = {path}\n")
    d.heard("READY=1")
    with host(path) as h:
        assert h.ask(GET_FEATURES) & 1 << 32
        status = mounts.status_of(path)
        assert status["directory"] is None and status["socket"] == str(path)
        assert [x["pid"] for x in status["vhost"]["hosts"]] == [os.getpid()]
    assert d.stop() == 0
    assert not path.exists()


def test_a_reload_takes_sockets_over_and_away(server, daemon, tmp_path):  # noqa: F811
    s = server("--synthetic", SPEC)

    def alone(name):
        return (f"[export {name}]\nsource = s3://one\nendpoint-url = {s.url}\n"
                f"socket = {tmp_path / name}\n")

    d = daemon(alone("first") + alone("second"))
    d.heard("READY=1")
    with host(tmp_path / "first") as stays, host(tmp_path / "second") as goes:
        assert stays.ask(GET_FEATURES) and goes.ask(GET_FEATURES)
        d.file.write_text(alone("first") + "memory = 64M\n" + alone("third"))
        d.process.send_signal(signal.SIGHUP)
        d.heard("READY=1")
        assert goes.is_ended()
        mounts.wait_until(lambda: (tmp_path / "third").exists())
        assert stays.ask(GET_FEATURES)
        mounts.wait_until(lambda: hosts_of(tmp_path / "first"))
    assert not (tmp_path / "second").exists()


def test_a_daemon_of_one_export_says_when_it_is_ready(server, single, tmp_path):
    d = single("one", server("--synthetic", SPEC), "-o", "memory=64M,threads=1")
    assert d.line() == "ready"
    with host(d.path) as h:
        assert h.ask(GET_FEATURES)
    assert mounts.status_of(d.path)["options"]["memory"] == "64M"
    assert d.stop() == 0
    assert not d.path.exists()


def test_it_ends_when_nobody_uses_it_any_more(server, single):
    d = single("one", server("--synthetic", SPEC), "--until-idle=500ms")
    assert d.line() == "ready"
    with host(d.path) as h:
        time.sleep(1.5)
        assert h.ask(GET_FEATURES)
    assert d.process.wait(timeout=20) == 0
    assert not d.path.exists()


def test_it_ends_when_nobody_comes(server, single):
    d = single("one", server("--synthetic", SPEC), "--until-idle=100ms")
    assert d.line() == "ready"
    assert d.process.wait(timeout=20) == 0


def test_what_is_wrong_is_told_in_a_line(server, single, tmp_path):
    s = server("--synthetic", SPEC)
    d = single("no-such-bucket", s, "--until-idle")
    assert "no-such-bucket" in d.line()
    assert d.process.wait(timeout=20) == 1
    d = single("one", s, "-o", "memroy=1G")
    assert "memory" in d.line()
    assert d.process.wait(timeout=20) == 2


def test_readiness_goes_where_it_is_asked_for(server, single):
    ours, theirs = os.pipe()
    d = single("one", server("--synthetic", SPEC), "--ready-fd", str(theirs), pass_fds=[theirs])
    os.close(theirs)
    with os.fdopen(ours) as f:
        assert f.read() == "ready\n"  # and its end: nobody holds it any more
    assert d.process.poll() is None


def test_a_program_is_told_the_errno_too(server, single):
    ours, theirs = os.pipe()
    single("no-such-bucket", server("--synthetic", SPEC), "--ready-fd", str(theirs), pass_fds=[theirs])
    os.close(theirs)
    with os.fdopen(ours) as f:
        word, error, text = f.read().split(" ", 2)
    assert (word, int(error)) == ("error", errno.ENOENT) and "no-such-bucket" in text


def test_a_socket_in_use_is_not_taken_over(server, single):
    s = server("--synthetic", SPEC)
    first = single("one", s)
    assert first.line() == "ready"
    second = single("one", s)
    assert str(first.path) in second.line()
    assert second.process.wait(timeout=20) == 1
    with host(first.path) as h:
        assert h.ask(GET_FEATURES)
    assert mounts.status_of(first.path)["socket"] == str(first.path)


def test_it_needs_no_privilege(server, single):
    if os.geteuid() != 0:
        pytest.skip("is run without any as it is")
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        d = single("one", server("--synthetic", SPEC), "--until-idle", path=f"{place}/socket",
                   user="nobody", cwd="/")
        assert d.line() == "ready"
        assert ask_as_nobody(d.path) == "answered"
        d.stop()


# --- hosts that come, go and misbehave ---

def test_the_status_shows_who_shares_what(server, single):
    d = single("one", server("--synthetic", SPEC))
    assert d.line() == "ready"
    with host(d.path) as h:
        assert h.add_memory(0, 1 << 20) == 0
        one, = hosts_of(d.path)
        assert one["pid"] == os.getpid() and one["uid"] == os.geteuid()
        assert one["regions"] == 1 and one["region_bytes"] == 1 << 20 and one["queues"] == 0
        assert abs(one["since"] - time.time()) < 60
        table = subprocess.run([mounts.PROGRAM, "status", d.path], stdout=subprocess.PIPE, text=True,
                               check=True, timeout=30).stdout
        assert f"pid {os.getpid()}" in table
    mounts.wait_until(lambda: not hosts_of(d.path))


def test_the_next_worker_knows_who_is_there(server, mount):
    m = mount("one", server=server("--synthetic", SPEC))
    with host(m.status()["socket"]) as h:
        assert h.add_memory(0, 1 << 20) == 0
        for _ in range(5):
            m.kill_worker()
            assert h.ask(GET_FEATURES)
        assert h.add_memory(1 << 30, 1 << 20) == 0
        one, = mounts.wait_until(lambda: m.status()["vhost"]["hosts"])
        mounts.wait_until(lambda: m.status()["vhost"]["hosts"][0]["regions"] == 2)
        assert one["pid"] == os.getpid()


def test_garbage_ends_its_own_session_only(server, mount):
    m = mount("one", server=server("--synthetic", SPEC))
    path = m.status()["socket"]
    supervisor = m.supervisor_pid()
    dice = random.Random(4)
    with host(path) as good:
        assert good.add_memory(0, 1 << 20) == 0
        for _ in range(200):
            with host(path) as bad:
                if dice.random() < 0.5:
                    bad.socket.send(dice.randbytes(dice.randrange(1, 400)))
                else:
                    # a header that is right, and a payload that is none
                    with open("/etc/passwd", "rb") as f:
                        fds = [f.fileno()] * dice.randrange(9)
                        bad.send(dice.randrange(48), dice.randbytes(dice.randrange(300)), NEED_REPLY,
                                 fds)
                bad.socket.shutdown(socket.SHUT_WR)
        assert good.ask(GET_FEATURES)
    assert m.supervisor_pid() == supervisor
    assert (m.path / "b").read_bytes() == synthetic.expected("one", "b", 0, 7)
    mounts.wait_until(lambda: not m.status()["vhost"]["hosts"])
    descriptors = len(os.listdir(f"/proc/{supervisor}/fd"))
    assert descriptors < 60, os.listdir(f"/proc/{supervisor}/fd")


def test_many_hosts_at_once_are_served_up_to_a_limit(server, mount):
    m = mount("one", server=server("--synthetic", SPEC))
    path = m.status()["socket"]
    with contextlib.ExitStack() as stack:
        hosts = [stack.enter_context(host(path)) for _ in range(300)]
        answered = 0
        for h in hosts:
            try:
                answered += h.ask(GET_FEATURES) is not None
            except (BrokenPipeError, ConnectionResetError):
                pass
        assert answered == 256
        mounts.wait_until(lambda: len(m.status()["vhost"]["hosts"]) == 256)
        m.kill_worker()
        mounts.wait_until(lambda: len(m.status()["vhost"]["hosts"]) == 256)
    mounts.wait_until(lambda: not m.status()["vhost"]["hosts"])
    with host(path) as h:
        assert h.ask(GET_FEATURES)


# --- a file system that hangs ---

@contextlib.contextmanager
def hanging(place):
    """A FUSE file system whose daemon never says anything."""
    libc = ctypes.CDLL(None, use_errno=True)
    place.mkdir()
    fd = os.open("/dev/fuse", os.O_RDWR)
    data = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"nobody", str(place).encode(), b"fuse", 0, data) != 0:
        os.close(fd)
        pytest.skip(f"no mount of our own: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        libc.umount2(str(place).encode(), 2)
        os.close(fd)


def test_a_directory_that_hangs_holds_up_no_other_export(server, daemon, tmp_path):  # noqa: F811
    if os.geteuid() != 0:
        pytest.skip("needs root to mount what hangs")
    s = server("--synthetic", SPEC)
    with hanging(tmp_path / "stuck"):
        text = export("good", "one", tmp_path / "m", s)
        stuck = (f"[export stuck]\nsource = s3://one\nendpoint-url = {s.url}\n"
                 f"mount = {tmp_path / 'stuck'}\n")
        begun = time.monotonic()
        d = daemon(stuck + text)
        mounts.wait_until(lambda: mounts.is_mounted(tmp_path / "m"))
        assert (tmp_path / "m" / "a").read_bytes() == synthetic.expected("one", "a", 0, 5)
        assert time.monotonic() - begun < 8 * mounts.slowed_down()
        mounts.wait_until(lambda: "does not answer" in d.log.read_text())
    assert d.stop() == 0


