# SPDX-License-Identifier: Apache-2.0
"""Clients, paths, whole objects: every byte, and errors that say what they are about."""

import errno
import io
import os
import pickle
import socket
import threading

import pytest

import mounts
import os2g
import synthetic

KIB, MIB = 1 << 10, 1 << 20
SIZES = [0, 1, 4097, 64 * KIB + 1, MIB - 1, 8 * MIB, 8 * MIB + 1, 20 * MIB]
SPEC = "bench: " + "; ".join(f"s/{size}.bin {size}" for size in SIZES)


def right(key, data, bucket="bench", offset=0):
    return bytes(data) == synthetic.expected(bucket, key, offset, len(data))


def test_every_size_is_fetched_right(server, connect):
    client = connect(server("--synthetic", SPEC))
    for size in SIZES:
        data = client.fetch(f"s/{size}.bin")
        assert isinstance(data, bytes) and len(data) == size
        assert right(f"s/{size}.bin", data)


def test_objects_land_in_any_writable_memory(server, connect):
    client = connect(server("--synthetic", "bench: a.bin 100000"))
    for into in (client.buffer(200_000), bytearray(200_000), memoryview(bytearray(200_000))):
        landed = client.fetch("a.bin", into, 1000)
        assert right("a.bin", landed) and len(landed) == 100_000
        assert bytes(memoryview(into)[1000:101_000]) == landed
        assert not any(memoryview(into)[:1000]) and not any(memoryview(into)[101_000:])


def test_read_only_memory_is_refused(server, connect):
    client = connect(server("--synthetic", "bench: a.bin 10"))
    with pytest.raises((BufferError, TypeError)):
        client.fetch("a.bin", b"0123456789")


def test_an_object_larger_than_its_room_says_how_large(server, connect):
    client = connect(server("--synthetic", "bench: a.bin 100000"))
    with pytest.raises(OSError) as caught:
        client.fetch("a.bin", bytearray(99_999))
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == "a.bin" and caught.value.object_size == 100_000
    with pytest.raises(ValueError):
        client.fetch("a.bin", bytearray(10), 5, size=6)


def test_what_is_not_there_is_named(server, connect):
    client = connect(server("--synthetic", "bench: dir/a.bin 10"))
    for call in (client.fetch, client.open, client.stat, client.list, client.read):
        with pytest.raises(FileNotFoundError) as caught:
            call("no/such.bin")
        assert caught.value.filename == "no/such.bin"
        assert str(caught.value).count("no/such.bin") == 1
    with pytest.raises(IsADirectoryError):
        client.open("dir")
    with pytest.raises(NotADirectoryError):
        client.list("dir/a.bin")


def test_a_bucket_that_cannot_be_served_is_an_error_of_its_kind(server, connect, monkeypatch):
    s = server("--synthetic", "bench: a.bin 10")
    with pytest.raises(FileNotFoundError) as caught:
        connect(s, "no-such-bucket")
    assert "no-such-bucket" in caught.value.filename
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(PermissionError) as caught:
        connect(s)
    assert "secret key" in caught.value.strerror


def test_a_store_that_refuses_is_a_permission_error(server, connect):
    s = server("--synthetic", "bench: a.bin 10; b.bin 10")
    client = connect(s)
    s.faults("GET bench/a.bin always status 403 AccessDenied\n")
    for call in (client.fetch, lambda key: client.fetch_many(["b.bin", key])):
        with pytest.raises(PermissionError) as caught:
            call("a.bin")
        assert caught.value.filename == "a.bin"


def test_keys_are_taken_literally(server, connect):
    s = server("--bucket", "box")
    keys = ["a//b", "./c", "../d", "e/", "f?x=1#y%20+z", " g ", "dir", "é\u6f22"]
    for key in keys:
        s.client().put_object(Bucket="box", Key=key, Body=key.encode())
    client = connect(s, "box")
    for key in keys:
        assert client.fetch(key) == key.encode() == client.fetch(key.encode())
    assert [bytes(one) for one in client.fetch_many(keys)] == [key.encode() for key in keys]


def test_keys_that_cannot_be_are_refused(server, connect):
    client = connect(server("--synthetic", "bench: a.bin 10"))
    for key in ("", "x" * 1025):
        for call in (client.fetch, lambda key: client.fetch_many(["a.bin", key])):
            with pytest.raises(OSError) as caught:
                call(key)
            assert caught.value.errno == errno.EINVAL
    with pytest.raises(TypeError):
        client.fetch(5)
    with pytest.raises(ValueError):
        client.open("a\0b")


