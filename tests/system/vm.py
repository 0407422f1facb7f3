# SPDX-License-Identifier: Apache-2.0
"""Guests for tests and benchmarks: QEMU without KVM, Debian's cloud kernel, and an initial RAM disk
with nothing in it but modules and our program tests/system/guest, which carries out commands.

    with Vm([(socket, "os2g")], bar=memory) as vm:
        vm.run("mount", "os2g", "/mnt")
        print(vm.run("walk", "/mnt").lines)
"""

import ctypes
import gzip
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import s3d

MIB = 1 << 20
QEMU = "qemu-system-x86_64"
VIRTIOFSD = pathlib.Path("/usr/lib/qemu/virtiofsd")
GUEST = s3d.BUILD / "tests" / "system" / "guest"
KERNEL = s3d.BUILD / "guest-kernel"
SECONDS = 60  # for one command


def missing():
    """Why no guest can run here, or None. May download the kernel's package, once."""
    if not shutil.which(QEMU):
        return f"{QEMU} is not installed (package qemu-system-x86)"
    done = subprocess.run([s3d.ROOT / "scripts" / "guest-kernel", KERNEL], stderr=subprocess.PIPE,
                          text=True)
    if done.returncode == 69:
        return done.stderr.strip().splitlines()[-1]
    done.check_returncode()
    return None


def _cpio(entries):
    """An archive in cpio's "newc" format, which the kernel unpacks, of (name, mode, data)."""
    out = []

    def add(name, mode, data, number):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % f for f in fields) + name.encode() + b"\0"
        out.extend((head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)))

    for number, (name, mode, data) in enumerate(entries, 1):
        add(name, mode, data, number)
    add("TRAILER!!!", 0, b"", 0)
    return b"".join(out)


def initial_disk(path, programs=()):
    """Writes the initial RAM disk. programs: further files for its directory /bin."""
    entries = [("init", 0o100755, (GUEST / "guest").read_bytes()),
               ("modules", 0o40755, b""), ("bin", 0o40755, b"")]
    entries += [(f"modules/{m.name}", 0o100644, m.read_bytes())
                for m in sorted((KERNEL / "modules").iterdir())]
    entries += [(f"bin/{p.name}", 0o100755, p.read_bytes()) for p in map(pathlib.Path, programs)]
    path.write_bytes(gzip.compress(_cpio(entries), 1))


