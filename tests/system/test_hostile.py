# SPDX-License-Identifier: Apache-2.0
"""Hosts that break the rules: each can end its own session and nothing else. A corpus of bad
messages, rings, requests and memory is replayed, and all the while another session and the mount
read on, right bytes, from the same worker."""

import contextlib
import errno
import fcntl
import os
import pathlib
import random
import socket
import struct
import time

import pytest

import mounts
import s3d
import vhost_frontend as host
from test_crash import Load, check
from vhost_frontend import Ended, Link, Memory, Queue, Session

SPEC = "bench: big/one.bin 256M; big/cold.bin 4G; small/%03d.bin 100K x 50"
SECONDS = 10 * mounts.slowed_down()


class Export:
    """A mount with a socket, and those that use it as they should."""

    def __init__(self, top):
        self.server = s3d.S3d("--synthetic", SPEC)
        self.socket = top / "host.sock"
        (top / "mount").mkdir()
        self.mount = mounts.Mount(top / "mount", "bench", server=self.server, foreground=True,
                                  socket=self.socket)
        self.session = Session(self.socket, hello=True)
        self.node, self.handle = self.session.open_path("big/one.bin")
        self.worker = self.mount.child_pid()
        self.before = self.held()

    def held(self):
        """How many descriptors the supervisor and the worker have, and mappings of hosts' memory."""
        def count(pid):
            return len(os.listdir(f"/proc/{pid}/fd"))

        maps = pathlib.Path(f"/proc/{self.worker}/maps").read_text()
        return count(self.mount.process.pid), maps.count("memfd:host")

    def by_session(self, rng):
        offset = rng.randrange(255 << 20)
        data = self.session.read(self.node, self.handle, offset, 300 << 10)
        return check(data, "big/one.bin", offset) or (None if len(data) == 300 << 10 else "too short")

    def by_mount(self, rng):
        key, offset = f"small/{rng.randrange(50):03d}.bin", rng.randrange(100 << 10)
        with open(self.mount.path / key, "rb", buffering=0) as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return check(os.pread(f.fileno(), 10000, offset), key, offset)

    def close(self):
        # what the hosts have left goes with them
        mounts.wait_until(lambda: self.held() <= self.before, what="something is left of a host")
        self.session.close()
        self.mount.umount()
        assert self.mount.process.returncode == 0
        assert self.server.stop() == 0


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    one = Export(tmp_path_factory.mktemp("hostile").resolve())
    yield one
    one.close()


@pytest.fixture
def bystanders(export):
    """Whatever the test does, others read on, and the worker is the same."""
    load = Load(export.by_session, export.by_mount)
    try:
        yield export
        rounds = dict(load.rounds)
        mounts.wait_until(lambda: load.errors or all(load.rounds[name] > rounds[name] + 1
                                                     for name in load.rounds))
    finally:
        load.stop()
    assert not load.errors
    assert export.mount.child_pid() == export.worker, "the worker has died"


@pytest.fixture
def hostile(bystanders):
    """Makes sessions that are closed afterwards: hostile(**as Session)."""
    with contextlib.ExitStack() as stack:
        yield lambda **how: stack.enter_context(Session(bystanders.socket, **how))


def ends(session):
    """Whether the device ends it."""
    try:
        return session.has_ended(SECONDS)
    except Ended:
        return True


@contextlib.contextmanager
def slow_store(export):
    """Bodies come late, so that READs are under way."""
    export.server.latency("100ms")
    try:
        yield
    finally:
        export.server.latency("0ms")


# --- the ordinary way ---

def test_a_host_reads_over_its_own_rings(hostile):
    s = hostile(hello=True)
    assert s.must(host.STATFS, host.ROOT)
    node, handle = s.open_path("small/007.bin")
    assert check(s.read(node, handle, 0, 100 << 10), "small/007.bin", 0) is None
    assert s.read(node, handle, 99 << 10, 4096) == s.read(node, handle, 0, 1 << 20)[99 << 10:]
    assert check(s.fetch("small/008.bin", 1 << 20), "small/008.bin", 0) is None
    s.release(node, handle)
    s.forget(node)
    with pytest.raises(FileNotFoundError):
        s.lookup_path("small/none")
    # the rings stop where they are and go on
    base = s.queues[1].stop()
    s.queues[1].start(base)
    assert s.lookup_path("small/009.bin")


