# SPDX-License-Identifier: Apache-2.0
"""Commands that are given what they should not be, or lose what they stand on: nothing else is
harmed, and what they say helps."""

import errno
import os
import pathlib
import signal
import stat
import subprocess
import tempfile
import time

import pytest

import mounts
import s3d
import synthetic

SPEC = "bench: f%03d 5000 x 100; big 30M"


def start(*words, env=None, **kwargs):
    kwargs.setdefault("stdout", subprocess.PIPE)
    return subprocess.Popen([str(mounts.PROGRAM), *map(str, words)], stderr=subprocess.PIPE,
                            env=env or mounts.environment(), text=True, **kwargs)


def run(*words, **kwargs):
    """Exit code, standard output, standard error."""
    process = start(*words, **kwargs)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def good(key, n=5000):
    return synthetic.expected("bench", key, 0, n)


@pytest.fixture
def bench(server):
    one = server("--synthetic", SPEC)
    one.where = ("--endpoint-url", one.url)
    return one


# --- cp ---

def test_cp_follows_a_link_and_leaves_it_one(bench, tmp_path):
    link, file = tmp_path / "link", tmp_path / "file"
    file.write_bytes(b"before")
    link.symlink_to(file)
    assert run("cp", *bench.where, "s3://bench/f000", link)[0] == 0
    assert link.is_symlink() and file.read_bytes() == good("f000")