class Memory:
    """Memory of a guest that this process can look into: RAM, or the BAR that stands for a GPU's."""

    def __init__(self, size):
        self.size = size
        self.fd = os.memfd_create("guest", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        # for whoever opens it anew: QEMU, and the daemon that is told of it
        self.path = f"/proc/{os.getpid()}/fd/{self.fd}"

    def read(self, offset, length):
        return os.pread(self.fd, length, offset)

    def fill(self, byte, offset=0, length=None):
        block = bytes([byte]) * MIB
        end = self.size if length is None else offset + length
        while offset < end:
            offset += os.pwrite(self.fd, block[:end - offset], offset)

    def find(self, needle):
        """Where these bytes begin in it, or None. What was never touched is not looked at."""
        at = 0
        while True:
            try:
                at = os.lseek(self.fd, at, os.SEEK_DATA)
            except OSError:
                return None  # no more data
            hole = os.lseek(self.fd, at, os.SEEK_HOLE)
            while at < hole:
                piece = os.pread(self.fd, min(16 * MIB, hole - at) + len(needle) - 1, at)
                found = piece.find(needle)
                if found >= 0:
                    return at + found
                at += min(16 * MIB, hole - at)

    def close(self):
        os.close(self.fd)


class Qmp:
    """QEMU's control socket."""

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(SECONDS)
        self._socket.connect(str(path))
        self._file = self._socket.makefile("rw")
        self._file.readline()  # the greeting
        self.call("qmp_capabilities")

    def call(self, command, **arguments):
        self._file.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._file.flush()
        while True:
            answer = json.loads(self._file.readline())
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']}")

    def close(self):
        self._file.close()
        self._socket.close()


class Result:
    """What a command said: result["name"] of its last line; lines: those before."""

    def __init__(self, lines):
        self.lines, self._last = lines[:-1], lines[-1]
        self.rc = self._last["end"]

    def __getitem__(self, name):
        return self._last[name]

    def __repr__(self):
        return repr(self._last)


class Call:
    """A command that a guest carries out."""

    def __init__(self, vm, words):
        self._vm, self._words, self._lines = vm, words, []
        self.done = threading.Event()

    def take(self, line):
        self._lines.append(line)
        if "end" in line:
            self.done.set()

    def wait(self, check=True, timeout=SECONDS):
        end = time.monotonic() + timeout
        while not self.done.wait(0.2):
            self._vm.must_run()
            assert time.monotonic() < end, f"the guest does not answer {self._words[:4]}\n" + \
                self._vm.console()
        result = Result(self._lines)
        if check and result.rc < 0:
            raise OSError(-result.rc, os.strerror(-result.rc), " ".join(self._words[:4]))
        return result


class Vm:
    """A guest from its start until close().

    devices: (socket, tag) of vhost-user-fs backends, which must be listening. bar: Memory that an
    ivshmem device shows in its BAR 2. programs: files for the guest's /bin."""

    def __init__(self, devices, bar=None, ram=384 * MIB, cpus=2, queue_size=1024, programs=(),
                 options=()):
        self._dir = tempfile.TemporaryDirectory(prefix="os2g-vm-")
        top = pathlib.Path(self._dir.name)
        self.ram = Memory(ram)
        self._numbers, self._calls = 0, {}
        self._ready = threading.Semaphore(0)
        self._console = top / "console"
        self.process = self._serial = self.qmp = None
        try:
            initial_disk(top / "initrd", programs)
            self._start(top, devices, bar, cpus, queue_size, options)
            self.wait_ready()
        except BaseException:
            self.close()
            raise

    def _start(self, top, devices, bar, cpus, queue_size, options):
        line = [QEMU, "-accel", "tcg,thread=multi", "-smp", str(cpus), "-m", f"{self.ram.size >> 20}M",
                "-object", f"memory-backend-file,id=ram,size={self.ram.size},share=on,"
                f"mem-path={self.ram.path}",
                "-machine", "pc,memory-backend=ram", "-nographic", "-no-reboot", "-nodefaults",
                "-monitor", "none", "-serial", f"file:{self._console}",
                "-chardev", f"socket,id=serial,path={top / 'serial'},server=on,wait=off",
                "-serial", "chardev:serial",
                "-qmp", f"unix:{top / 'qmp'},server=on,wait=off",
                "-kernel", str(KERNEL / "vmlinuz"), "-initrd", str(top / "initrd"),
                "-append", "console=ttyS0 panic=-1 quiet"]
        if bar:
            line += ["-object", f"memory-backend-file,id=bar,size={bar.size},share=on,"
                     f"mem-path={bar.path}",
                     "-device", "ivshmem-plain,id=gpu,memdev=bar,master=on"]
        for n, (path, tag) in enumerate(devices):
            line += ["-chardev", f"socket,id=fs{n},path={path}", "-device",
                     f"vhost-user-fs-pci,chardev=fs{n},tag={tag},queue-size={queue_size}"]
        self._errors = top / "errors"
        with open(self._errors, "w") as errors:
            self.process = subprocess.Popen([*line, *options], stdin=subprocess.DEVNULL,
                                            stdout=errors, stderr=errors, preexec_fn=_end_with_parent)
        self._serial = self._connect(top / "serial")
        self.qmp = Qmp(top / "qmp") if self._connect(top / "qmp", probe=True) is None else None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _connect(self, path, probe=False):
        end = time.monotonic() + SECONDS
        while True:
            if path.exists():
                if probe:
                    return None
                s = socket.socket(socket.AF_UNIX)
                try:
                    s.connect(str(path))
                    return s
                except OSError:
                    s.close()
            self.must_run()
            assert time.monotonic() < end, "QEMU does not listen"
            time.sleep(0.02)

    def console(self):
        """What the guest's kernel and QEMU said last."""
        text = "".join(p.read_text(errors="replace") for p in (self._console, self._errors)
                       if p.exists())
        return text[-4000:]

    def must_run(self):
        assert self.process.poll() is None, f"QEMU has ended\n{self.console()}"

    def wait_ready(self):
        """Until the guest has booted, or has booted again."""
        end = time.monotonic() + SECONDS
        while not self._ready.acquire(timeout=0.2):
            self.must_run()
            assert time.monotonic() < end, f"the guest does not boot\n{self.console()}"

    def _read(self):
        with self._serial.makefile("rb") as lines:
            for line in lines:
                try:
                    said = json.loads(line)
                except ValueError:
                    continue  # cut off by a reboot
                if "ready" in said:
                    self._ready.release()
                elif said.get("n") in self._calls:
                    self._calls[said["n"]].take(said)

    def start(self, *words, worker="main"):
        """Has a worker in the guest carry out a command; a Call."""
        words = [str(w) for w in words]
        self._numbers += 1
        call = self._calls[self._numbers] = Call(self, words)
        self._serial.sendall("\t".join([worker, str(self._numbers), *words]).encode() + b"\n")
        return call

    def run(self, *words, worker="main", check=True, timeout=SECONDS):
        return self.start(*words, worker=worker).wait(check, timeout)

    def error(self, *words, worker="main"):
        """The errno of a command that fails; 0 when it does not."""
        return -min(self.run(*words, worker=worker, check=False).rc, 0)

    def stop(self, worker):
        """Ends what a worker does at the moment."""
        self.run("stop", worker, worker="init")

    def kill(self, worker):
        """Ends a worker, and with it all that it has open."""
        self.run("kill", worker, worker="init")

    def reboot(self):
        self.qmp.call("set-action", reboot="reset")
        self.start("reboot", worker="init")
        self.wait_ready()

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for one in (self._serial, self.qmp, self.ram):
            if one:
                one.close()
        self._dir.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def _end_with_parent():
    """A guest does not outlive who started it."""
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL


class Virtiofsd:
    """QEMU's own virtio-fs device over a directory; at .socket until close()."""

    def __init__(self, directory):
        self._dir = tempfile.TemporaryDirectory(prefix="os2g-virtiofsd-")
        self.socket = pathlib.Path(self._dir.name) / "socket"
        # one thread does all, as fast as more of them where there is one queue
        self._process = subprocess.Popen(
            [VIRTIOFSD, f"--socket-path={self.socket}", "-o", f"source={directory}", "-o",
             "cache=auto", "-o", "sandbox=chroot", "--thread-pool-size=0"],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=_end_with_parent)
        end = time.monotonic() + 20
        while not self.socket.exists():
            if self._process.poll() is not None or time.monotonic() > end:
                self.close()
                raise RuntimeError("QEMU's virtiofsd did not start")
            time.sleep(0.02)
        self.pid = self._process.pid

    def close(self):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._dir.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
