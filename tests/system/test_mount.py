# SPDX-License-Identifier: Apache-2.0
"""os2g mount and umount: what they show, how they fail, how a mount ends."""

import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time

import pytest

import mounts
import s3d
import synthetic

SPEC = "bench: big/one.bin 64M; small/%03d.bin 100K x 50; top.txt 5"


def fails(mount, *args, **kwargs):
    """What the mount command says when it refuses."""
    with pytest.raises(subprocess.CalledProcessError) as error:
        mount(*args, **kwargs)
    assert error.value.returncode != 0
    return error.value.stderr


def fuse_processes():
    """Supervisors and workers there are now."""
    found = set()
    for comm in pathlib.Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text().startswith("os2g-"):
                found.add(int(comm.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


# --- what is shown ---

def test_the_daemon_holds_nothing_that_its_caller_had_open(server, tmp_path):
    s = server("--synthetic", "bench: one.bin 1M")
    place = tmp_path / "place"
    place.mkdir()
    with open(tmp_path / "lock", "w", encoding="utf-8") as lock:
        # the numbers of a worker's own descriptors among them
        taken = [os.dup2(lock.fileno(), n) for n in range(60, 64)]
        for n in taken:
            os.set_inheritable(n, True)
        subprocess.run([str(mounts.PROGRAM), "mount", "--endpoint-url", s.url, "s3://bench",
                        str(place)], env=mounts.environment(), check=True, timeout=60,
                       close_fds=False)
        for n in taken:
            os.close(n)
    try:
        status = mounts.status_of(place)["worker"]
        for pid in status["pid"], status["supervisor_pid"]:
            held = [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
            assert not [name for name in held if name.endswith("/lock")]
    finally:
        subprocess.run([str(mounts.PROGRAM), "umount", str(place)], check=True, timeout=60)


def test_a_bucket_is_a_directory_of_files(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC))
    assert sorted(os.listdir(m.path)) == ["big", "small", "top.txt"]
    assert len(os.listdir(m.path / "small")) == 50
    data = (m.path / "small" / "007.bin").read_bytes()
    assert len(data) == 102400
    assert synthetic.first_wrong(data, "bench", "small/007.bin") is None


def test_a_large_file_has_every_byte_right(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC))
    data = (m.path / "big" / "one.bin").read_bytes()
    assert len(data) == 64 << 20
    assert synthetic.first_wrong(data, "bench", "big/one.bin") is None


@pytest.mark.parametrize("source, options", [("bench/small/", {}), ("bench/small", {}),
                                             ("bench", {"prefix": "small/"})])
def test_a_prefix_shows_only_what_is_below_it(server, mount, source, options):
    m = mount(source, server=server("--synthetic", SPEC), **options)
    assert len(os.listdir(m.path)) == 50
    assert (m.path / "000.bin").stat().st_size == 102400


def test_owner_and_modes_are_as_told(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC), uid=1234, gid=5678, file_mode="0440",
              dir_mode="0550")
    st = (m.path / "top.txt").stat()
    assert (st.st_uid, st.st_gid, st.st_mode & 0o7777) == (1234, 5678, 0o440)
    assert (m.path / "small").stat().st_mode & 0o7777 == 0o550


def test_nothing_can_be_written(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC))
    with pytest.raises(OSError) as error:
        (m.path / "new").write_bytes(b"x")
    assert error.value.errno == 30  # EROFS


def test_direct_io_gives_the_same_bytes(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC), direct_io=True)
    data = (m.path / "small" / "001.bin").read_bytes()
    assert synthetic.first_wrong(data, "bench", "small/001.bin") is None


def test_the_read_ahead_of_the_mount_is_raised(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC))
    dev = m.path.stat().st_dev
    bdi = pathlib.Path(f"/sys/class/bdi/{os.major(dev)}:{os.minor(dev)}/read_ahead_kb")
    mounts.wait_until(lambda: int(bdi.read_text()) >= 1024)


