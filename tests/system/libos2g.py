# SPDX-License-Identifier: Apache-2.0
"""libos2g by way of ctypes. Run as a program it is a process of its own that uses the library, for
tests of several processes:

    libos2g.py fetch WHERE KEY      prints size and SHA-256, then waits for the end of its input
"""

import ctypes
import errno
import hashlib
import os
import sys

import s3d

LIBRARY = s3d.BUILD / "src" / "host" / "libos2g.so"
EVENTS = {0: "lost", 1: "reconnected", 2: "fallback"}

_EVENT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("depth", ctypes.c_uint), ("timeout_ms", ctypes.c_uint),
                ("no_start", ctypes.c_bool), ("program", ctypes.c_char_p),
                ("export_options", ctypes.POINTER(ctypes.c_char_p)), ("event", _EVENT),
                ("arg", ctypes.c_void_p)]


class _Stat(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint64), ("mtime_s", ctypes.c_int64), ("directory", ctypes.c_bool),
                ("etag", ctypes.c_char * 128), ("reserved", ctypes.c_uint64 * 4)]


class _Stats(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("requests", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
                ("errors", ctypes.c_uint64), ("bounced_bytes", ctypes.c_uint64),
                ("reconnects", ctypes.c_uint64), ("cuda_bytes", ctypes.c_uint64),
                ("way", ctypes.c_char * 32), ("release", ctypes.c_char * 16)]


_LIST = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(_Stat))
_P, _U64P = ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)
_OFF, _SIZE = ctypes.c_int64, ctypes.c_size_t

_PROTOTYPES = {
    "os2g_connect": (ctypes.c_int, [_P, ctypes.c_char_p, _P]),
    "os2g_close": (None, [_P]),
    "os2g_last_error": (ctypes.c_char_p, []),
    "os2g_stats_read": (ctypes.c_int, [_P, _P]),
    "os2g_buffer_alloc": (ctypes.c_int, [_P, _P, _SIZE, ctypes.c_int, ctypes.c_int]),
    "os2g_buffer_base": (ctypes.c_void_p, [_P]),
    "os2g_buffer_free": (None, [_P]),
    "os2g_open": (ctypes.c_int, [_P, ctypes.c_char_p, _P]),
    "os2g_file_close": (None, [_P]),
    "os2g_file_size": (ctypes.c_uint64, [_P]),
    "os2g_stat": (ctypes.c_int, [_P, ctypes.c_char_p, _P]),
    "os2g_list": (ctypes.c_int, [_P, ctypes.c_char_p, _LIST, _P]),
    "os2g_read": (ctypes.c_ssize_t, [_P, _P, _SIZE, _OFF, _OFF]),
    "os2g_fetch_key": (ctypes.c_int, [_P, ctypes.c_char_p, _SIZE, _P, _SIZE, _OFF, _U64P]),
}


def _load():
    # a library with a sanitizer needs a process that began with it
    library = ctypes.CDLL(str(LIBRARY))
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def sanitized():
    """Why the library cannot be loaded into Python, or None."""
    text = LIBRARY.read_bytes()
    found = [name for name in (b"__asan_init", b"__tsan_init") if name in text]
    return f"{LIBRARY.name} is built with a sanitizer ({found[0].decode()})" if found else None


class Error(OSError):
    """An error of a call: errno, and the library's sentence."""


