# SPDX-License-Identifier: Apache-2.0
"""A virtual machine as the host: its stock virtiofs driver reads an export over vhost-user, and
objects land in the BAR of an ivshmem device, which stands for a GPU's memory (docs/design/gdd.md)."""

import contextlib
import errno
import fcntl
import hashlib
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time

import pytest

import mounts
import s3d
import synthetic
import vm

MIB = 1 << 20
SMALL, SMALL_COUNT = 100_000, 40
BIG = 8 * MIB + 12345
SPEC = f"bench: small/%02d.bin {SMALL} x {SMALL_COUNT}; big/%d.bin {BIG} x 2; gdd/%02d.bin 1M x 16"
BAR = 64 * MIB
LIBRARY = vm.GUEST / "guest-libos2g"  # a program with libos2g in it
IOC_LEASE = 0xC0206F02  # OS2G_IOC_GDD_LEASE
GROUP = 44  # of users in the guest who may use .os2g/gdd
GUARD = 0xA5  # what the BAR is filled with, to see where bytes land

FAULTS = """
seed 11
GetObject * 0.05 status 500
GetObject * 0.05 status 503 SlowDown
GetObject * 0.05 reset 50%
GetObject * 0.05 short 100
GetObject * 0.05 garbage 50
GetObject * 0.05 delay 100ms
ListObjectsV2 * 0.1 status 503
"""


class Host:
    """A guest with an export of its own, mounted at /mnt."""

    def __init__(self, stack, server, source="bench", **options):
        top = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="os2g-test-vm-")))
        (top / "mnt").mkdir()
        self.program = pathlib.Path(shutil.copy(mounts.PROGRAM, top / "os2g"))
        self.bar = vm.Memory(BAR)
        stack.callback(self.bar.close)
        self.bar.fill(GUARD)
        self.socket = top / "socket"
        options = {"gpu_memory": self.bar.path, "gdd_group": GROUP,
                   "memory": "128M", "threads": 2, **options}
        self.mount = mounts.Mount(top / "mnt", source, server=server, foreground=True,
                                  program=self.program, socket=self.socket, **options)
        stack.callback(self.mount.close)
        programs = [LIBRARY] if LIBRARY.exists() else []
        self.vm = stack.enter_context(vm.Vm([(self.socket, "os2g")], bar=self.bar,
                                            programs=programs))
        self.run, self.start, self.error = self.vm.run, self.vm.start, self.vm.error
        self.run("mount", "os2g", "/mnt")

    def lease(self, worker, offset, size):
        """A worker opens .os2g/gdd and leases there."""
        self.run("gdd-open", "/mnt/.os2g/gdd", worker=worker)
        return self.run("gdd-lease", offset, size, worker=worker)["offset"]

    def untouched(self, *holes):
        """Whether nothing has landed in the BAR but in holes: (offset, length), in order."""
        at = 0
        for offset, length in [*holes, (BAR, 0)]:
            if self.bar.read(at, offset - at).count(GUARD) != offset - at:
                return False
            at = offset + length
        return True


def start_of(key):
    """Where a synthetic object's bytes begin in the table of all bytes (the guest compares)."""
    digest = hashlib.sha256(f"bench/{key}\n0".encode()).digest()
    return int.from_bytes(digest[:8], "little") % synthetic.P


def with_starts(keys, prefix=""):
    return [word for key in keys for word in (prefix + key, start_of(key))]


GDD_KEYS = [f"gdd/{i:02d}.bin" for i in range(16)]


@pytest.fixture(scope="module")
def server():
    why = vm.missing()
    if why:
        pytest.skip(why)
    with s3d.S3d("--synthetic", SPEC) as one:
        yield one


@pytest.fixture(scope="module")
def shared(server):
    with contextlib.ExitStack() as stack:
        yield Host(stack, server)


@pytest.fixture
def host(shared, server):
    """One guest for many tests: each leaves it as it was."""
    yield shared
    server.faults("")
    for worker in ("main", "a", "b", "load"):
        shared.vm.kill(worker)
    shared.bar.fill(GUARD)


# --- reading files ---

