# SPDX-License-Identifier: Apache-2.0
"""os2gd: several exports from one configuration, what systemd hears, metrics, reloading."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

import mounts
import s3d
import synthetic

PROGRAM = s3d.BUILD / "bin" / "os2gd"
SPEC = "one: a 5; b 7; small/%02d.bin 10K x 20"
OTHER = "two: c 9"


class Daemon:
    """os2gd with this configuration until stop()."""

    def __init__(self, directory, text, **env):
        self.file = directory / "os2gd.conf"
        self.log = directory / "os2gd.log"
        self.file.write_text(text)
        self.notify_path = directory / "notify"
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(self.notify_path))
        self.notify.settimeout(30)
        self.process = subprocess.Popen(
            [PROGRAM, "-c", self.file], stderr=open(self.log, "w"),
            env=mounts.environment(NOTIFY_SOCKET=str(self.notify_path), **env))

    def heard(self, what):
        """Waits until systemd would have heard what."""
        text = ""
        while what not in text.splitlines():
            text = self.notify.recv(4096).decode()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=30)
        self.notify.close()
        return code


@pytest.fixture
def daemon(tmp_path):
    running = []

    def start(text, **env):
        running.append(Daemon(tmp_path, text, **env))
        return running[-1]

    yield start
    for one in running:
        one.stop()


def export(name, source, place, server, *lines):
    place.mkdir(exist_ok=True)
    return "\n".join([f"[export {name}]", f"source = s3://{source}", f"mount = {place}",
                      f"endpoint-url = {server.url}", *lines, ""])


def test_several_exports_are_served_with_their_own_options(server, daemon, tmp_path):
    one, two = server("--synthetic", SPEC), server("--synthetic", OTHER)
    d = daemon(export("first", "one", tmp_path / "m1", one, "file-mode = 0400") +
               export("second", "two", tmp_path / "m2", two, "memory = 64M"))
    d.heard("READY=1")
    assert (tmp_path / "m1" / "a").stat().st_mode & 0o777 == 0o400
    assert (tmp_path / "m2" / "c").read_bytes() == synthetic.expected("two", "c", 0, 9)
    assert d.stop() == 0
    assert not mounts.is_mounted(tmp_path / "m1") and not mounts.is_mounted(tmp_path / "m2")


def test_each_export_has_a_worker_and_credentials_of_its_own(server, daemon, tmp_path):
    # mountpoint-s3-csi #136: one all-powerful credential for every volume
    (tmp_path / "auth").write_text("k1 s1\nk2 s2\n")
    s = server("--synthetic", SPEC, "--auth-file", tmp_path / "auth")
    (tmp_path / "p1").write_text("k1:s1\n")
    (tmp_path / "p2").write_text("k2:s2\n")
    for name in "p1", "p2":
        (tmp_path / name).chmod(0o600)
    d = daemon(export("first", "one", tmp_path / "m1", s, f"passwd-file = {tmp_path}/p1") +
               export("second", "one", tmp_path / "m2", s, f"passwd-file = {tmp_path}/p2"),
               AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    d.heard("READY=1")
    keys, pids = set(), set()
    for place in "m1", "m2":
        status = mounts.status_of(tmp_path / place)
        keys.add(status["credentials"]["access_key"])
        pids.add(status["worker"]["pid"])
    assert keys == {"k1", "k2"} and len(pids) == 2


def test_an_export_that_fails_does_not_keep_the_others_from_being_served(server, daemon, tmp_path):
    s = server("--synthetic", SPEC)
    d = daemon(export("good", "one", tmp_path / "m1", s) +
               export("bad", "no-such-bucket", tmp_path / "m2", s))
    d.heard("READY=1")
    assert (tmp_path / "m1" / "a").exists()
    assert not mounts.is_mounted(tmp_path / "m2")
    assert "no-such-bucket" in d.log.read_text()


def test_an_export_whose_store_comes_later_is_mounted_then(server, daemon, tmp_path):
    s = server("--synthetic", SPEC)
    s.stop()
    d = daemon(export("late", "one", tmp_path / "m", s))
    d.heard("READY=1")
    s.start()
    mounts.wait_until(lambda: mounts.is_mounted(tmp_path / "m"), seconds=30)
    assert (tmp_path / "m" / "a").exists()


def test_crashing_workers_leave_each_other_alone(server, daemon, tmp_path):
    s = server("--synthetic", SPEC)
    d = daemon(export("first", "one", tmp_path / "m1", s) + export("second", "one", tmp_path / "m2", s))
    d.heard("READY=1")
    before = [mounts.status_of(tmp_path / m)["worker"]["pid"] for m in ("m1", "m2")]
    os.kill(before[0], signal.SIGKILL)
    assert (tmp_path / "m1" / "a").read_bytes() == synthetic.expected("one", "a", 0, 5)
    after = [mounts.status_of(tmp_path / m)["worker"]["pid"] for m in ("m1", "m2")]
    assert after[0] != before[0] and after[1] == before[1]


def test_a_reload_takes_over_what_has_changed(server, daemon, tmp_path):
    s = server("--synthetic", SPEC, "--synthetic", OTHER)
    first = export("first", "one", tmp_path / "m1", s)
    d = daemon(first + export("second", "two", tmp_path / "m2", s))
    d.heard("READY=1")
    with open(tmp_path / "m1" / "b", "rb") as f:
        d.file.write_text(first + "memory = 64M\n" + export("third", "two", tmp_path / "m3", s))
        d.process.send_signal(signal.SIGHUP)
        d.heard("READY=1")
        assert f.read() == synthetic.expected("one", "b", 0, 7)
    mounts.wait_until(lambda: mounts.is_mounted(tmp_path / "m3"))
    mounts.wait_until(lambda: not mounts.is_mounted(tmp_path / "m2"))
    status = mounts.status_of(tmp_path / "m1")
    assert status["cache"]["pool_bytes"] == 64 << 20 and status["worker"]["restarts"] == 1


def test_a_broken_file_changes_nothing_on_reload(server, daemon, tmp_path):
    s = server("--synthetic", SPEC)
    d = daemon(export("first", "one", tmp_path / "m", s))
    d.heard("READY=1")
    d.file.write_text("[export first]\nsorce = s3://one\n")
    d.process.send_signal(signal.SIGHUP)
    d.heard("READY=1")
    assert (tmp_path / "m" / "a").exists()
    assert "line 2" in d.log.read_text() and "everything stays as it is" in d.log.read_text()


def scrape(port, path="/metrics"):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_prometheus_finds_every_export(server, daemon, tmp_path):
    s, port = server("--synthetic", SPEC), s3d.free_port()
    d = daemon(f"[daemon]\nmetrics = 127.0.0.1:{port}\n" +
               export("first", "one", tmp_path / "m1", s) + export("second", "one", tmp_path / "m2", s))
    d.heard("READY=1")
    (tmp_path / "m1" / "small" / "01.bin").read_bytes()
    kind, text = scrape(port)
    assert kind.startswith("text/plain; version=0.0.4")
    assert 'os2g_up{export="first"} 1' in text and 'os2g_up{export="second"} 1' in text
    got = re.search(r'^os2g_object_bytes_total{export="first"} (\d+)', text, re.M)
    assert int(got.group(1)) >= 10240
    for line in text.splitlines():
        assert re.match(r'#|[a-z0-9_]+{export="\w+"[^}]*} [-+.e0-9]+$', line), line
    with pytest.raises(urllib.error.HTTPError) as error:
        scrape(port, "/")
    assert error.value.code == 404


def test_a_peer_that_sends_byte_by_byte_does_not_hold_up_the_next_one(server, daemon, tmp_path):
    s, port = server("--synthetic", SPEC), s3d.free_port()
    d = daemon(f"[daemon]\nmetrics = 127.0.0.1:{port}\n" + export("e", "one", tmp_path / "m", s))
    d.heard("READY=1")
    with socket.create_connection(("127.0.0.1", port)) as slow:
        ended = threading.Event()

        def trickle():
            while not ended.wait(0.3):
                try:
                    slow.send(b"G")
                except OSError:
                    return

        sender = threading.Thread(target=trickle)
        sender.start()
        try:
            assert "os2g_up" in scrape(port)[1]
        finally:
            ended.set()
            sender.join()


def test_metrics_are_given_by_a_process_without_rights(server, daemon, tmp_path):
    s, port = server("--synthetic", SPEC), s3d.free_port()
    d = daemon(f"[daemon]\nmetrics = 127.0.0.1:{port}\n" + export("e", "one", tmp_path / "m", s))
    d.heard("READY=1")
    scrape(port)
    children = pathlib.Path(f"/proc/{d.process.pid}/task/{d.process.pid}/children").read_text()
    names = {pathlib.Path(f"/proc/{p}/comm").read_text().strip(): p for p in children.split()}
    text = pathlib.Path(f"/proc/{names['os2g-metrics']}/status").read_text()
    assert re.search(r"^CapEff:\t0+$", text, re.M) and not re.search(r"^Uid:.*\b0\b", text, re.M)


@pytest.mark.parametrize("text, words", [
    ("[export a]\nsource = s3://one\n", "mount = DIRECTORY"),
    ("[export a]\nsource = s3://one\nmount = /x\nmemroy = 1G\n", "did you mean 'memory'"),
    ("[daemon]\nmetrics = 0.0.0.0:9464\n[export a]\nsource = s3://one\nmount = /x\n", "127.0.0.1"),
])
def test_a_wrong_configuration_is_refused_at_once(tmp_path, text, words):
    (tmp_path / "conf").write_text(text)
    done = subprocess.run([PROGRAM, "-c", tmp_path / "conf"], stderr=subprocess.PIPE, text=True,
                          timeout=20)
    assert done.returncode != 0 and words in done.stderr


def test_a_configuration_can_be_checked_without_serving_it(tmp_path):
    (tmp_path / "conf").write_text("[export a]\nsource = s3://one\nmount = /x\n")
    assert subprocess.run([PROGRAM, "--check", "-c", tmp_path / "conf"], timeout=20).returncode == 0