def test_an_answer_may_be_in_pieces_of_a_byte(hostile):
    s = hostile()
    s.memory.write(0, s.message(host.GETATTR, host.ROOT, bytes(16)))
    # two descriptors of the message, 100 of a byte for the answer, all over the place
    readable = [(s.memory.addr, 7), (s.memory.addr + 7, 49)]
    writable = [(s.memory.addr + 4096 + 37 * i, 1) for i in range(100)]
    s.queues[1].add(readable, writable + [(s.memory.addr + 65536, 4096)])
    s.queues[1].wait()
    answer = b"".join(s.memory.bytes(4096 + 37 * i, 1) for i in range(100))
    assert host.OUT_HEADER.unpack_from(answer)[:2] == (120, 0)


# --- messages ---

def raw(request, payload=b"", flags=host.VERSION, size=None):
    return struct.pack("<III", request, flags, len(payload) if size is None else size) + payload


def with_file(request, payload, make):
    """Sends it with the descriptor that make() opens."""
    def send(link):
        fd = make()
        try:
            link.send(request, payload, [fd])
        finally:
            os.close(fd)
    return send


def pipe_end():
    a, b = os.pipe()
    os.close(b)
    return a


def memfd(size, seals=0):
    m = Memory(size, 0, sealed=False)
    if seals:
        fcntl.fcntl(m.fd, fcntl.F_ADD_SEALS, seals)
    return m.fd


def region(addr=1 << 32, size=1 << 20, user=1 << 40, offset=0):
    return struct.pack("<QQQQ", addr, size, user, offset)


def many_descriptors(link):
    fds = [os.eventfd(0) for _ in range(20)]
    try:
        link.send(host.SET_MEM_TABLE, struct.pack("<II", 8, 0) + 8 * region(), fds)
    finally:
        for fd in fds:
            os.close(fd)