@pytest.mark.parametrize("mode", ["buffered", "direct", "mmap"])
def test_every_file_of_the_tree_is_right_while_the_store_misbehaves(host, server, mode):
    server.faults(FAULTS)
    host.run("write", "/proc/sys/vm/drop_caches", "3")
    tree = host.run("walk", "/mnt")
    assert tree["files"] == SMALL_COUNT + 2 + 16 and tree["directories"] == 4
    places = ["/mnt/small", "/mnt/big/0.bin"]
    hashed = [line for place in places
              for line in host.run("hash", place, mode, MIB, timeout=120).lines]
    assert len(hashed) == SMALL_COUNT + 1
    for line in hashed:
        key = line["path"].removeprefix("/mnt/")
        good = synthetic.expected("bench", key, 0, line["size"])
        assert line["sha256"] == hashlib.sha256(good).hexdigest(), key


def test_the_stall_report_is_read_in_a_guest(host):
    reports = [host.run("hash", "/mnt/.os2g/stalls", "buffered", MIB).lines[0]["sha256"]
               for _ in range(2)]
    # made anew for each: time has passed
    assert reports[0] != reports[1]
    assert all(len(one) == 64 and one != hashlib.sha256().hexdigest() for one in reports)


def test_names_that_are_not_there_and_writing_are_errors(host):
    assert host.error("open", "/mnt/none") == errno.ENOENT
    assert host.error("open", "/mnt/small/none") == errno.ENOENT
    assert host.error("write", "/mnt/small/00.bin", "x") == errno.EROFS


# --- landing in the BAR ---

def test_objects_land_in_the_bar_and_never_were_in_guest_ram(host):
    key = "gdd/07.bin"
    good = synthetic.expected("bench", key, 0, MIB)
    place = host.lease("a", 16 * MIB, 4 * MIB) + 4096
    done = host.run("gdd-fetch", key, place, 2 * MIB, worker="a")
    assert (done["result"], done["size"]) == (MIB, MIB)
    # seen from here, in the memory itself
    assert host.bar.read(place, MIB) == good
    assert host.untouched((place, MIB))
    # before the guest looks at them: these bytes are nowhere in its RAM
    needles = [good[at:at + 256] for at in (0, 4096, 500_000, MIB - 256)]
    assert [host.vm.ram.find(needle) for needle in needles] == [None] * 4
    # seen from the guest, which maps the BAR
    assert host.run("bar-check", place, MIB, start_of(key), 0, worker="a")["wrong"] == -1
    # and a search that finds nothing would find them: an ordinary read leaves them there
    host.run("hash", f"/mnt/{key}", "buffered", MIB)
    assert all(host.vm.ram.find(needle) is not None for needle in needles)


def test_a_piece_of_an_open_file_lands(host):
    place = host.lease("a", 0, MIB)
    done = host.run("gdd-read", "/mnt/big/1.bin", BIG - 100_000, 200_000, place + 7, worker="a")
    assert done["result"] == 100_000  # short, at the object's end
    assert host.bar.read(place + 7, 100_000) == synthetic.expected("bench", "big/1.bin",
                                                                   BIG - 100_000, 100_000)
    assert host.untouched((place + 7, 100_000))


def test_an_object_larger_than_its_room_and_one_that_is_not_there(host):
    place = host.lease("a", 0, MIB)
    done = host.run("gdd-fetch", "big/0.bin", place, MIB, worker="a")
    assert (done["result"], done["size"]) == (-errno.EFBIG, BIG)
    assert host.run("gdd-fetch", "none", place, MIB, worker="a")["result"] == -errno.ENOENT


def test_nothing_is_landed_outside_a_lease(host):
    place = host.lease("a", 4 * MIB, MIB)
    for at, room in ((place - 1, 4096), (place + MIB, 1), (place + MIB - 4096, 4097), (BAR, 1), (0, MIB)):
        assert host.error("gdd-fetch", "small/00.bin", at, room, worker="a") == errno.EINVAL
    assert host.untouched()


def test_many_objects_land_while_the_store_misbehaves(host, server):
    server.faults(FAULTS)
    host.lease("a", 8 * MIB, 8 * MIB)
    done = host.run("gdd-load", 1, 8, 8 * MIB, MIB, 64, *with_starts(GDD_KEYS), worker="a")
    assert done["wrong"] == "" and done["landed"] >= 64
    assert host.untouched((8 * MIB, 8 * MIB))


@pytest.mark.skipif(not LIBRARY.exists(), reason="a static program has no sanitizers")
def test_libos2g_works_in_a_guest(host):
    key = "gdd/03.bin"
    host.run("write", "/proc/sys/vm/drop_caches", "3")
    done = host.run("exec", "/bin/guest-libos2g", "/mnt", key, start_of(key))
    assert (done["output"], done["status"]) == ("ok\n", 0)
    assert host.bar.find(synthetic.expected("bench", key, 0, MIB)) == 0