def test_a_daemon_that_serves_something_else_is_refused(server, monkeypatch, tmp_path):
    place = tmp_path / "mount"
    place.mkdir()
    mount = mounts.Mount(place, "bench", server=server("--synthetic", "bench: dir/a 10"),
                         socket=tmp_path / "socket")
    monkeypatch.setenv("OS2G_SOCKET", str(tmp_path / "socket"))
    try:
        with os2g.Client("s3://bench/dir") as client:
            assert right("dir/a", client.fetch("a"))
        with pytest.raises(OSError, match="s3://bench/.*s3://other/") as caught:
            os2g.Client("s3://other")
        assert caught.value.errno == errno.EINVAL
    finally:
        mount.close()


def test_a_client_sees_what_is_below_its_prefix(server, connect):
    client = connect(server("--synthetic", "bench: in/a.bin 5000; in/d/b.bin 10; c.bin 5"), "bench/in/")
    assert right("in/a.bin", client.fetch("a.bin"))
    assert [(e.name, e.directory) for e in client.list()] == [("a.bin", False), ("d", True)]
    assert [(e.name, e.size) for e in client.walk()] == [("a.bin", 5000), ("d/b.bin", 10)]
    assert [e.name for e in client.walk("d")] == ["d/b.bin"]


def test_stat_tells_what_the_store_does(server, connect):
    client = connect(server("--synthetic", "bench: d/a.bin 5000"))
    stat = client.stat("d/a.bin")
    assert (stat.size, stat.directory) == (5000, False)
    assert stat.etag.strip('"') == synthetic.etag("bench", "d/a.bin") and stat.mtime > 0
    assert client.stat("d").directory and client.stat("").directory


def test_a_client_may_be_a_socket_or_a_mount(server, tmp_path):
    s = server("--synthetic", "bench: a.bin 5000")
    mount = mounts.Mount(tmp_path, "bench", server=s)
    try:
        with os2g.Client(tmp_path, start=False) as client:
            assert right("a.bin", client.fetch("a.bin"))
    finally:
        mount.close()
    with pytest.raises(OSError):
        os2g.Client(tmp_path, start=False)


def test_options_are_the_export_s(server, connect):
    with pytest.raises(OSError) as caught:
        connect(server("--synthetic", "bench: a.bin 10"), no_such_option=5)
    assert "no-such-option" in str(caught.value)
    assert caught.value.filename == "s3://bench"
    with pytest.raises(FileNotFoundError):
        os2g.Client("s3://bench", start=False, endpoint_url="http://127.0.0.1:1", region="nowhere")
    with pytest.raises(OSError):
        os2g.Client("http://bench")