MEGABYTE = 1 << 20
BAD_MESSAGES = {
    "another version": lambda l: l.send_raw(raw(host.GET_FEATURES, flags=2)),
    "an answer": lambda l: l.send_raw(raw(host.GET_FEATURES, flags=host.VERSION | host.REPLY)),
    "a long one": lambda l: l.send_raw(raw(host.SET_CONFIG, bytes(8192))),
    "the longest": lambda l: l.send_raw(raw(host.SET_CONFIG, bytes(64), size=0xFFFFFFFF)),
    "a short one": lambda l: l.send(host.SET_FEATURES, bytes(4)),
    "one with a tail": lambda l: l.send(host.SET_FEATURES, bytes(16)),
    "garbage": lambda l: l.send_raw(random.Random(3).randbytes(4096)),
    "features that were not offered": lambda l: l.send(host.SET_FEATURES, b"\xff" * 8),
    "protocol features that were not offered":
        lambda l: l.send(host.SET_PROTOCOL_FEATURES, b"\xff" * 8),
    "a ring beyond the last": lambda l: l.send(host.SET_VRING_NUM, struct.pack("<II", 200, 128)),
    "the base of a ring beyond the last":
        lambda l: l.send(host.GET_VRING_BASE, struct.pack("<II", 0xFFFFFFFF, 0)),
    "a ring of no size": lambda l: l.send(host.SET_VRING_NUM, struct.pack("<II", 0, 0)),
    "a ring of an odd size": lambda l: l.send(host.SET_VRING_NUM, struct.pack("<II", 0, 100)),
    "a large ring": lambda l: l.send(host.SET_VRING_NUM, struct.pack("<II", 0, 1 << 31)),
    "a ring that is not aligned":
        lambda l: l.send(host.SET_VRING_ADDR, struct.pack("<IIQQQQ", 0, 0, 1, 1, 1, 0)),
    "a base beyond the ring's": lambda l: l.send(host.SET_VRING_BASE, struct.pack("<II", 0, 1 << 16)),
    "a kick without a descriptor": lambda l: l.send(host.SET_VRING_KICK, struct.pack("<Q", 0)),
    "a kick that is to be polled":
        lambda l: l.send(host.SET_VRING_KICK, struct.pack("<Q", host.NO_FD)),
    "a kick by a pipe": with_file(host.SET_VRING_KICK, struct.pack("<Q", 0), pipe_end),
    "a call by a pipe": with_file(host.SET_VRING_CALL, struct.pack("<Q", 0), pipe_end),
    "a call by a file":
        with_file(host.SET_VRING_CALL, struct.pack("<Q", 0), lambda: os.open("/dev/zero", os.O_RDWR)),
    "a descriptor where none is due":
        with_file(host.GET_FEATURES, b"", lambda: os.open("/dev/null", os.O_RDWR)),
    "more descriptors than there can be": many_descriptors,
    "a table that is shorter than it says":
        lambda l: l.send(host.SET_MEM_TABLE, struct.pack("<II", 8, 0) + region()),
    "a table of very many":
        lambda l: l.send(host.SET_MEM_TABLE, struct.pack("<II", 0xFFFFFFFF, 0) + region()),
    "a table without descriptors":
        lambda l: l.send(host.SET_MEM_TABLE, struct.pack("<II", 1, 0) + region()),
    "memory that is a pipe": with_file(host.ADD_MEM_REG, bytes(8) + region(), pipe_end),
    "memory that is a device":
        with_file(host.ADD_MEM_REG, bytes(8) + region(), lambda: os.open("/dev/zero", os.O_RDWR)),
    "memory in a file on a disk":
        with_file(host.ADD_MEM_REG, bytes(8) + region(size=4096),
                  lambda: os.open(__file__, os.O_RDONLY)),
    "memory of which there is less":
        with_file(host.ADD_MEM_REG, bytes(8) + region(), lambda: memfd(4096)),
    "memory beyond the end":
        with_file(host.ADD_MEM_REG, bytes(8) + region(offset=1 << 40), lambda: memfd(MEGABYTE)),
    "memory that cannot be written":
        with_file(host.ADD_MEM_REG, bytes(8) + region(),
                  lambda: memfd(MEGABYTE, fcntl.F_SEAL_WRITE)),
    "memory of no size":
        with_file(host.ADD_MEM_REG, bytes(8) + region(size=0), lambda: memfd(MEGABYTE)),
    "memory around the last address":
        with_file(host.ADD_MEM_REG, bytes(8) + region(addr=(1 << 64) - 4096), lambda: memfd(MEGABYTE)),
    "more memory than there are addresses":
        with_file(host.ADD_MEM_REG, bytes(8) + region(size=1 << 46), lambda: memfd(1 << 46)),
    "memory taken away that is not there":
        lambda l: l.send(host.REM_MEM_REG, bytes(8) + region()),
    "a configuration that is written":
        lambda l: l.send(host.SET_CONFIG, struct.pack("<III", 0, 4, 0) + bytes(4)),
}


def linked(path):
    """A link on which features have been agreed on."""
    link = Link(path)
    link.ask_u64(host.GET_FEATURES)
    link.send(host.SET_FEATURES, struct.pack("<Q", host.F_PROTOCOL | host.F_VERSION_1))
    link.send(host.SET_PROTOCOL_FEATURES,
              struct.pack("<Q", host.P_MQ | host.P_REPLY_ACK | host.P_MEM_SLOTS))
    return link


@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_a_bad_message_ends_the_session(bystanders, name):
    link = linked(bystanders.socket)
    with contextlib.closing(link):
        with contextlib.suppress(Ended):
            BAD_MESSAGES[name](link)
        assert link.has_ended(SECONDS)


def test_a_message_that_is_not_known_is_refused(bystanders):
    with contextlib.closing(linked(bystanders.socket)) as link:
        with pytest.raises(host.Refused):
            link.tell(99, bytes(16))
        assert link.ask_u64(host.GET_QUEUE_NUM) > 1