def test_cp_leaves_devices_and_pipes_what_they_are(bench, tmp_path):
    full, pipe = tmp_path / "full", tmp_path / "pipe"
    os.mkfifo(pipe)
    try:
        os.mknod(full, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    except PermissionError:
        pytest.skip("not allowed to make devices")
    code, _, err = run("cp", *bench.where, "s3://bench/f000", full)
    assert code == 1 and "No space left" in err and full.is_char_device()
    code, _, err = run("cp", *bench.where, "s3://bench/f000", pipe)
    assert code == 1 and "os2g cat" in err and pipe.is_fifo()


@pytest.mark.parametrize("to, word", [("-", "os2g cat"), ("s3://bench/copy", "out of a bucket")])
def test_cp_says_where_it_does_not_copy_to(bench, tmp_path, to, word):
    code, _, err = run("cp", *bench.where, "s3://bench/f000", to, cwd=tmp_path)
    assert code == 1 and word in err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_cp_leaves_nothing_half_done_behind(server, tmp_path, number):
    slow = server("--synthetic", SPEC, "--bandwidth", 1 << 20)
    process = start("cp", "-r", "--endpoint-url", slow.url, "s3://bench", tmp_path)
    mounts.wait_until(lambda: os.listdir(tmp_path))
    process.send_signal(number)
    process.wait(timeout=10)
    for name in os.listdir(tmp_path):
        data = (tmp_path / name).read_bytes()
        assert len(data) in (5000, 30 << 20) and data == good(name, len(data))


def test_cp_tells_of_a_full_disk_once(bench, tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", tmp_path],
                      check=False).returncode:
        pytest.skip("not allowed to mount a tmpfs")
    try:
        code, out, err = run("cp", "-r", *bench.where, "s3://bench", tmp_path)
        assert code == 1 and err.count("No space left") == 1, err
        copied, failed = int(out.split()[0]), int(out.split()[4])
        names = os.listdir(tmp_path)
        assert copied + failed == 101 and len(names) == copied
        assert all((tmp_path / name).read_bytes() == good(name) for name in names)
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_cp_copies_to_the_longest_names_and_over_what_is_there(server, tmp_path):
    one = server("--bucket", "long")
    one.client().put_object(Bucket="long", Key="n" * 255, Body=b"new")
    for before in (None, b"old"):
        if before:
            (tmp_path / ("n" * 255)).write_bytes(before)
        assert run("cp", "--endpoint-url", one.url, "s3://long/" + "n" * 255, tmp_path)[0] == 0
        assert os.listdir(tmp_path) == ["n" * 255]
        assert (tmp_path / ("n" * 255)).read_bytes() == b"new"


# --- output that cannot be written ---

@pytest.mark.parametrize("words", [("ls", "s3://bench"), ("cat", "s3://bench/big")])
def test_a_full_disk_under_standard_output_is_told(bench, words):
    with open("/dev/full", "w", encoding="ascii") as full:
        code, _, err = run(words[0], *bench.where, words[1], stdout=full)
    assert code == 1 and "No space left" in err


@pytest.mark.parametrize("words", [("ls", "-r", "s3://bench"), ("cat", "s3://bench/big")])
def test_a_reader_that_has_seen_enough_ends_a_command_silently(bench, words):
    process = start(words[0], *bench.where, *words[1:])
    process.stdout.close()
    assert process.wait(timeout=20) != 0
    assert process.stderr.read() == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_files_are_no_mix_up(bench, tmp_path, closed):
    def shell(words, kept=""):
        line = f"'{mounts.PROGRAM}' {words} --endpoint-url {bench.url} {closed} {kept}"
        return subprocess.run(["bash", "-c", line], env=mounts.environment(), timeout=20,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    target = tmp_path / "copy"
    assert shell(f"cp -q s3://bench/f000 {target}").returncode == 0
    assert target.read_bytes() == good("f000")
    for words in ("cat s3://bench/f000", "ls s3://bench"):
        done = shell(words)
        assert done.returncode == (1 if ">&-" in closed.split() else 0)
    place = tmp_path / "place"
    place.mkdir()
    try:
        assert shell(f"mount s3://bench {place}").returncode == 0
        assert (place / "f000").read_bytes() == good("f000")
    finally:
        subprocess.run([str(mounts.PROGRAM), "umount", str(place)], check=True)


def test_cp_makes_do_with_few_descriptors(bench, tmp_path):
    copy = f"cp -r --endpoint-url {bench.url} s3://bench {tmp_path}"
    line = f"ulimit -n 32; exec '{mounts.PROGRAM}' {copy}"
    done = subprocess.run(["bash", "-c", line], env=mounts.environment(), timeout=30, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "101 copied, 0 skipped, 0 failed\n"


# --- mount ---

@pytest.mark.parametrize("place", ["/", "/proc", "/dev", "/dev/../sys"])
def test_what_the_system_needs_is_not_mounted_over(bench, place):
    before = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").count("fuse.os2g")
    code, _, err = run("mount", *bench.where, "s3://bench", place)
    assert code == 1 and "another" in err
    text = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    assert not [line for line in text.splitlines()
                if "fuse.os2g" in line and line.split()[4] == os.path.realpath(place)], before


@pytest.mark.parametrize("proxy", ["garbage::", "http://", "http://x:99999"])
def test_a_proxy_that_is_none_is_told_at_once(bench, proxy):
    begun = time.monotonic()
    code, _, err = run("ls", *bench.where, "--proxy", proxy, "s3://bench")
    assert code == 1 and f'"{proxy}"' in err and time.monotonic() - begun < 2


@pytest.mark.parametrize("command", ["ls", "cat"])
def test_a_store_that_is_not_there_is_reported_soon(command):
    begun = time.monotonic()
    code, _, err = run(command, "--endpoint-url", f"http://127.0.0.1:{s3d.free_port()}",
                       "s3://bench/f000")
    assert code == 1 and "connect" in err and time.monotonic() - begun < 10


def test_a_listing_that_is_not_found_hides_no_files(bench, mount):
    m = mount("bench", server=bench, metadata_ttl="minimal")
    bench.faults("LIST * always status 404 NoSuchKey\nHEAD * always status 404")
    for name in ("f000", "nope"):
        with pytest.raises(OSError) as error:
            os.stat(m.path / name)
        assert error.value.errno == errno.EIO
    with pytest.raises(OSError) as error:
        os.listdir(m.path)
    assert error.value.errno == errno.EIO
    code, _, err = run("ls", *bench.where, "s3://bench")
    assert code == 1 and "is this an S3 store?" in err
    bench.faults("")
    assert (m.path / "f000").read_bytes() == good("f000")


@pytest.mark.parametrize("command", ["mount", "ls"])
def test_a_ca_file_without_certificates_is_called_that(bench, tmp_path, command):
    place = [str(tmp_path)] if command == "mount" else []
    words = [command, *bench.where, "--ca-file", "/etc/hostname", "s3://bench", *place]
    code, _, err = run(*words)
    assert code == 1 and "/etc/hostname" in err and "PEM" in err
    code, _, err = run(*[w for w in words if w not in ("--ca-file", "/etc/hostname")],
                       env=mounts.environment(AWS_CA_BUNDLE="/nonexistent/ca.pem"))
    assert code == 1 and "/nonexistent/ca.pem" in err and "No such file" in err


def test_the_help_keeps_examples_in_one_line():
    text = run("mount", "--help")[1]
    assert "os2g umount DIR" in " ".join(text.split())
    assert "\n  s3://bucket /data os2g _netdev,allow_other,endpoint_url=" in text


def test_what_is_mounted_over_a_mount_is_left_alone(bench, mount):
    m = mount("bench", server=bench)
    if subprocess.run(["mount", "-t", "tmpfs", "none", m.path], check=False).returncode:
        pytest.skip("not allowed to mount a tmpfs")
    (m.path / "precious").write_bytes(b"")
    failed = m.umount(check=False)
    assert failed.returncode == 1 and "mounted over it" in failed.stderr
    os.kill(m.supervisor_pid(), signal.SIGHUP)
    assert (m.path / "precious").exists()
    subprocess.run(["umount", m.path], check=True)
    assert (m.path / "f000").read_bytes() == good("f000")


def test_what_a_killed_daemon_left_is_unmounted_soon(bench, mount):
    m = mount("bench", server=bench)
    os.kill(m.supervisor_pid(), signal.SIGKILL)
    begun = time.monotonic()
    m.umount()
    assert time.monotonic() - begun < 5 and not mounts.is_mounted(m.path)


def test_who_may_not_unmount_is_told_who_may(bench, mount):
    if os.geteuid():
        pytest.skip("mounting for another needs root")
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        m = mount("bench", path=os.path.realpath(place), server=bench, allow_other=True)
        done = subprocess.run([str(mounts.PROGRAM), "umount", str(m.path)], stderr=subprocess.PIPE,
                              text=True, check=False, preexec_fn=lambda: os.setuid(65534))
        m.umount()
    assert done.returncode == 1 and "user 0 mounted" in done.stderr


# --- plans ---

def order(tmp_path, lines):
    file = tmp_path / "order"
    file.write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return file


def test_an_order_with_strange_lines_is_followed_for_the_others(bench, mount, tmp_path):
    m = mount("bench", server=bench)
    lines = ["f000\n", "nope\n", "\n", "/\n", "../f001\n", "a//b\n", "y" * 2000 + "\n",
             "z" * 5000 + "\n", b"\xff\xfe\n", b"zero\0byte\n", f"{m.path}/f002\n", "./f000\n",
             "f003"]
    planner = start("prefetch", m.path, "--order", order(tmp_path, lines))
    assert planner.stdout.readline() == "plan of 11 files set\n"
    for key in ("f000", "f002", "f000", "f003"):
        assert (m.path / key).read_bytes() == good(key)
    out, err = planner.communicate(timeout=20)
    assert planner.returncode == 0, err
    assert "11 entries: 4 read, 0 dropped unread, 7 not found" in out
    assert "line 8" in err and "too long" in err


def test_a_plan_outlives_a_crash(bench, mount, tmp_path):
    m = mount("bench", server=bench)
    keys = [f"f{i:03}" for i in range(100)]
    planner = start("prefetch", m.path, "--order", order(tmp_path, [k + "\n" for k in keys]))
    assert planner.stdout.readline() == "plan of 100 files set\n"
    for i, key in enumerate(keys):
        if i == 50:
            m.kill_worker()
            mounts.wait_until(lambda: m.status()["fs"]["plan_entries"] > 0)
        assert (m.path / key).read_bytes() == good(key)
    assert m.status()["fs"]["plan_used"] >= 40
    # what was read just before the crash is waited for: nobody is left who knows
    planner.send_signal(signal.SIGINT)
    err = planner.communicate(timeout=20)[1]
    assert "the plan was set again from entry " in err


def test_what_is_no_directory_cannot_be_warmed(bench, mount):
    m = mount("bench", server=bench)
    code, _, err = run("prefetch", m.path / "f000")
    assert code == 1 and "Not a directory" in err and len(err.splitlines()) == 1