def test_several_mounts_do_not_know_of_each_other(server, mount):
    one, two = server("--synthetic", SPEC), server("--synthetic", "other: a 3; b 4")
    m1, m2 = mount("bench", server=one), mount("other", server=two)
    m3 = mount("bench/small", server=one)
    assert os.listdir(m2.path) == ["a", "b"]
    m1.umount()
    assert (m2.path / "a").stat().st_size == 3
    assert len(os.listdir(m3.path)) == 50


# --- what is refused, and that it says why ---

def test_a_wrong_secret_fails_the_command(server, mount):
    s = server("--synthetic", SPEC)
    text = fails(mount, "bench", server=s, env=mounts.environment(secret="wrong"))
    assert "SignatureDoesNotMatch" in text or "secret" in text


def test_an_unknown_key_fails_the_command(server, mount):
    s = server("--synthetic", SPEC)
    text = fails(mount, "bench", server=s, env=mounts.environment(access="nobody"))
    assert "nobody" in text or "InvalidAccessKeyId" in text


def test_no_keys_at_all_fail_the_command(server, mount):
    s = server("--synthetic", SPEC)
    text = fails(mount, "bench", server=s, env=mounts.environment(access=None))
    assert "credentials" in text and "no-sign-request" in text


def test_a_bucket_that_is_not_there_fails_the_command(server, mount):
    text = fails(mount, "no-such-bucket", server=server("--synthetic", SPEC))
    assert "no-such-bucket" in text and "exist" in text


def test_no_right_to_list_fails_the_command(server, mount, tmp_path):
    (tmp_path / "auth").write_text("reader secret rights=get\n")
    s = server("--synthetic", SPEC, "--auth-file", tmp_path / "auth")
    text = fails(mount, "bench", server=s, env=mounts.environment("reader", "secret"))
    assert "list" in text.lower()


def test_a_server_that_is_not_there_fails_the_command_soon(mount):
    start = time.monotonic()
    with socket.socket() as taken:  # so that no other test's server gets the port
        taken.bind(("127.0.0.1", 0))
        text = fails(mount, "bench", endpoint_url=f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert "onnect" in text
    assert time.monotonic() - start < 20


def test_a_failed_mount_leaves_nothing(server, mount, tmp_path):
    before = fuse_processes()
    fails(mount, "no-such-bucket", path=tmp_path, server=server("--synthetic", SPEC))
    assert not mounts.is_mounted(tmp_path)
    mounts.wait_until(lambda: not any(f"{tmp_path}" in cmdline(p) for p in fuse_processes() - before))


def cmdline(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_the_directory_must_be_one(server, mount, tmp_path):
    s = server("--synthetic", SPEC)
    assert "mkdir" in fails(mount, "bench", path=tmp_path / "none", server=s)
    (tmp_path / "file").touch()
    assert "directory" in fails(mount, "bench", path=tmp_path / "file", server=s)


def test_a_second_mount_at_the_same_place_is_refused(server, mount):
    s = server("--synthetic", SPEC)
    m = mount("bench", server=s)
    assert "already" in fails(mount, "bench", path=m.path, server=s)
    assert (m.path / "top.txt").stat().st_size == 5


@pytest.mark.parametrize("option, words", [
    ({"memroy": "1G"}, "--memory"), ({"memory": "plenty"}, "256M"), ({"threads": "0"}, "number"),
    ({"metadata_ttl": "soon"}, "minimal"), ({"endpoint_url": "10.0.0.5"}, "http"),
    ({"memory": "16M", "threads": "8"}, "128M"), ({"ca_file": "/no/such"}, "No such file")])
def test_options_that_will_not_do_are_explained(mount, option, words):
    assert words in fails(mount, "bench", **option)


def test_every_option_is_in_the_help():
    text = subprocess.run([mounts.PROGRAM, "mount", "--help"], stdout=subprocess.PIPE, check=True,
                          text=True).stdout
    for name in ("endpoint-url region profile no-sign-request force-path-style prefix read-only "
                 "metadata-ttl negative-metadata-ttl allow-other allow-root uid gid file-mode dir-mode "
                 "requester-pays maximum-throughput-gbps foreground log-directory memory threads "
                 "retry-timeout direct-io log-level read-ahead max-connections ca-file").split():
        assert f"--{name}" in text


def test_every_option_is_in_the_manual():
    text = subprocess.run([mounts.PROGRAM, "mount", "--help"], stdout=subprocess.PIPE, check=True,
                          text=True).stdout
    manual = (s3d.ROOT / "docs" / "man" / "os2g.1").read_text().replace("\\-", "-")
    names = re.findall(r"--[a-z0-9-]+", text)
    assert len(names) > 30
    assert not [n for n in names if n not in manual]


# --- how it ends ---

def test_umount_ends_the_daemon(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC))
    supervisor, worker = m.supervisor_pid(), m.worker_pid()
    m.umount()
    assert not mounts.is_mounted(m.path)
    mounts.wait_until(lambda: not mounts.alive(worker) and not mounts.alive(supervisor))


@pytest.mark.parametrize("command", [["umount"], ["fusermount3", "-u"]])
def test_others_may_unmount_it(server, mount, command):
    m = mount("bench", server=server("--synthetic", SPEC), foreground=True)
    os.listdir(m.path)
    subprocess.run([*command, m.path], check=True)
    assert m.process.wait(timeout=10) == 0


def test_a_mount_in_use_is_not_taken_away(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC))
    with open(m.path / "top.txt", "rb") as f:
        refused = m.umount(check=False)
        assert refused.returncode != 0 and "--lazy" in refused.stderr
        assert f.read() == synthetic.expected("bench", "top.txt", 0, 5)
    m.umount()


