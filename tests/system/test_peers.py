# SPDX-License-Identifier: Apache-2.0
"""What users of other clients have reported about reading, one test for each report; those that
belong to a subject are in test_change.py, test_faults.py, test_credentials.py and test_crash.py."""

import hashlib
import json
import mmap
import multiprocessing
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import threading
import time

import pytest

import mounts
import synthetic

FORK = multiprocessing.get_context("fork")


def is_right(data, key, offset=0):
    return synthetic.first_wrong(data, "bench", key, offset) is None


def operations(server):
    """{operation: how often} since the last reset()."""
    return {k: n for k, n in server.counters()["operations"].items() if k != "Admin"}


def run_all(processes, seconds=120):
    """Starts processes and waits for them: their exit codes; a hang is a failure."""
    for p in processes:
        p.start()
    end = time.monotonic() + seconds
    for p in processes:
        p.join(max(0, end - time.monotonic()))
    hanging = [p for p in processes if p.is_alive()]
    for p in hanging:
        p.kill()
    assert not hanging, f"{len(hanging)} processes hang"
    return [p.exitcode for p in processes]


# --- correctness ---

def read_samples(top, worker):
    """A worker of a data loader: every sample of its own, each whole."""
    for i in range(worker, 960, 32):
        key = f"sample/{i:04d}.bin"
        data = (top / key).read_bytes()
        if len(data) != 60_000 or not is_right(data, key):
            sys.exit(1)


def test_mountpoint_1331_many_workers_never_get_an_empty_sample(server, mount):
    synthetic.table()  # once, not in each child
    s = server("--synthetic", "bench: sample/%04d.bin 60000 x 960", "--latency", "2ms",
               "--max-requests", "7")
    s.faults("seed 11\nGetObject * 5% hangup\nGetObject * 5% close 50%\nGetObject * 5% reset 80%\n")
    m = mount("bench", server=s)
    assert set(run_all([FORK.Process(target=read_samples, args=(m.path, i)) for i in range(32)])) == {0}


def test_fastsafetensors_38_unaligned_direct_reads_are_right(server, mount):
    size = (5 << 20) + 1234
    s = server("--synthetic", f"bench: model.bin {size}")
    for options in ({}, {"direct_io": True}):
        m = mount("bench", server=s, **options)
        fd = os.open(m.path / "model.bin", os.O_RDONLY | os.O_DIRECT)
        memory = mmap.mmap(-1, 1 << 20)
        rng = random.Random(1)
        try:
            for _ in range(200):
                offset, length = rng.randrange(size), rng.randrange(1, 300_000)
                at = rng.randrange(4096)  # the buffer is not aligned either
                n = os.preadv(fd, [memoryview(memory)[at:at + length]], offset)
                assert n == min(length, size - offset)
                assert is_right(memory[at:at + n], "model.bin", offset)
        finally:
            os.close(fd)


def test_fastsafetensors_87_direct_reads_work_to_the_end_of_every_file(server, mount):
    """a direct path that probes fine fails at the first real read"""
    sizes = [1, 511, 512, 513, 4095, 4096, 4097, 65536, 100_001, (1 << 20) + 1, 9 << 20]
    s = server("--synthetic", "bench: " + "; ".join(f"f{n} {n}" for n in sizes))
    m = mount("bench", server=s)
    memory = mmap.mmap(-1, 16 << 20)
    for n in sizes:
        fd = os.open(m.path / f"f{n}", os.O_RDONLY | os.O_DIRECT)
        try:
            got = 0
            while (more := os.preadv(fd, [memoryview(memory)[got:]], got)) > 0:
                got += more
        finally:
            os.close(fd)
        assert got == n and is_right(memory[:n], f"f{n}")


# --- speed: counted in requests, which a busy machine does not change ---

def test_mountpoint_953_many_small_files_cost_one_request_each(server, mount):
    s = server("--synthetic", "bench: small/%04d.bin 20K x 1000", "--latency", "10ms")
    m = mount("bench", server=s)
    names = sorted(os.listdir(m.path / "small"))
    s.reset()
    start = time.monotonic()
    samples = [(m.path / "small" / name).read_bytes() for name in names]
    seconds = time.monotonic() - start
    counters = s.counters()
    assert not [n for n, data in zip(names, samples) if not is_right(data, f"small/{n}")]
    assert operations(s) == {"GetObject": 1000}
    # one after the other they would be ten seconds of waiting alone
    assert counters["peak_in_flight"] >= 4
    assert seconds < 10 * mounts.slowed_down()
    assert m.status()["worker"]["restarts"] == 0