def test_nobody_who_listens_is_an_error(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        with pytest.raises(ConnectionRefusedError) as caught:
            os2g.Client(path)
        assert caught.value.filename == str(path)
        listening.listen()
        with pytest.raises(TimeoutError):
            os2g.Client(path, timeout=0.3)


def test_a_closed_client_leaves_what_was_made_of_it(server, connect):
    client = connect(server("--synthetic", "bench: a.bin 5000"))
    file, buffer = client.open("a.bin"), client.buffer(5000)
    client.close()
    client.close()
    assert client.closed and "closed" in repr(client)
    with pytest.raises(ValueError):
        client.fetch("a.bin")
    assert file.pread_into(buffer, 0) == 5000 and right("a.bin", buffer)


def test_a_client_pickles_as_its_arguments(server, connect):
    client = connect(server("--synthetic", "bench: a.bin 5000"), depth=7, timeout=20)
    with pickle.loads(pickle.dumps(client)) as other:
        assert other.where == client.where and right("a.bin", other.fetch("a.bin"))
    for one in (client.open("a.bin"), client.plan(["a.bin"])):
        with pytest.raises(TypeError):
            pickle.dumps(one)


def test_figures_are_told(server, connect):
    client = connect(server("--synthetic", "bench: a.bin 100000"))
    client.fetch_many(["a.bin"] * 5)
    client.fetch("a.bin", bytearray(100_000))
    stats = client.stats()
    assert stats.requests >= 6 and stats.bytes >= 600_000 and stats.bounced_bytes == 100_000
    assert stats.way == "shared memory" and stats.release == os2g.__version__


def test_events_reach_the_program(server, tmp_path):
    s = server("--synthetic", "bench: a.bin 5000")
    mount = mounts.Mount(tmp_path, "bench", server=s)
    told = []
    try:
        with os2g.Client(tmp_path, start=False, timeout=2, event=told.append) as client:
            client.fetch("a.bin")
            mount.close()
            with pytest.raises(OSError) as caught:
                client.fetch("a.bin")
            assert caught.value.errno == errno.ENOTCONN
            assert [event.kind for event in told] == ["lost"]
            assert client.events == tuple(told) and str(told[0].text)
    finally:
        if mounts.is_mounted(tmp_path):
            mount.close()


def test_a_changed_object_is_stale(server, connect):
    s = server("--synthetic", f"bench: a.bin {20 * MIB}")
    client = connect(s, memory="64M")
    with client.open("a.bin") as file:
        assert right("a.bin", file.pread(1000, 0))
        s.touch("bench", "a.bin")
        with pytest.raises(OSError) as caught:
            for offset in range(0, 20 * MIB, MIB):
                file.pread(1000, offset)
        assert caught.value.errno == errno.ESTALE and caught.value.filename == "a.bin"
    with client.open("a.bin") as file:
        assert file.read(100) == synthetic.expected("bench", "a.bin", 0, 100, 1)


def test_a_corrupted_object_names_its_key(server, connect):
    s = server("--synthetic", "bench: good.bin 5000; bad.bin 5000")
    s.faults("GetObject bench/bad.bin always xml200\n")
    client = connect(s, retry_timeout="1s")
    with pytest.raises(OSError) as caught:
        client.fetch("bad.bin")
    assert caught.value.errno == errno.EIO and caught.value.filename == "bad.bin"
    fetched = client.fetch_many(["good.bin", "bad.bin"], errors="return")
    assert right("good.bin", fetched[0]) and fetched.errors[0] is None
    assert fetched.errors[1].filename == "bad.bin"


def test_threads_share_a_client(server, connect):
    client = connect(server("--synthetic", "bench: %02d.bin 300000 x 20"), depth=8)
    wrong = []

    def read(seed):
        file = client.open(f"{seed:02d}.bin")
        for i in range(20):
            key = f"{(seed + i) % 20:02d}.bin"
            if not (right(key, client.fetch(key)) and right(f"{seed:02d}.bin", file.pread(1000, i), "bench", i)
                    and right(key, client.fetch_many([key])[0])):
                wrong.append(key)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(mounts.SECONDS * 3)
    assert not wrong and not any(thread.is_alive() for thread in threads)


# --- files ---


def test_a_file_is_a_raw_io_object(server, connect):
    client = connect(server("--synthetic", f"bench: a.bin {MIB + 5}"))
    file = client.open("a.bin")
    whole = synthetic.expected("bench", "a.bin", 0, MIB + 5)
    assert isinstance(file, io.RawIOBase) and file.readable() and file.seekable()
    assert not file.writable() and (file.name, file.mode) == ("a.bin", "rb")
    assert (file.size, file.etag) == (MIB + 5, client.stat("a.bin").etag)
    assert file.read(10) == whole[:10] and file.tell() == 10
    into = bytearray(20)
    assert file.readinto(into) == 20 and into == whole[10:30]
    assert file.seek(-5, io.SEEK_END) == MIB and file.read() == whole[-5:] and file.read() == b""
    assert file.seek(-10, io.SEEK_CUR) == MIB - 5 and file.read(3) == whole[MIB - 5:MIB - 2]
    assert file.seek(2 * MIB) == 2 * MIB and file.read(5) == b"" and file.readinto(into) == 0
    file.seek(0)
    assert file.readall() == whole and file.pread(7, MIB) == whole[MIB:]
    for bad in (lambda: file.seek(-1), lambda: file.seek(0, 9), lambda: file.pread(1, -1)):
        with pytest.raises(ValueError):
            bad()
    with pytest.raises(io.UnsupportedOperation):
        file.fileno()
    with pytest.raises(io.UnsupportedOperation):
        file.write(b"x")
    file.close()
    file.close()
    with pytest.raises(ValueError):
        file.read()


def test_a_buffered_reader_works_over_a_file(server, connect):
    s = server("--bucket", "box")
    text = "".join(f"line {i}\n" for i in range(50_000))
    s.client().put_object(Bucket="box", Key="t.txt", Body=text.encode())
    client = connect(s, "box")
    with io.TextIOWrapper(io.BufferedReader(client.open("t.txt"), 4096)) as lines:
        assert "".join(lines) == text
    with client.open("t.txt") as file:
        assert file.readline() == b"line 0\n" and next(file) == b"line 1\n"


def test_parts_of_files_land_where_they_belong(server, connect):
    client = connect(server("--synthetic", f"bench: a.bin {3 * MIB}; b.bin 5000"))
    a, b = client.open("a.bin"), client.open("b.bin")
    into = client.buffer(MIB)
    assert client.read_into(a, into, 100, file_offset=MIB, size=500) == 500
    assert right("a.bin", into[100:600], offset=MIB) and not any(into[:100])
    read = client.read_many([(a, 7, 1000, 0), (b, 4000, 2000, 5000), (a, MIB, 70_000, 10_000)], into,
                            depth=2)
    assert read.sizes == [1000, 1000, 70_000] and read.errors == [None] * 3
    assert right("a.bin", read[0], offset=7) and right("b.bin", read[1], offset=4000)
    assert right("a.bin", read[2], offset=MIB)
    with pytest.raises(ValueError):
        client.read_many([(a, 0, 100, MIB - 50)], into)
    b.close()
    with pytest.raises(ValueError):
        client.read_many([(b, 0, 100, 0)], into)
    assert client.read("a.bin", 5, 10) == synthetic.expected("bench", "a.bin", 5, 10)
    assert os.fspath(client.where) == "s3://bench"