class Connection:
    """os2g_connect(where) until close(). events: what happened, as names. The environment is that of
    this process; export_options: {"endpoint-url": …}."""

    def __init__(self, where, timeout=30, depth=0, no_start=False, program=None, export_options=None,
                 buffer=16 << 20):
        self._l = _load()
        self.events = []
        self._event = _EVENT(lambda arg, event, text: self.events.append(EVENTS[event]))
        options = _Options(ctypes.sizeof(_Options), depth, int(timeout * 1000), no_start,
                           str(program).encode() if program else None)
        if export_options:
            words = [f"{name}={value}".encode() for name, value in export_options.items()]
            options.export_options = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        options.event = self._event
        self._c = ctypes.c_void_p()
        self._buffer = ctypes.c_void_p()
        self._check(self._l.os2g_connect(ctypes.byref(self._c), str(where).encode(),
                                         ctypes.byref(options)))
        self.buffer_size = buffer
        self._check(self._l.os2g_buffer_alloc(self._c, ctypes.byref(self._buffer), buffer, 0, 0))
        self._base = self._l.os2g_buffer_base(self._buffer)

    def _check(self, result):
        if result < 0:
            raise Error(-result, self._l.os2g_last_error().decode(errors="replace"))
        return result

    def close(self):
        self._l.os2g_buffer_free(self._buffer)
        self._l.os2g_close(self._c)
        self._c = self._buffer = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self._c:
            self.close()

    def fetch(self, key, size=None, plain=False):
        """The object, by way of the buffer (or of memory that is nobody's)."""
        key = key if isinstance(key, bytes) else key.encode()
        size = self.buffer_size if size is None else size
        got = ctypes.c_uint64()
        memory = ctypes.create_string_buffer(size) if plain else None
        to = ctypes.addressof(memory) if plain else self._base
        self._check(self._l.os2g_fetch_key(self._c, key, len(key), to, size, 0, ctypes.byref(got)))
        return ctypes.string_at(to, got.value)

    def buffer(self, size):
        """Memory of its own, see Buffer."""
        return Buffer(self, size)

    def open(self, path):
        return File(self, path)

    def stat(self, path):
        """(size, mtime, directory, etag)"""
        st = _Stat()
        self._check(self._l.os2g_stat(self._c, path.encode(), ctypes.byref(st)))
        return st.size, st.mtime_s, st.directory, st.etag.decode()

    def list(self, path):
        """[(name, size, directory)]"""
        names = []

        def note(arg, name, st):
            names.append((os.fsdecode(name), st.contents.size, st.contents.directory))
            return 0

        self._check(self._l.os2g_list(self._c, path.encode(), _LIST(note), None))
        return names

    def stats(self):
        s = _Stats(ctypes.sizeof(_Stats))
        self._check(self._l.os2g_stats_read(self._c, ctypes.byref(s)))
        return {name: getattr(s, name) for name, _ in _Stats._fields_}


class Buffer:
    """Memory that objects land in, until free()."""

    def __init__(self, connection, size):
        self._n, self._size, self._b = connection, size, ctypes.c_void_p()
        connection._check(connection._l.os2g_buffer_alloc(connection._c, ctypes.byref(self._b), size,
                                                          0, 0))
        self._base = connection._l.os2g_buffer_base(self._b)

    def fetch(self, key):
        """0 or a negative errno; the bytes stay where they are."""
        key = key.encode()
        return self._n._l.os2g_fetch_key(self._n._c, key, len(key), self._base, self._size, 0, None)

    def free(self):
        self._n._l.os2g_buffer_free(self._b)


class File:
    """An open file. at: where in the connection's buffer its reads go."""

    def __init__(self, connection, path):
        self._n = connection
        self._f = ctypes.c_void_p()
        connection._check(connection._l.os2g_open(connection._c, path.encode(),
                                                  ctypes.byref(self._f)))
        self.size = connection._l.os2g_file_size(self._f)

    def read(self, size, offset, at=0, plain=False):
        n = self._n
        memory = ctypes.create_string_buffer(size) if plain else None
        to = ctypes.addressof(memory) if plain else n._base + at
        got = n._check(n._l.os2g_read(self._f, to, size, offset, 0))
        return ctypes.string_at(to, got)

    def close(self):
        self._n._l.os2g_file_close(self._f)


def _main():
    where, key = sys.argv[2:4]
    try:
        with Connection(where) as c:
            data = c.fetch(key)
            print(len(data), hashlib.sha256(data).hexdigest(), flush=True)
            sys.stdin.read()
    except Error as e:
        print("error", errno.errorcode[e.errno], e.strerror, flush=True)


if __name__ == "__main__":
    _main()