def test_mountpoint_953_many_small_files_at_random_cost_one_request_each(server, mount):
    s = server("--synthetic", "bench: small/%04d.bin 20K x 1000", "--latency", "10ms")
    m = mount("bench", server=s)
    names = os.listdir(m.path / "small")
    random.Random(1).shuffle(names)
    s.reset()
    for name in names[:300]:
        (m.path / "small" / name).read_bytes()
    # a neighbour that was guessed wrong is allowed, as an exception
    assert s.counters()["requests_total"] <= 330


def test_s3_connector_215_one_reader_has_several_requests_in_flight(server, mount):
    s = server("--synthetic", "bench: big.bin 128M", "--latency", "30ms")
    m = mount("bench", server=s)
    s.reset()
    with open(m.path / "big.bin", "rb", buffering=0) as f:
        offset = 0
        while data := f.read(1 << 20):
            assert is_right(data, "big.bin", offset)
            offset += len(data)
    counters = s.counters()
    assert counters["peak_in_flight"] >= 4
    assert counters["object_bytes_out"] == 128 << 20, "something was fetched twice"


def test_mountpoint_945_find_costs_listings_alone(server, mount):
    s = server("--synthetic", "bench: d%02d/e%d/%04d.txt 5 x 16 x 5 x 200", "--latency", "5ms")
    m = mount("bench", server=s)
    s.reset()
    out = subprocess.run(["find", m.path, "-type", "f", "-size", "-2"], check=True, timeout=120,
                         stdout=subprocess.PIPE).stdout
    assert len(out.splitlines()) == 16_000
    # a page of each directory: the top, d%02d and e%d
    asked = operations(s)
    assert set(asked) == {"ListObjectsV2"} and asked["ListObjectsV2"] <= 1 + 16 + 80 + 5


# --- memory ---

def anonymous_bytes(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", text).group(1)) << 10


def read_at_random(top, files, size, reads, trouble):
    rng = random.Random(threading.get_ident())
    for _ in range(reads):
        key = f"f{rng.randrange(files):04d}"
        offset = rng.randrange(size - 65536)
        fd = os.open(top / key, os.O_RDONLY)
        try:
            if not is_right(os.pread(fd, 65536, offset), key, offset):
                trouble.append(f"{key} at {offset}")
        except OSError as error:
            trouble.append(repr(error))
        finally:
            os.close(fd)


def run_threads(target, arguments):
    threads = [threading.Thread(target=target, args=a) for a in arguments]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=240)
    assert not [t for t in threads if t.is_alive()], "a reader hangs"


def test_mountpoint_1556_random_reads_of_large_files_stay_in_memory(server, mount):
    s = server("--synthetic", "bench: f%04d 2G x 1200")
    m = mount("bench", server=s, memory="64M")
    trouble = []
    run_threads(read_at_random, [(m.path, 1200, 2 << 30, 150, trouble) for _ in range(16)])
    assert trouble == []
    # the pool, the names of 1,200 files, connections, stacks
    assert anonymous_bytes(m.worker_pid()) < (64 + 48) << 20 or mounts.slowed_down() > 1


def test_geesefs_103_more_readers_than_memory_can_read_ahead_for(server, mount):
    readers, size = 48, 24 << 20
    s = server("--synthetic", f"bench: f%02d {size} x {readers}")
    m = mount("bench", server=s, memory="32M", threads=1)
    trouble = []

    def stream(key):
        try:
            with open(m.path / key, "rb", buffering=0) as f:
                offset = 0
                while data := f.read(1 << 20):
                    if not is_right(data, key, offset):
                        trouble.append(f"{key} at {offset}")
                    offset += len(data)
            if offset != size:
                trouble.append(f"{key} ends at {offset}")
        except OSError as error:
            trouble.append(f"{key}: {error}")

    run_threads(stream, [(f"f{i:02d}",) for i in range(readers)])
    assert trouble == []
    status = m.status()["cache"]
    assert status["used_bytes"] <= status["pool_bytes"] <= 32 << 20


# --- credentials ---