@pytest.mark.skipif(not LIBRARY.exists(), reason="a static program has no sanitizers")
def test_libos2g_in_a_guest_goes_on_while_workers_die(host):
    key, kills = "gdd/04.bin", 0
    call = host.start("exec", "/bin/guest-libos2g", "/mnt", key, start_of(key))
    # not for ever: a supervisor whose workers only die gives up
    while kills < 15 and not call.done.wait(0.1):
        host.mount.kill_worker()
        mounts.wait_until(lambda: host.mount.child_pid() is not None)
        kills += 1
    done = call.wait()
    assert (done["output"], done["status"]) == ("ok\n", 0)
    assert kills > 0


# --- leases ---

def test_a_second_lease_of_the_same_memory_is_refused(host):
    host.lease("a", MIB, 2 * MIB)
    host.run("gdd-open", "/mnt/.os2g/gdd", worker="b")
    for offset, size in ((MIB, 2 * MIB), (0, 2 * MIB), (2 * MIB, MIB), (0, BAR)):
        assert host.error("gdd-lease", offset, size, worker="b") == errno.EBUSY
    assert host.run("gdd-lease", 0, MIB, worker="b")["memory"] == BAR
    assert host.run("gdd-lease", -1, 4 * MIB, worker="b")["offset"] == 3 * MIB
    host.vm.kill("a")  # closes what it has open
    mounts.wait_until(lambda: host.error("gdd-lease", MIB, 2 * MIB, worker="b") == 0)


def test_a_user_without_the_right_is_refused(host):
    host.run("become", 1000, 1000, worker="a")
    assert host.error("gdd-open", "/mnt/.os2g/gdd", worker="a") == errno.EACCES
    assert host.error("open", "/mnt/small/00.bin", worker="a") == 0
    # a further group, which only the guest's kernel knows of
    host.run("become", 1000, 1000, GROUP, worker="b")
    assert host.error("gdd-open", "/mnt/.os2g/gdd", worker="b") == 0
    assert host.error("gdd-lease", 0, MIB, worker="b") == 0


# --- the BAR goes away, moves and comes back ---

def test_the_bar_goes_away_moves_and_returns_while_requests_run(host):
    home = host.run("bar-place")["address"]
    host.lease("load", 16 * MIB, 8 * MIB)
    load = host.start("gdd-load", 0, 8, 16 * MIB, MIB, 0, *with_starts(GDD_KEYS), worker="load")
    reader = host.start("load", MIB, 0, *with_starts(["small/00.bin"], "/mnt/"), worker="b")
    for elsewhere in (home - 2 * BAR, home - 5 * BAR, home):
        time.sleep(0.2)
        assert host.run("bar-place", 0)["decoded"] == 0
        away = host.bar.read(16 * MIB, 8 * MIB)
        time.sleep(0.2)
        assert host.bar.read(16 * MIB, 8 * MIB) == away  # nothing lands in what is gone
        host.run("bar-place", elsewhere)
    time.sleep(0.3)
    host.vm.stop("load")
    host.vm.stop("b")
    done, read = load.wait(), reader.wait()
    assert done["wrong"] == "" and done["landed"] > 0 and done["cancelled"] > 0, done
    assert read["wrong"] == "" and read["files"] > 0
    assert host.untouched((16 * MIB, 8 * MIB))
    # back where the guest has it mapped, and right: the same lease, never told of anything
    done = host.run("gdd-load", 1, 8, 16 * MIB, MIB, 32, *with_starts(GDD_KEYS), worker="load")
    assert done["wrong"] == "" and done["landed"] >= 32 and done["cancelled"] == 0


# --- restarts ---

def read_through(host, disturb, times):
    """Lets the guest read files and land objects while disturb() is called so many times."""
    host.lease("load", 32 * MIB, 4 * MIB)
    load = host.start("gdd-load", 1, 4, 32 * MIB, MIB, 0, *with_starts(GDD_KEYS), worker="load")
    keys = ["big/0.bin", *(f"small/{i:02d}.bin" for i in range(8))]
    reader = host.start("load", MIB, 1, *with_starts(keys, "/mnt/"), worker="b")
    for _ in range(times):
        time.sleep(0.25)
        disturb()
    time.sleep(0.5)
    host.vm.stop("load")
    host.vm.stop("b")
    done, read = load.wait(), reader.wait()
    assert done["wrong"] == "" and read["wrong"] == ""
    assert done["landed"] > 0 and read["files"] > 0
    assert host.untouched((32 * MIB, 4 * MIB))
    slowest = max(done["worst_ms"], read["worst_ms"])
    assert slowest < 2000 * mounts.slowed_down(), slowest