def test_a_configuration_that_is_not_there_has_no_bytes(bystanders):
    with contextlib.closing(linked(bystanders.socket)) as link:
        assert link.ask(host.GET_CONFIG, struct.pack("<III", 4000, 4, 0) + bytes(4)) == b""


def test_memory_that_overlaps_is_refused(hostile):
    s = hostile()
    other = Memory(1 << 20, s.memory.addr + 4096)
    with pytest.raises(host.Refused):
        s.share(other)
    other.close()
    assert s.lookup_path("small/001.bin")


def test_half_a_message_waits_for_nobody(bystanders):
    link = linked(bystanders.socket)
    link.send_raw(raw(host.SET_FEATURES, bytes(8))[:15])
    assert not link.has_ended(0.2)
    link.close()


def test_a_ring_outside_the_memory_ends_the_session(bystanders):
    link = linked(bystanders.socket)
    memory = Memory(1 << 20, 1 << 32)
    link.tell(host.ADD_MEM_REG, bytes(8) + memory.region(), [memory.fd])
    queue = Queue(link, 1, memory)
    queue.used = memory.size - 8
    with pytest.raises(Ended):
        queue.start()
    for one in (link, queue, memory):
        one.close()


def test_the_memory_of_a_running_ring_may_go_with_it(hostile):
    s = hostile()
    s.unshare(s.rings)  # the rings stop
    s.queues[1].kick()
    assert not s.has_ended(0.2)


def test_as_much_is_held_for_hosts_as_there_is_room(bystanders):
    """Very many connections that say nothing: some are refused, the others stay; who is there reads
    on, and once they have gone there is room again."""
    links = []
    for _ in range(600):
        try:
            links.append(Link(bystanders.socket))
        except (ConnectionRefusedError, BlockingIOError, TimeoutError):
            break
    time.sleep(0.2)
    for link in links:
        link.close()
    mounts.wait_until(lambda: _session_works(bystanders.socket))


def _session_works(path):
    try:
        with Session(path) as s:
            return s.lookup_path("small/001.bin")
    except (Ended, ConnectionRefusedError):
        return False


# --- rings ---

def chain(*descriptors):
    """Descriptors 0, 1, ... as given, and the first is offered."""
    def make(s, q):
        for i, (addr, size, flags, following) in enumerate(descriptors):
            q.describe(i, addr, size, flags, following)
        q.offer(0)
    return make


def table(*descriptors, size=None, flags=0):
    """The same in an indirect table."""
    def make(s, q):
        entries = b"".join(struct.pack("<QIHH", *d) for d in descriptors)
        s.memory.write(0, entries)
        q.describe(0, s.memory.addr, len(entries) if size is None else size,
                   host.INDIRECT | flags, 1)
        q.offer(0)
    return make


def index_far_ahead(s, q):
    q.memory.write(q.avail + 2, struct.pack("<H", q.memory.number(q.avail + 2) + q.size + 1 & 0xFFFF))


def head_outside(s, q):
    q.offer(q.size)


A, N, W = 2 << 32, host.NEXT, host.WRITE  # the address of a session's memory
BAD_RINGS = {
    "a head outside the ring": head_outside,
    "an index that is far ahead": index_far_ahead,
    "a loop": chain((A, 64, N, 1), (A, 64, N, 0)),
    "a loop of one": chain((A, 64, N, 0)),
    "a next outside the ring": chain((A, 64, N, 60000)),
    "readable after writable": chain((A, 64, N | W, 1), (A, 64, 0, 0)),
    "an empty descriptor": chain((A, 0, N, 1), (A, 64, W, 0)),
    "an address that nobody has": chain((0x1234, 64, 0, 0)),
    "an address between regions": chain((A - 32, 64, 0, 0)),
    "a length beyond the region": chain((A, 64, N, 1), (A, 0xFFFFFFFF, W, 0)),
    "an address that wraps around": chain(((1 << 64) - 8, 64, 0, 0)),
    "no message": chain((A, 4096, W, 0)),
    "a message that is no header": chain((A, 39, N, 1), (A + 4096, 4096, W, 0)),
    "a message that is too long": chain((A, 1 << 20, N, 1), (A + (1 << 20), 4096, W, 0)),
    "an empty table": table(size=0),
    "a table and a half": table((A, 64, 0, 0), size=17),
    "a table of 4 GiB": table((A, 64, 0, 0), size=0xFFFFFFF0),
    "a table and a next": table((A, 64, 0, 0), flags=host.NEXT),
    "a table in a table": table((A, 64, host.INDIRECT, 0)),
    "a loop in a table": table((A, 64, N, 1), (A, 64, N, 0)),
    "a next outside its table": table((A, 64, N, 2), (A, 64, N, 0)),
    "a table that nobody has": chain((0x1000, 64, host.INDIRECT, 0)),
    "more pieces than there can be": table(*[(A + i, 1, N | W, i + 1) for i in range(1025)]),
}