def test_mountpoint_433_a_profile_of_a_sign_in_mounts(server, mount, tmp_path):
    """Its keys come from the portal, for the token that the sign-in has left."""
    s = server("--synthetic", "bench: top.txt 5")
    keys = json.loads(s.admin("POST", "issue-credentials"))
    asked = []

    def portal(connection):
        asked.append(connection.recv(65536).decode())
        body = json.dumps({"roleCredentials": {
            "accessKeyId": keys["AccessKeyId"], "secretAccessKey": keys["SecretAccessKey"],
            "sessionToken": keys["SessionToken"], "expiration": int((time.time() + 3600) * 1000)}})
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    with Listener(portal) as listener:
        cache = tmp_path / ".aws" / "sso" / "cache"
        cache.mkdir(parents=True)
        (tmp_path / "config").write_text(
            "[profile corp]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = train\n"
            "[sso-session corp]\nsso_region = us-east-1\nsso_start_url = https://corp.example/start\n")
        (cache / f"{hashlib.sha1(b'corp').hexdigest()}.json").write_text(
            json.dumps({"accessToken": "the-token", "expiresAt": "2099-01-01T00:00:00Z"}))
        env = mounts.environment(access=None, AWS_CONFIG_FILE=str(tmp_path / "config"),
                                 HOME=str(tmp_path), AWS_ENDPOINT_URL_SSO=listener.url)
        m = mount("bench", server=s, profile="corp", env=env)
        assert is_right((m.path / "top.txt").read_bytes(), "top.txt")
    assert "role_name=train" in asked[0] and "account_id=123456789012" in asked[0]
    assert "x-amz-sso_bearer_token: the-token" in asked[0].lower()