def test_lazily_unmounted_files_go_on_until_they_are_closed(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC))
    worker = m.worker_pid()
    with open(m.path / "big" / "one.bin", "rb") as f:
        m.umount("--lazy")
        assert not mounts.is_mounted(m.path)
        data = f.read()
    assert synthetic.first_wrong(data, "bench", "big/one.bin") is None and len(data) == 64 << 20
    mounts.wait_until(lambda: not mounts.alive(worker))


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_unmounts(server, mount, signum):
    m = mount("bench", server=server("--synthetic", SPEC), foreground=True)
    m.process.send_signal(signum)
    assert m.process.wait(timeout=10) == 0
    assert not mounts.is_mounted(m.path)


def test_a_signal_detaches_a_mount_in_use(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC), foreground=True)
    with open(m.path / "top.txt", "rb") as f:
        m.process.send_signal(signal.SIGTERM)
        mounts.wait_until(lambda: not mounts.is_mounted(m.path))
        assert f.read(5) == synthetic.expected("bench", "top.txt", 0, 5)
    assert m.process.wait(timeout=10) == 0


def test_umount_of_what_is_not_mounted_says_so(tmp_path):
    done = subprocess.run([mounts.PROGRAM, "umount", tmp_path], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "nothing of os2g is mounted" in done.stderr


def test_a_mount_whose_supervisor_was_killed_can_be_replaced(server, mount):
    s = server("--synthetic", SPEC)
    m = mount("bench", server=s)
    worker = m.worker_pid()
    os.kill(m.supervisor_pid(), signal.SIGKILL)
    mounts.wait_until(lambda: not mounts.alive(worker))
    with pytest.raises(OSError):
        os.listdir(m.path)
    again = mount("bench", path=m.path, server=s)
    assert "top.txt" in os.listdir(again.path)


# --- mount(8) and fstab ---

def helper(source, path, options, server=None):
    env = mounts.environment()
    return subprocess.run([s3d.BUILD / "bin" / "mount.os2g", source, path, "-o", options], env=env,
                          stderr=subprocess.PIPE, text=True, timeout=90)


def test_the_helper_takes_the_spellings_of_s3fs(server, mount, tmp_path):
    s = server("--synthetic", SPEC)
    (tmp_path / "passwd").write_text(f"{s3d.ACCESS}:{s3d.SECRET}\n")
    (tmp_path / "passwd").chmod(0o600)
    place = tmp_path / "mount"
    place.mkdir()
    done = helper("bench", place, f"rw,_netdev,nofail,x-systemd.automount,url={s.url},"
                  f"use_path_request_style,passwd_file={tmp_path}/passwd,endpoint=us-east-1,sigv4,ro,"
                  "uid=0,gid=0,umask=022,allow_other")
    assert done.returncode == 0, done.stderr
    try:
        assert (place / "top.txt").stat().st_mode & 0o777 == 0o644
    finally:
        subprocess.run([mounts.PROGRAM, "umount", place], check=True)


def test_the_helper_answers_an_unknown_option_with_the_nearest(tmp_path):
    done = helper("bench", tmp_path, "use_path_reqest_style")
    assert done.returncode != 0 and "use_path_request_style" in done.stderr


def test_mount_dash_t_finds_the_helper(server, tmp_path):
    link = pathlib.Path("/sbin/mount.os2g")
    if link.exists() or link.is_symlink():
        pytest.skip("/sbin/mount.os2g is installed; its build is not the one under test")
    s = server("--synthetic", SPEC)
    link.symlink_to(s3d.BUILD / "bin" / "os2g")
    try:
        subprocess.run(["mount", "-t", "os2g", "s3://bench", tmp_path, "-o",
                        f"ro,endpoint_url={s.url}"], env=mounts.environment(), check=True, timeout=90)
        assert "top.txt" in os.listdir(tmp_path)
        subprocess.run(["umount", tmp_path], check=True)
    finally:
        link.unlink()


# --- rights ---

def test_the_worker_of_root_has_no_rights(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC))
    text = pathlib.Path(f"/proc/{m.worker_pid()}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    assert "0" not in fields["Uid"].split() and "0" not in fields["Gid"].split()
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[name], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert fields["Groups"].strip() == ""


def test_keys_in_files_of_root_are_found(server, mount, tmp_path):
    s = server("--synthetic", SPEC)
    file = tmp_path / "credentials"
    file.write_text(f"[train]\naws_access_key_id = {s3d.ACCESS}\naws_secret_access_key = {s3d.SECRET}\n")
    file.chmod(0o600)
    m = mount("bench", server=s, profile="train",
              env=mounts.environment(access=None, AWS_SHARED_CREDENTIALS_FILE=str(file)))
    assert "top.txt" in os.listdir(m.path)
    assert "train" in m.status()["credentials"]["source"]


@pytest.fixture
def open_place():
    """Makes directories that everybody can get to."""
    with tempfile.TemporaryDirectory(prefix="os2g-test-") as top:
        os.chmod(top, 0o755)

        def make(name):
            path = pathlib.Path(top) / name
            path.mkdir()
            return path

        yield make


def test_others_are_kept_out_unless_allowed(server, open_place, mount):
    s = server("--synthetic", SPEC)
    for options, expected in (({}, False), ({"allow_other": True}, True)):
        place = open_place(f"others-{expected}")
        mount("bench", path=place, server=s, **options)
        done = subprocess.run(["runuser", "-u", "nobody", "--", "cat", place / "top.txt"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert (done.stdout == synthetic.expected("bench", "top.txt", 0, 5)) == expected


@pytest.fixture
def user(tmp_path):
    """A user who is nobody special, with a home of his own."""
    name = f"os2gtest{os.getpid() % 10000}"
    home = pathlib.Path("/tmp") / f"{name}-home"
    subprocess.run(["useradd", "-m", "-d", home, name], check=True)
    # udev makes it so where it runs
    mode = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
    os.chmod("/dev/fuse", 0o666)
    yield pwd.getpwnam(name)
    os.chmod("/dev/fuse", mode)
    subprocess.run(["userdel", "-r", name], check=False, stderr=subprocess.DEVNULL)


def test_a_user_mounts_through_fusermount3(server, mount, user):
    place = pathlib.Path(user.pw_dir) / "mount"
    place.mkdir()
    os.chown(place, user.pw_uid, user.pw_gid)
    env = mounts.environment(HOME=user.pw_dir, XDG_RUNTIME_DIR=user.pw_dir)
    m = mount("bench", path=place, server=server("--synthetic", SPEC), as_user=user.pw_name, env=env)
    listing = subprocess.run(["runuser", "-u", user.pw_name, "--", "cat", place / "top.txt"], check=True,
                             stdout=subprocess.PIPE).stdout
    assert listing == synthetic.expected("bench", "top.txt", 0, 5)
    worker = m.worker_pid()
    assert pathlib.Path(f"/proc/{worker}").exists()
    m.kill_worker()
    listing = subprocess.run(["runuser", "-u", user.pw_name, "--", "cat", place / "small" / "001.bin"],
                             check=True, stdout=subprocess.PIPE).stdout
    assert synthetic.first_wrong(listing, "bench", "small/001.bin") is None
    m.umount()


# --- upkeep ---

def test_a_hang_up_brings_a_new_worker(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC), foreground=True)
    old = m.worker_pid()
    with open(m.path / "big" / "one.bin", "rb") as f:
        f.read(1 << 20)
        m.process.send_signal(signal.SIGHUP)
        data = f.read()
    assert synthetic.first_wrong(data, "bench", "big/one.bin", 1 << 20) is None
    new = m.worker_pid()
    assert new != old and m.status()["worker"]["restarts"] == 1


@pytest.fixture
def program(tmp_path):
    """A copy of os2g, to be replaced as an upgrade does."""
    return shutil.copy(mounts.PROGRAM, tmp_path / "os2g")


def replace(program, make):
    make(program.with_suffix(".new"))
    program.with_suffix(".new").rename(program)


def exe_inode(pid):
    return os.stat(f"/proc/{pid}/exe").st_ino


def test_an_upgrade_needs_no_unmounting(server, mount, program):
    m = mount("bench", server=server("--synthetic", SPEC), program=program, foreground=True)
    replace(program, lambda new: shutil.copy(mounts.PROGRAM, new))
    m.kill_worker()
    assert exe_inode(m.worker_pid()) != program.stat().st_ino  # a crash is no time for an upgrade
    with open(m.path / "small" / "000.bin", "rb") as f:
        m.process.send_signal(signal.SIGHUP)
        mounts.wait_until(lambda: exe_inode(m.worker_pid()) == program.stat().st_ino)
        assert synthetic.first_wrong(f.read(), "bench", "small/000.bin") is None


def test_an_upgrade_that_does_not_work_is_taken_back(server, mount, program):
    m = mount("bench", server=server("--synthetic", SPEC), program=program, foreground=True)
    old = m.worker_pid()
    replace(program, lambda new: shutil.copy("/bin/false", new))
    m.process.send_signal(signal.SIGHUP)
    mounts.wait_until(lambda: m.child_pid() != old)
    assert (m.path / "small" / "000.bin").stat().st_size == 102400
    assert exe_inode(m.worker_pid()) != program.stat().st_ino
    assert "does not work" in m.log.read_text()


def test_the_log_goes_where_it_is_told(server, mount, tmp_path):
    mount("bench", server=server("--synthetic", SPEC), log_directory=tmp_path).umount()
    log, = tmp_path.glob("os2g-*.log")
    assert "mounted at" in log.read_text() and "unmounted" in log.read_text()


def test_the_control_socket_is_for_its_owner(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC))

    done = subprocess.run(["runuser", "-u", "nobody", "--", mounts.PROGRAM, "status", str(m.path)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode != 0


def test_the_worker_has_no_secret_in_its_environment(server, mount):
    s = server("--synthetic", "bench: one 1K")
    m = mount("bench", server=s)
    assert (m.path / "one").stat().st_size == 1024
    environ = pathlib.Path(f"/proc/{m.worker_pid()}/environ").read_bytes()
    assert b"AWS_ACCESS_KEY_ID" in environ
    assert s3d.SECRET.encode() not in environ
    # the next worker gets its keys all the same
    m.kill_worker()
    assert len((m.path / "one").read_bytes()) == 1024
