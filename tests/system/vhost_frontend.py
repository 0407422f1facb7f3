# SPDX-License-Identifier: Apache-2.0
"""A host that shares memory with an export, as QEMU and libos2g do: a vhost-user front-end with
virtqueues and FUSE messages, byte by byte. It does what it is told, so that a test can break every
rule; the ordinary way is a Session.

    with Session(path) as s:
        node = s.lookup_path("small/001.bin")
        handle = s.open(node)
        data = s.read(handle, 0, 1 << 20)

Memory is read and written by system calls, never mapped: it may be shrunk under our feet.
"""

import array
import contextlib
import errno
import os
import select
import socket
import struct
import time

SECONDS = 30

# --- vhost-user (src/wire/vhost_user.h) ---

GET_FEATURES, SET_FEATURES, SET_OWNER, RESET_OWNER, SET_MEM_TABLE = 1, 2, 3, 4, 5
SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE, GET_VRING_BASE = 8, 9, 10, 11
SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR = 12, 13, 14
GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES, GET_QUEUE_NUM, SET_VRING_ENABLE = 15, 16, 17, 18
GET_CONFIG, SET_CONFIG, GET_MAX_MEM_SLOTS, ADD_MEM_REG, REM_MEM_REG = 24, 25, 36, 37, 38

VERSION, REPLY, NEED_REPLY = 1, 1 << 2, 1 << 3
F_INDIRECT, F_EVENT_IDX, F_PROTOCOL, F_VERSION_1 = 1 << 28, 1 << 29, 1 << 30, 1 << 32
P_MQ, P_REPLY_ACK, P_CONFIG, P_MEM_SLOTS = 1 << 0, 1 << 3, 1 << 9, 1 << 15
NO_FD = 1 << 8

# --- virtqueues (<linux/virtio_ring.h>) ---

NEXT, WRITE, INDIRECT = 1, 2, 4

# --- FUSE (<linux/fuse.h>) and our own operations (src/wire/ops.h) ---

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, INIT = 1, 2, 3, 14, 15, 17, 18, 26
OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, IOCTL, BATCH_FORGET = 27, 28, 29, 36, 38, 39, 42
HELLO, FETCH, REGION = 0x4F530001, 0x4F530002, 0x4F530003
ROOT = 1
IN_HEADER, OUT_HEADER = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
MAX_PAGES = 1 << 22


class Ended(Exception):
    """The device has ended the session."""


class Refused(Exception):
    """A message was acknowledged with an error."""