@pytest.mark.parametrize("name", BAD_RINGS)
def test_a_bad_ring_ends_the_session(hostile, name):
    s = hostile()
    BAD_RINGS[name](s, s.queues[1])
    s.queues[1].kick()
    assert ends(s)


def test_an_indirect_table_that_was_not_agreed_on_ends_the_session(hostile):
    s = hostile(features=0)
    table((A, 64, N, 1), (A + 4096, 4096, W, 0))(s, s.queues[1])
    s.queues[1].kick()
    assert ends(s)


def test_a_head_that_is_offered_twice_ends_the_session(hostile, bystanders):
    s = hostile()
    node, handle = s.open_path("big/cold.bin")
    with slow_store(bystanders):
        request, _, _ = s.start_read(node, handle, 200 << 20, 4096)
        s.queues[1].offer(request.head)
        s.queues[1].kick()
        assert ends(s)


def test_data_may_land_in_the_rings_themselves(hostile):
    """The host spoils its own rings. Whatever comes of it, it is the host's trouble."""
    # bodies are not received there where ThreadSanitizer would call that a race
    s = hostile(hello=b"__tsan_init" not in mounts.PROGRAM.read_bytes())
    node, handle = s.open_path("big/cold.bin")
    body = struct.pack("<QQIIQII", handle, 0, 1 << 20, 0, 0, 0, 0)
    s.submit(s.message(host.READ, node, body), 16, [(s.rings.addr, s.rings.size)])
    for _ in range(50):
        s.queues[1].kick()
        time.sleep(0.002)


def test_rings_that_change_all_the_time_do_no_harm(hostile):
    """What is checked is a copy: descriptors, tables and messages are rewritten while they are
    taken."""
    rng = random.Random(5)
    for _ in range(5):
        s = hostile()
        q = s.queues[1]
        for i in range(2000):
            at = rng.choice([q.desc, q.avail, q.used]) + rng.randrange(64)
            s.rings.write(at, rng.randbytes(rng.randrange(1, 16)))
            if i % 10 == 0:
                q.kick()


def test_a_storm_of_kicks_is_weathered(hostile):
    s = hostile()
    for _ in range(20000):
        s.queues[1].kick()
    assert s.lookup_path("small/002.bin")


def fill(eventfd):
    """The signal of an answer that was seen already may still come."""
    for _ in range(100):
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(eventfd)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(eventfd, (1 << 64) - 2)
            return
    pytest.fail("it is never empty")


def test_a_call_that_cannot_be_taken_holds_up_nobody(hostile):
    """The counter is full and the descriptor made to wait: who signals must not."""
    s = hostile()
    node, handle = s.open_path("big/cold.bin")
    call = s.queues[1].call_fd
    fill(call)
    fcntl.fcntl(call, fcntl.F_SETFL, 0)
    s.queues[1].event_idx = False
    requests = [s.start_read(node, handle, i << 20, 64 << 10) for i in range(20)]
    mounts.wait_until(lambda: s.queues[1].memory.number(s.queues[1].used + 2) ==
                      s.queues[1].memory.number(s.queues[1].avail + 2))
    assert len(requests) == 20


# --- requests ---

def refused(s, *args, **kwargs):
    """Whether a request is answered by an error, or ends the session."""
    try:
        error, _ = s.request(*args, **kwargs)
    except Ended:
        return True
    return error is not None and error < 0