def runs_program(host):
    """Whether the worker there is at the moment runs what lies at host.program now."""
    try:
        running = os.stat(f"/proc/{host.mount.child_pid()}/exe")
    except FileNotFoundError:
        return False
    return running.st_ino == host.program.stat().st_ino


def test_ten_crashes_of_the_worker_are_not_noticed_by_a_guest(host):
    before = host.mount.status()["worker"]["restarts"]

    def kill():
        old = host.mount.kill_worker()
        mounts.wait_until(lambda: host.mount.child_pid() not in (None, old))

    read_through(host, kill, 10)
    assert host.mount.status()["worker"]["restarts"] == before + 10


def test_an_upgrade_to_another_build_is_not_noticed_by_a_guest(host):
    builds = [("strip", "--strip-debug", "-o"), ("cp", "-T")]  # another one, and back

    def upgrade():
        command, *options = builds.pop(0)
        new = host.program.with_suffix(".new")
        subprocess.run([command, *options, *((new, mounts.PROGRAM) if options[-1] == "-o"
                                             else (mounts.PROGRAM, new))], check=True)
        new.rename(host.program)
        host.mount.process.send_signal(signal.SIGHUP)
        mounts.wait_until(lambda: runs_program(host))

    read_through(host, upgrade, 2)


def test_a_lease_outlives_the_worker(host):
    place = host.lease("a", 0, MIB)
    host.mount.kill_worker()
    host.run("gdd-open", "/mnt/.os2g/gdd", worker="b")
    assert host.error("gdd-lease", 0, MIB, worker="b") == errno.EBUSY
    assert host.run("gdd-fetch", "small/01.bin", place, MIB, worker="a")["result"] == SMALL


def test_a_guest_that_boots_again_begins_anew(host):
    host.lease("a", 0, BAR)
    host.vm.reboot()
    assert host.run("mount", "os2g", "/mnt").rc == 0
    line, = host.run("hash", "/mnt/small/02.bin", "direct", MIB).lines
    good = synthetic.expected("bench", "small/02.bin", 0, SMALL)
    assert line["sha256"] == hashlib.sha256(good).hexdigest()
    assert host.lease("a", 0, BAR) == 0  # nobody holds what the guest before held


# --- two guests ---

def test_two_guests_on_two_exports_reach_nothing_of_each_other(host, server):
    with contextlib.ExitStack() as stack:
        # the second's BAR is no GPU's, by its operator's word: the first one's is
        other = Host(stack, server, "bench/big/", gpu_memory=host.bar.path)
        assert other.run("walk", "/mnt")["files"] == 2
        other.run("gdd-open", "/mnt/.os2g/gdd", worker="a")
        assert other.error("gdd-lease", 0, MIB, worker="a") == errno.ENXIO
        assert host.run("walk", "/mnt")["files"] == SMALL_COUNT + 18
    with contextlib.ExitStack() as stack:
        other = Host(stack, server, "bench/gdd/")
        for one, key in ((host, "gdd/01.bin"), (other, "02.bin")):
            one.lease("a", 4 * MIB, MIB)  # the same place in each one's own
            assert one.run("gdd-fetch", key, 4 * MIB, MIB, worker="a")["result"] == MIB
        assert other.run("gdd-fetch", "gdd/01.bin", 4 * MIB, MIB, worker="a")["result"] == -errno.ENOENT
        for one, key in ((host, "gdd/01.bin"), (other, "gdd/02.bin")):
            assert one.bar.read(4 * MIB, MIB) == synthetic.expected("bench", key, 0, MIB)
            assert one.untouched((4 * MIB, MIB))


def test_a_local_mount_has_nothing_to_lease(host):
    lease = bytearray(struct.pack("<QQQQ", 0, MIB, 0, 0))  # struct os2g_gdd_lease of wire/gdd.h
    fd = os.open(host.mount.path / ".os2g" / "gdd", os.O_RDONLY)
    try:
        with pytest.raises(OSError) as error:
            fcntl.ioctl(fd, IOC_LEASE, lease)
    finally:
        os.close(fd)
    assert error.value.errno == errno.ENXIO