class Memory:
    """size bytes that can be shared; places in it are given out in order. addr is what descriptors
    name its first byte, user_addr what ring addresses do."""

    def __init__(self, size, addr, user_addr=None, sealed=True):
        self.fd = os.memfd_create("host", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        if sealed:
            import fcntl
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.size, self.addr = size, addr
        self.user_addr = addr + (1 << 40) if user_addr is None else user_addr
        self._next = 0

    def place(self, size, align=64):
        """The offset of size free bytes."""
        at = -(-self._next // align) * align
        assert at + size <= self.size, "the memory is full"
        self._next = at + size
        return at

    def write(self, at, data):
        os.pwrite(self.fd, data, at)

    def bytes(self, at, size):
        """The bytes there now; fewer where it has been shrunk."""
        parts = []
        while size:
            part = os.pread(self.fd, min(size, 1 << 24), at)
            if not part:
                break
            parts.append(part)
            at, size = at + len(part), size - len(part)
        return b"".join(parts)

    def number(self, at, kind="<H"):
        return struct.unpack(kind, self.bytes(at, struct.calcsize(kind)))[0]

    def region(self, size=None, offset=0):
        """As messages describe it: guest address, size, user address, offset of mmap."""
        return struct.pack("<QQQQ", self.addr, size or self.size, self.user_addr, offset)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class Link:
    """The socket: vhost-user messages."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS)
        self.socket.connect(str(path))

    def send_raw(self, data, fds=()):
        """Bytes as they are."""
        try:
            if fds:
                control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                sent = self.socket.sendmsg([data], control)
                data = data[sent:]
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise Ended from None

    def _receive(self, size):
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Ended
            data += part
        return data

    def send(self, request, payload=b"", fds=(), flags=0):
        self.send_raw(struct.pack("<III", request, VERSION | flags, len(payload)) + payload, fds)

    def receive(self):
        """The next answer: (request, payload)."""
        request, flags, size = struct.unpack("<III", self._receive(12))
        assert flags & REPLY, "a message that is no answer"
        return request, self._receive(size)

    def ask(self, request, payload=b"", fds=()):
        """A request that is always answered; the answer's payload."""
        self.send(request, payload, fds)
        answered, data = self.receive()
        assert answered == request
        return data

    def ask_u64(self, request, payload=b"", fds=()):
        return struct.unpack("<Q", self.ask(request, payload, fds))[0]

    def tell(self, request, payload=b"", fds=()):
        """One that is answered because we want to know that it was done. Needs REPLY_ACK."""
        self.send(request, payload, fds, NEED_REPLY)
        answered, data = self.receive()
        assert answered == request
        if struct.unpack("<Q", data)[0]:
            raise Refused(request)

    def has_ended(self, seconds=0.0):
        """Whether the device hangs up within so many seconds. Answers that come are dropped."""
        end = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select([self.socket], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return False
            try:
                if not self.socket.recv(65536):
                    return True
            except ConnectionResetError:
                return True

    def close(self):
        self.socket.close()


class Queue:
    """The driver's side of a split virtqueue that lies in memory."""

    def __init__(self, link, index, memory, size=128, event_idx=False):
        self.link, self.index, self.memory, self.size = link, index, memory, size
        self.event_idx = event_idx
        self.desc = memory.place(16 * size)
        self.avail = memory.place(6 + 2 * size)
        self.used = memory.place(6 + 8 * size)
        self.kick_fd, self.call_fd = os.eventfd(0, os.EFD_NONBLOCK), os.eventfd(0, os.EFD_NONBLOCK)
        self.free = list(range(size))
        self.chains = {}  # head: its descriptors
        self.seen = 0     # of the used ring

    def start(self, base=0, enable=True):
        link, user = self.link, self.memory.user_addr
        link.send(SET_VRING_NUM, struct.pack("<II", self.index, self.size))
        link.send(SET_VRING_ADDR, struct.pack("<IIQQQQ", self.index, 0, user + self.desc,
                                              user + self.used, user + self.avail, 0))
        link.send(SET_VRING_BASE, struct.pack("<II", self.index, base))
        link.send(SET_VRING_CALL, struct.pack("<Q", self.index), [self.call_fd])
        link.tell(SET_VRING_KICK, struct.pack("<Q", self.index), [self.kick_fd])
        if enable:
            link.tell(SET_VRING_ENABLE, struct.pack("<II", self.index, 1))

    def stop(self):
        """The ring's base."""
        return struct.unpack("<II", self.link.ask(GET_VRING_BASE,
                                                  struct.pack("<II", self.index, 0)))[1]

    def describe(self, i, addr, size, flags=0, following=0):
        self.memory.write(self.desc + 16 * i, struct.pack("<QIHH", addr, size, flags, following))

    def offer(self, head):
        index = self.memory.number(self.avail + 2)
        self.memory.write(self.avail + 4 + 2 * (index % self.size), struct.pack("<H", head))
        self.memory.write(self.avail + 2, struct.pack("<H", (index + 1) & 0xFFFF))

    def kick(self):
        os.eventfd_write(self.kick_fd, 1)

    def add(self, readable, writable):
        """Makes a chain of (addr, size) pieces available; its head."""
        pieces = [(*p, 0) for p in readable] + [(*p, WRITE) for p in writable]
        chain = [self.free.pop() for _ in pieces]
        for k, (addr, size, flags) in enumerate(pieces):
            last = k == len(pieces) - 1
            self.describe(chain[k], addr, size, flags | (0 if last else NEXT),
                          0 if last else chain[k + 1])
        self.chains[chain[0]] = chain
        self.offer(chain[0])
        self.kick()
        return chain[0]

    def take(self):
        """The next (head, length) of the used ring, or None."""
        if self.seen == self.memory.number(self.used + 2):
            return None
        at = self.used + 4 + 8 * (self.seen % self.size)
        head, length = struct.unpack("<II", self.memory.bytes(at, 8))
        self.seen = (self.seen + 1) & 0xFFFF
        self.free += self.chains.pop(head)
        if self.event_idx:
            self.memory.write(self.avail + 4 + 2 * self.size, struct.pack("<H", self.seen))
        return head, length

    def wait(self, seconds=SECONDS):
        """As take(), once there is one."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.call_fd)
            done = self.take()
            if done:
                return done
            left = end - time.monotonic()
            assert left > 0, "a request was not answered"
            ready, _, _ = select.select([self.call_fd, self.link.socket], [], [], left)
            if self.link.socket in ready and self.link.has_ended():
                raise Ended

    def close(self):
        os.close(self.kick_fd)
        os.close(self.call_fd)


class Request:
    """One that is under way."""

    def __init__(self, session, queue, unique, message_at, out_at, out_size, data):
        self.session, self.queue, self.unique = session, queue, unique
        self.message_at, self.out_at, self.out_size, self.data = message_at, out_at, out_size, data
        self.head = self.used = None

    def answer(self):
        """(error, what came behind the header); data that went elsewhere is not in it. Waits."""
        while self.used is None:
            self.session.reap(self.queue)
        if self.used < OUT_HEADER.size:
            return None, b""
        size, error, unique = OUT_HEADER.unpack(
            self.session.memory.bytes(self.out_at, OUT_HEADER.size))
        assert unique == self.unique and size == self.used, "an answer to something else"
        inside = min(size, self.out_size) - OUT_HEADER.size
        return error, self.session.memory.bytes(self.out_at + OUT_HEADER.size, inside)


class Session:
    """Connected, memory shared, queues (0: hiprio) running; FUSE_INIT and HELLO are said unless
    they are not wanted. ring_memory: rings lie in a memory of their own that stays."""

    def __init__(self, path, size=16 << 20, sealed=True, features=F_EVENT_IDX | F_INDIRECT,
                 queues=(0, 1), queue_size=128, init=True, hello=False):
        self.link = Link(path)
        self.link.ask_u64(GET_FEATURES)
        self.link.send(SET_FEATURES, struct.pack("<Q", F_PROTOCOL | F_VERSION_1 | features))
        offered = self.link.ask_u64(GET_PROTOCOL_FEATURES)
        wanted = P_MQ | P_REPLY_ACK | P_MEM_SLOTS
        assert offered & wanted == wanted
        self.link.send(SET_PROTOCOL_FEATURES, struct.pack("<Q", wanted))
        self.link.send(SET_OWNER)
        self.rings = Memory(1 << 20, 1 << 32)
        self.memory = Memory(size, 2 << 32, sealed=sealed)
        self.share(self.rings)
        self.share(self.memory)
        self.queues = {i: Queue(self.link, i, self.rings, queue_size,
                                bool(features & F_EVENT_IDX)) for i in queues}
        for queue in self.queues.values():
            queue.start()
        self._last_unique, self._waiting = 0, {}
        if init:
            self.init()
        if hello:
            self.hello()

    def share(self, memory, **how):
        self.link.tell(ADD_MEM_REG, bytes(8) + memory.region(**how), [memory.fd])

    def unshare(self, memory):
        self.link.tell(REM_MEM_REG, bytes(8) + memory.region())

    # --- requests ---

    def message(self, opcode, node=0, body=b"", size=None, unique=None):
        """A FUSE message; size: what its header claims."""
        if unique is None:
            self._last_unique += 2
            unique = self._last_unique
        return IN_HEADER.pack(IN_HEADER.size + len(body) if size is None else size, opcode, unique,
                              node, 0, 0, os.getpid(), 0, 0) + body

    def submit(self, message, out_size=0, data=(), queue=1):
        """A Request. out_size: room for header and answer; data: pieces (addr, size) behind it."""
        queue = self.queues[queue]
        message_at = self.memory.place(len(message))
        out_at = self.memory.place(out_size)
        self.memory.write(message_at, message)
        writable = [(self.memory.addr + out_at, out_size)] if out_size else []
        unique = IN_HEADER.unpack_from(message.ljust(IN_HEADER.size, b"\0"))[2]
        request = Request(self, queue, unique, message_at, out_at, out_size, data)
        request.head = queue.add([(self.memory.addr + message_at, len(message))],
                                 writable + list(data))
        self._waiting[(queue.index, request.head)] = request
        return request

    def reap(self, queue):
        """Waits for one that is done."""
        head, used = queue.wait()
        self._waiting.pop((queue.index, head)).used = used

    def request(self, opcode, node=0, body=b"", out_size=4096, data=()):
        """(error, answer). Its memory is free again afterwards."""
        mark = self.memory._next
        answer = self.submit(self.message(opcode, node, body), out_size, data).answer()
        if not self._waiting:
            self.memory._next = mark
        return answer

    def must(self, *args, **kwargs):
        """The answer; OSError when it is an error."""
        error, answer = self.request(*args, **kwargs)
        if error:
            raise OSError(-error, os.strerror(-error))
        return answer

    # --- the ordinary way ---

    def init(self):
        answer = self.must(INIT, 0, struct.pack("<IIIII44x", 7, 36, 1 << 20, MAX_PAGES, 0))
        self.max_write = struct.unpack_from("<I", answer, 20)[0]

    def hello(self, low=1, high=2):
        """(version, max_read, release)."""
        answer = self.must(HELLO, 0, struct.pack("<IIII", low, high, 0, 0))
        version, max_read, _, _, release = struct.unpack("<IIII16s", answer)
        return version, max_read, release.rstrip(b"\0").decode()

    def lookup(self, parent, name):
        """(node, size)."""
        answer = self.must(LOOKUP, parent, os.fsencode(name) + b"\0")
        node, size = struct.unpack_from("<Q", answer)[0], struct.unpack_from("<Q", answer, 48)[0]
        if not node:
            raise FileNotFoundError(errno.ENOENT, name)
        return node, size

    def lookup_path(self, path):
        node = ROOT
        for name in path.split("/"):
            node, _ = self.lookup(node, name)
        return node

    def open(self, node):
        return struct.unpack_from("<Q", self.must(OPEN, node, struct.pack("<II", os.O_RDONLY, 0)))[0]

    def open_path(self, path):
        """(node, handle)."""
        node = self.lookup_path(path)
        return node, self.open(node)

    def start_read(self, node, handle, offset, size, memory=None):
        """A READ into memory of its own: (request, memory, offset in it)."""
        memory = memory or self.memory
        at = memory.place(size)
        body = struct.pack("<QQIIQII", handle, offset, size, 0, 0, 0, 0)
        request = self.submit(self.message(READ, node, body), OUT_HEADER.size,
                              [(memory.addr + at, size)])
        return request, memory, at

    def read(self, node, handle, offset, size):
        mark = self.memory._next
        request, memory, at = self.start_read(node, handle, offset, size)
        error, _ = request.answer()
        if error:
            raise OSError(-error, os.strerror(-error))
        data = memory.bytes(at, request.used - OUT_HEADER.size)
        if not self._waiting:
            memory._next = mark
        return data

    def release(self, node, handle):
        self.must(RELEASE, node, struct.pack("<QIIQ", handle, 0, 0, 0))

    def forget(self, node, n=1):
        """Sent; a FORGET has no answer, but its descriptors come back."""
        request = self.submit(self.message(FORGET, node, struct.pack("<Q", n)))
        return request.answer()

    def fetch(self, key, room):
        """The whole object of this key."""
        key = os.fsencode(key)
        at = self.memory.place(room)
        body = struct.pack("<II", len(key), 0) + key
        answer = self.must(FETCH, 0, body, out_size=OUT_HEADER.size + 8,
                           data=[(self.memory.addr + at, room)])
        return self.memory.bytes(at, struct.unpack("<Q", answer)[0])

    def has_ended(self, seconds=SECONDS):
        return self.link.has_ended(seconds)

    def close(self):
        self.link.close()
        for queue in self.queues.values():
            queue.close()
        self.memory.close()
        self.rings.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