def error_of(s, *args, **kwargs):
    return -s.request(*args, **kwargs)[0]


def fetch_body(key, key_len=None, flags=0):
    return struct.pack("<II", len(key) if key_len is None else key_len, flags) + key


def region_body(op=2, addr=5 << 32, size=1 << 20, **more):
    return struct.pack("<IiQQQ64s16s", op, more.get("device", 0), addr, size,
                       more.get("handle_offset", 0), b"\xa5" * 64, b"\x5a" * 16)


def read_body(handle, offset=0, size=4096):
    return struct.pack("<QQIIQII", handle, offset, size, 0, 0, 0, 0)


BAD_REQUESTS = {
    "an operation that nobody knows": (12345, 1, bytes(64)),
    "a name that does not end": (host.LOOKUP, 1, b"small"),
    "no name": (host.LOOKUP, 1, b""),
    "an empty name": (host.LOOKUP, 1, b"\0"),
    "a name with a slash": (host.LOOKUP, 1, b"small/001.bin\0"),
    "a long name": (host.LOOKUP, 1, b"n" * 5000 + b"\0"),
    "a node that is not there": (host.GETATTR, 1 << 60, bytes(16)),
    "node 0": (host.LOOKUP, 0, b"small\0"),
    "a short READ": (host.READ, 1, bytes(8)),
    "a handle that was never opened": (host.READ, 1, read_body(987654321)),
    "a READ before the first byte": (host.READ, 1, read_body(1, offset=1 << 63)),
    "a READ around the last byte": (host.READ, 1, read_body(1, offset=(1 << 64) - 1)),
    "a READ of 4 GiB": (host.READ, 1, read_body(1, size=0xFFFFFFFF)),
    "a READ of nothing that is open": (host.READ, 1, read_body(0, size=0)),
    "a READDIR of 4 GiB": (host.READDIR, 1, read_body(1, size=0xFFFFFFFF)),
    "RELEASE of another's handle": (host.RELEASE, 1, struct.pack("<QIIQ", 77, 0, 0, 0)),
    "an ioctl with lengths that lie":
        (host.IOCTL, 1, struct.pack("<QIIQII", 1, 0, 1, 0, 0xFFFFFFFF, 0xFFFFFFFF)),
    "a key that is longer than the message": (host.FETCH, 0, fetch_body(b"small/001.bin", 1024)),
    "a key that is shorter than the message": (host.FETCH, 0, fetch_body(b"small/001.bin", 3)),
    "a key of 4 GiB": (host.FETCH, 0, fetch_body(b"small/001.bin", 0xFFFFFFFF)),
    "no key": (host.FETCH, 0, fetch_body(b"")),
    "a key that is too long": (host.FETCH, 0, fetch_body(b"k" * 1025)),
    "a key with a zero": (host.FETCH, 0, fetch_body(b"small\0001.bin")),
    "a key that goes up": (host.FETCH, 0, fetch_body(b"../other/small/001.bin")),
    "FETCH with flags": (host.FETCH, 0, fetch_body(b"small/001.bin", flags=0xFFFF)),
    "FETCH without a body": (host.FETCH, 0, b""),
    "a window of an unknown kind": (host.REGION, 0, region_body(op=99)),
    "a window of no size": (host.REGION, 0, region_body(size=0)),
    "a window around the last address": (host.REGION, 0, region_body(addr=(1 << 64) - 4096)),
    "a window over the memory": (host.REGION, 0, region_body(addr=2 << 32)),
    "a window that is larger than all": (host.REGION, 0, region_body(size=(1 << 64) - 1, addr=0)),
    "a window taken away that is not there": (host.REGION, 0, region_body(op=3)),
    "half a window": (host.REGION, 0, region_body()[:50]),
    "a short HELLO": (host.HELLO, 0, bytes(4)),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_a_bad_request_is_refused(hostile, name):
    s = hostile(hello=True)
    assert refused(s, *BAD_REQUESTS[name])


def test_private_operations_are_not_there_before_hello(hostile):
    s = hostile()
    assert error_of(s, host.FETCH, 0, fetch_body(b"small/001.bin")) == errno.ENOSYS
    assert error_of(s, host.REGION, 0, region_body()) == errno.ENOSYS


def test_a_host_of_another_time_is_told_which_versions_there_are(hostile):
    s = hostile()
    assert error_of(s, host.HELLO, 0, struct.pack("<IIII", 900, 901, 0, 0)) == errno.EPROTO


def test_nothing_is_done_before_init(hostile):
    s = hostile(init=False)
    assert refused(s, host.LOOKUP, 1, b"small\0")


@pytest.mark.parametrize("size", [0, 39, 41, 4096, 0xFFFFFFFF])
def test_a_header_that_says_another_length_ends_the_session(hostile, size):
    s = hostile()
    s.submit(s.message(host.GETATTR, host.ROOT, bytes(16), size=size), 4096)
    assert ends(s)


def test_a_request_without_room_for_its_answer_ends_the_session(hostile):
    s = hostile()
    s.submit(s.message(host.GETATTR, host.ROOT, bytes(16)), 15)
    assert ends(s)


def test_a_read_with_little_room_gets_no_more(hostile):
    s = hostile()
    node, handle = s.open_path("small/003.bin")
    s.memory.write(8 << 20, b"\xee" * 8192)
    body = struct.pack("<QQIIQII", handle, 0, 65536, 0, 0, 0, 0)
    request = s.submit(s.message(host.READ, node, body), 16, [(s.memory.addr + (8 << 20), 4096)])
    error, _ = request.answer()
    assert error < 0 or request.used <= 16 + 4096
    assert s.memory.bytes((8 << 20) + 4096, 4096) == b"\xee" * 4096


def test_messages_at_random_do_no_harm(hostile):
    rng = random.Random(11)
    kinds = [host.LOOKUP, host.GETATTR, host.OPEN, host.READ, host.STATFS, host.RELEASE,
             host.OPENDIR, host.READDIR, host.RELEASEDIR, host.INTERRUPT, host.IOCTL, host.FETCH,
             host.REGION, host.HELLO, 44, 22, 23, 46, 50]
    sessions = 0
    s = hostile(hello=True)
    for _ in range(1000):
        body = rng.randbytes(rng.randrange(200))
        if rng.random() < 0.5:  # small numbers go deeper
            body = b"".join(struct.pack("<Q", rng.randrange(4)) for _ in range(len(body) // 8))
        try:
            s.request(rng.choice(kinds), rng.randrange(4), body, out_size=rng.choice([16, 200, 4096]))
        except Ended:
            sessions += 1
            s = hostile(hello=True)
    assert sessions < 1000


# --- what others hold ---

def around(number):
    """Its neighbours, and itself: numbers are given out in order."""
    return range(max(0, number - 100), number + 100)


def test_a_host_cannot_give_back_what_others_hold(hostile, bystanders):
    """FORGET of each node that there is, RELEASE of each handle, from a host that holds none."""
    owner, thief = hostile(hello=True), hostile(hello=True)
    node, handle = owner.open_path("small/004.bin")
    with open(bystanders.mount.path / "small/005.bin", "rb", buffering=0) as f:
        assert os.fstat(f.fileno()).st_size == 100 << 10
        nodes = [*range(300), *around(node), *around(bystanders.node)]
        for forged in nodes[::2]:
            thief.forget(forged, 1 << 40)
        everything = b"".join(struct.pack("<QQ", n, 1 << 40) for n in nodes)
        thief.submit(thief.message(host.BATCH_FORGET, 0,
                                   struct.pack("<II", len(nodes), 0) + everything)).answer()
        for forged in [*range(100), *around(handle), *around(bystanders.handle)]:
            thief.request(host.RELEASE, node, struct.pack("<QIIQ", forged, 0, 0, 0))
            thief.request(host.RELEASEDIR, node, struct.pack("<QIIQ", forged, 0, 0, 0))
        assert error_of(thief, host.READ, node, read_body(handle),
                        data=[(thief.memory.addr + (4 << 20), 4096)]) == errno.EBADF
        assert check(owner.read(node, handle, 0, 100 << 10), "small/004.bin", 0) is None
        assert check(f.read(), "small/005.bin", 0) is None
    assert owner.must(host.GETATTR, node, bytes(16))
    owner.release(node, handle)


def test_a_batch_of_forgets_that_lies_does_no_harm(hostile):
    s = hostile()
    node = s.lookup_path("small/006.bin")
    for count in (0xFFFFFFFF, 1 << 28, 2):
        with contextlib.suppress(Ended):
            s.submit(s.message(host.BATCH_FORGET, 0, struct.pack("<II", count, 0) +
                               struct.pack("<QQ", node, 1))).answer()


def test_what_a_host_held_is_given_back_when_it_goes(bystanders):
    def handles():
        return bystanders.mount.status()["fs"]["handles"]

    before = handles()
    with Session(bystanders.socket) as s:
        for i in range(50):
            s.open_path(f"small/{i:03d}.bin")
        assert handles() > before + 40  # the mount's reader has one now and then
    mounts.wait_until(lambda: handles() < before + 10)


# --- memory that goes ---

def test_memory_that_shrinks_while_reads_land_ends_the_session(hostile, bystanders):
    for hello in (False, True):
        s = hostile(sealed=False, hello=hello)
        node, handle = s.open_path("big/cold.bin")
        with slow_store(bystanders):
            for i in range(8):
                s.start_read(node, handle, i * (20 << 20) + (hello << 20), 1 << 20)
            time.sleep(0.05)
            os.ftruncate(s.memory.fd, 0)
            assert ends(s)


def test_memory_that_shrinks_and_grows_all_the_time_does_no_harm(hostile):
    s = hostile(sealed=False, hello=True)
    node, handle = s.open_path("big/cold.bin")
    with contextlib.suppress(Ended, OSError):
        for i in range(200):
            request, _, _ = s.start_read(node, handle, i << 20, 64 << 10)
            os.ftruncate(s.memory.fd, i % 7 << 12)
            os.ftruncate(s.memory.fd, s.memory.size)
            if i % 8 == 7:
                s.reap(request.queue)


def test_rings_that_shrink_end_the_session(bystanders):
    link = linked(bystanders.socket)
    memory = Memory(1 << 20, 1 << 32, sealed=False)
    link.tell(host.ADD_MEM_REG, bytes(8) + memory.region(), [memory.fd])
    queue = Queue(link, 1, memory)
    queue.start()
    os.ftruncate(memory.fd, 0)
    queue.kick()
    assert link.has_ended(SECONDS)
    for one in (link, queue, memory):
        one.close()


@pytest.mark.parametrize("hello", [False, True], ids=["guest", "libos2g"])
def test_nothing_lands_in_memory_that_was_taken_away(hostile, bystanders, hello):
    s = hostile(hello=hello)
    node, handle = s.open_path("big/cold.bin")
    target = Memory(8 << 20, 9 << 32)
    with contextlib.closing(target), slow_store(bystanders):
        s.share(target)
        requests = [s.start_read(node, handle, (30 + i * 16) << 20, 1 << 20, memory=target)[0]
                    for i in range(8)]
        assert s.must(host.STATFS, host.ROOT)  # behind them in the ring: they have been taken from there
        start = time.monotonic()
        s.unshare(target)
        took = time.monotonic() - start
        then = target.bytes(0, target.size)
        for request in requests:
            error, _ = request.answer()
            assert error is None or error <= 0
        time.sleep(0.3)
        assert target.bytes(0, target.size) == then, "bytes came after the memory was given back"
    assert took < 1 * mounts.slowed_down(), "it was waited for the store"
    assert s.lookup_path("small/001.bin")


def test_a_host_that_vanishes_in_the_midst_of_reads_leaves_nothing(bystanders):
    with slow_store(bystanders):
        for i in range(5):
            s = Session(bystanders.socket, hello=True)
            node, handle = s.open_path("big/cold.bin")
            for k in range(8):
                s.start_read(node, handle, (i * 40 + k * 5) << 20, 1 << 20)
            s.close()