def test_mountpoint_csi_136_every_mount_has_its_own_credentials(server, mount, tmp_path):
    (tmp_path / "auth").write_text("one secret-1 rights=get,list prefix=bench/one/\n"
                                   "two secret-2 rights=get,list prefix=bench/two/\n")
    s = server("--synthetic", "bench: one/a 5; two/b 5", "--auth-file", tmp_path / "auth")
    for access, secret, below, name, other in (("one", "secret-1", "one", "a", "two"),
                                               ("two", "secret-2", "two", "b", "one")):
        env = mounts.environment(access, secret)
        m = mount(f"bench/{below}/", server=s, env=env)
        assert is_right((m.path / name).read_bytes(), f"{below}/{name}")
        with pytest.raises(subprocess.CalledProcessError):
            mount(f"bench/{other}/", server=s, env=env)
        # nobody, whose name the worker has, finds them in a list of processes, an environment, a status
        for pid in (m.worker_pid(), m.supervisor_pid()):
            assert secret.encode() not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            done = subprocess.run(["runuser", "-u", "nobody", "--", "cat", f"/proc/{pid}/environ"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
            assert done.returncode != 0 and done.stdout == b""
        assert secret not in json.dumps(m.status())


# --- other stores and the ways to them ---

class Listener:
    """A server of ours at a free port: answer(connection) in a thread for each one."""

    def __init__(self, answer):
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            self._answer(connection)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def test_mountpoint_1381_no_get_has_a_length_for_a_proxy_to_drop(server, mount):
    """a signed Content-Length: 0 on GET breaks behind a proxy"""
    s = server("--synthetic", "bench: top.txt 5; big.bin 9M; void 0")
    said = []

    def relay(client):
        with socket.create_connection((s.host, s.port)) as upstream:
            def back():
                while data := upstream.recv(1 << 20):
                    client.sendall(data)
                client.shutdown(socket.SHUT_WR)

            thread = threading.Thread(target=back, daemon=True)
            thread.start()
            sent = b""
            while data := client.recv(1 << 16):
                sent += data
                upstream.sendall(data)
            said.append(sent)
            upstream.shutdown(socket.SHUT_WR)
            thread.join()

    with Listener(relay) as proxy:
        m = mount("bench", endpoint_url=proxy.url, direct_io=True)
        assert sorted(os.listdir(m.path)) == ["big.bin", "top.txt", "void"]
        assert is_right((m.path / "big.bin").read_bytes(), "big.bin")
        assert (m.path / "top.txt").stat().st_size == 5 and (m.path / "void").read_bytes() == b""
        assert not (m.path / "none").exists()
        m.umount()
        mounts.wait_until(lambda: said)
        time.sleep(0.2)
    requests = b"".join(said).decode().split("\r\n\r\n")
    assert len(requests) > 4
    for request in filter(None, requests):
        assert request.startswith(("GET ", "HEAD "))
        for word in ("content-length", "transfer-encoding", "expect"):
            assert word not in request.lower(), request


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_mlcommons_storage_271_redirects_are_followed(server, mount, code):
    right = server("--synthetic", "bench: top.txt 5; d/%02d 1000 x 20")
    front = server("--bucket", "bench")
    front.faults(f"* * always redirect {code} {right.url}\n")
    m = mount("bench", server=front)
    assert len(os.listdir(m.path / "d")) == 20
    for i in range(20):
        assert is_right((m.path / "d" / f"{i:02d}").read_bytes(), f"d/{i:02d}")
    assert not (m.path / "none").exists()


# --- names ---

def test_s3fs_1671_empty_components_and_twins(server, mount):
    """`a//b`; a file and a directory of one name"""
    s = server("--bucket", "odd")
    for key in ("a//b", "a/c", "twin", "twin/below", "twin-1", "//x"):
        s.client().put_object(Bucket="odd", Key=key, Body=key.encode())
    m = mount("odd", server=s)
    assert sorted(os.listdir(m.path)) == ["a", "twin", "twin-1"]
    assert os.listdir(m.path / "a") == ["c"]
    assert os.listdir(m.path / "twin") == ["below"]
    assert (m.path / "twin" / "below").read_bytes() == b"twin/below"
    for key in ("a//b", "twin", "//x"):
        out = subprocess.run([mounts.PROGRAM, "cat", "--endpoint-url", s.url, f"s3://odd/{key}"],
                             check=True, env=mounts.environment(), stdout=subprocess.PIPE).stdout
        assert out == key.encode()


# --- frameworks ---

def load_mapped(top, seed):
    """Loads parts of the shards as frameworks do: mapped, each tensor copied out."""
    rng = random.Random(seed)
    maps = []
    for i in range(4):
        with open(top / f"shard-{i}.bin", "rb") as f:
            maps.append(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ))
    threads = []
    wrong = []

    def tensor(i, offset, length):
        if not is_right(maps[i][offset:offset + length], f"shard-{i}.bin", offset):
            wrong.append((i, offset))

    for _ in range(40):
        length = rng.randrange(1, 2 << 20)
        threads.append(threading.Thread(target=tensor, args=(
            rng.randrange(4), rng.randrange((64 << 20) - length), length)))
        threads[-1].start()
    for t in threads:
        t.join()
    sys.exit(1 if wrong else 0)


def test_transformers_45547_parallel_loaders_with_mmap_do_not_deadlock(server, mount):
    synthetic.table()
    s = server("--synthetic", "bench: shard-%d.bin 64M x 4", "--latency", "2ms")
    m = mount("bench", server=s, memory="64M")
    assert set(run_all([FORK.Process(target=load_mapped, args=(m.path, i)) for i in range(8)])) == {0}


def read_after_fork(fd, mapped, top):
    for offset in (0, 1 << 20, 31 << 20):
        if not is_right(os.pread(fd, 5000, offset), "big.bin", offset):
            sys.exit(1)
        if not is_right(mapped[offset:offset + 5000], "big.bin", offset):
            sys.exit(2)
    read_samples_of(top)


def read_samples_of(top):
    for i in range(20):
        if not is_right((top / "small" / f"{i:02d}.bin").read_bytes(), f"small/{i:02d}.bin"):
            sys.exit(3)


def test_s3_connector_320_fork_while_threads_read(server, mount):
    """fork while client threads run: hangs, crashes"""
    synthetic.table()
    s = server("--synthetic", "bench: big.bin 64M; small/%02d.bin 30K x 20", "--latency", "5ms")
    m = mount("bench", server=s, memory="64M")
    stop, trouble = threading.Event(), []

    def background():
        while not stop.is_set():
            with open(m.path / "big.bin", "rb", buffering=0) as f:
                offset = random.randrange(0, 60 << 20)
                f.seek(offset)
                if not is_right(f.read(1 << 20), "big.bin", offset):
                    trouble.append(offset)

    threads = [threading.Thread(target=background) for _ in range(4)]
    for t in threads:
        t.start()
    try:
        with open(m.path / "big.bin", "rb") as f:
            mapped = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
            for _ in range(3):
                codes = run_all([FORK.Process(target=read_after_fork, args=(f.fileno(), mapped, m.path))
                                 for _ in range(4)], seconds=60)
                assert codes == [0] * 4
    finally:
        stop.set()
        for t in threads:
            t.join(timeout=60)
    assert trouble == []


# --- operation ---

def test_mountpoint_csi_576_a_mount_outlives_its_worker_and_its_open_files_too(server, mount):
    """the daemon dies and the mount stays dead"""
    s = server("--synthetic", "bench: big.bin 64M; small/%02d.bin 30K x 20")
    m = mount("bench", server=s)
    with open(m.path / "big.bin", "rb", buffering=0) as f:
        assert is_right(f.read(1 << 20), "big.bin")
        m.kill_worker()
        offset = 1 << 20
        while data := f.read(1 << 20):
            assert is_right(data, "big.bin", offset)
            offset += len(data)
        assert offset == 64 << 20
    assert len(os.listdir(m.path / "small")) == 20
    m.umount()
