# SPDX-License-Identifier: Apache-2.0
"""fork, spawn, and signals: a child goes on using what there is, and Ctrl-C ends a call at once."""

import multiprocessing
import os
import select
import signal
import socket
import sys
import threading
import time

import pytest

import mounts
import synthetic

SPEC = "bench: %02d.bin 200000 x 20; big.bin 9000000"


def right(key, data, offset=0):
    return bytes(data) == synthetic.expected("bench", key, offset, len(data))


# --- children ---


def in_child(call):
    """What becomes of call() in a child of os.fork(): its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if call() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_goes_on_with_clients_files_and_buffers(server, connect):
    client = connect(server("--synthetic", SPEC))
    synthetic.table()
    file, buffer = client.open("big.bin"), client.buffer(200_000)
    assert right("00.bin", client.fetch("00.bin"))

    def call():
        fetched = client.fetch_many([f"{i:02d}.bin" for i in range(20)])
        return (right("01.bin", client.fetch("01.bin")) and right("big.bin", file.pread(1000, 0))
                and right("02.bin", client.fetch("02.bin", buffer))
                and all(right(f"{i:02d}.bin", one) for i, one in enumerate(fetched)))

    assert [in_child(call) for _ in range(3)] == [0, 0, 0]
    assert right("02.bin", buffer)  # memory is shared
    assert right("03.bin", client.fetch("03.bin")) and right("big.bin", file.pread(1000, 5), 5)


def test_a_child_of_a_busy_parent(server, connect):
    client = connect(server("--synthetic", SPEC, "--latency", "2ms"), depth=8)
    synthetic.table()
    stop = threading.Event()

    def work():
        keys = [f"{i:02d}.bin" for i in range(20)]
        while not stop.is_set():
            client.fetch_many(keys)
            client.fetch("00.bin")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        codes = [in_child(lambda: right("01.bin", client.fetch("01.bin"))) for _ in range(20)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert codes == [0] * 20


def test_the_parent_s_plan_is_the_parent_s(server, connect):
    client = connect(server("--synthetic", SPEC))
    with client.plan(["00.bin"]) as plan:
        def call():
            try:
                plan.status()
            except PermissionError:
                plan.close()
                return True
            return False

        assert in_child(call) == 0
        assert plan.status().entries == 1


def fetch_all(client, keys):
    return all(right(key, client.fetch(key)) for key in keys)


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_workers_of_multiprocessing(server, connect, way):
    client = connect(server("--synthetic", SPEC))
    client.fetch("00.bin")
    keys = [f"{i:02d}.bin" for i in range(20)]
    with multiprocessing.get_context(way).Pool(2) as pool:
        assert pool.starmap(fetch_all, [(client, keys[i::4]) for i in range(4)]) == [True] * 4


# --- signals ---

WAITING = """
import signal, sys, threading, time
import os2g

def slow(file):
    return [file.pread(1000, offset) for offset in range(0, 8 << 20, 1 << 20)]

client = os2g.Client("s3://bench", endpoint_url=sys.argv[1], timeout=60)
plan = client.plan(["00.bin"])
into = client.buffer(1 << 20)
file = client.open("big.bin")
print("connected", flush=True)
sys.stdin.readline()
calls = {
    "fetch": lambda: client.fetch("01.bin"),
    "fetch into": lambda: client.fetch("01.bin", into),
    "fetch_many": lambda: client.fetch_many(["01.bin", "02.bin"]),
    "fetch_many into": lambda: client.fetch_many(["01.bin"], into),
    "as_completed": lambda: list(client.as_completed(["01.bin"], into)),
    "open": lambda: client.open("cold/01.bin"),
    "stat": lambda: client.stat("cold/01.bin"),
    "list": lambda: client.list("cold"),
    "read": lambda: slow(file),
    "read_many": lambda: client.read_many([(file, 1 << 22, 1000, 0)], into),
}
print("begun", flush=True)
try:
    calls[sys.argv[2]]()
except KeyboardInterrupt:
    into.close()
    print("interrupted", flush=True)
    sys.stdin.readline()
    assert len(client.fetch("03.bin")) == 200000
    print("done", flush=True)
"""


def expect(process, line, seconds=mounts.SECONDS):
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    got = process.stdout.readline() if ready else "(nothing)"
    assert got == line + "\n", got or process.stderr.read()


@pytest.mark.parametrize("call", ["fetch", "fetch into", "fetch_many", "fetch_many into",
                                  "as_completed", "open", "stat", "list", "read", "read_many"])
def test_ctrl_c_ends_a_call_that_waits(server, program, call):
    s = server("--synthetic", SPEC + "; cold/%02d.bin 100 x 5")
    run = program(WAITING, s.url, call, stdin=-1, bufsize=1)
    expect(run, "connected")
    s.latency("40s")
    print(file=run.stdin, flush=True)
    expect(run, "begun")
    time.sleep(0.3)
    assert run.poll() is None and not select.select([run.stdout], [], [], 0)[0]
    begin = time.monotonic()
    run.send_signal(signal.SIGINT)
    expect(run, "interrupted", 5)
    assert time.monotonic() - begin < 2
    s.latency("0ms")
    print(file=run.stdin, flush=True)
    expect(run, "done", 60)
    assert run.wait(mounts.SECONDS) == 0, run.stderr.read()


CONNECTING = """
import sys
import os2g
print("begun", flush=True)
try:
    os2g.Client(sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_connecting(program, tmp_path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        run = program(CONNECTING, tmp_path / "socket")
        expect(run, "begun")
        time.sleep(0.3)
        run.send_signal(signal.SIGINT)
        expect(run, "interrupted", 3)
        assert run.wait(mounts.SECONDS) == 0


HANDLER = """
import signal, sys
import os2g
client = os2g.Client("s3://bench", endpoint_url=sys.argv[1])
got = []
signal.signal(signal.SIGALRM, lambda *_: got.append(client.stat("00.bin").size))
signal.setitimer(signal.ITIMER_REAL, 0.3)
print("begun", flush=True)
assert len(client.fetch("01.bin")) == 200000
print(got, flush=True)
"""


def test_a_handler_that_returns_leaves_the_call_alone(server, program):
    s = server("--synthetic", SPEC)
    s.faults("GetObject bench/01.bin always delay 1s\n")
    run = program(HANDLER, s.url)
    expect(run, "begun")
    expect(run, "[200000]")
    assert run.wait(mounts.SECONDS) == 0, run.stderr.read()


def test_other_threads_run_while_one_waits(server, connect):
    s = server("--synthetic", SPEC)
    client = connect(s)
    s.faults("GetObject * always delay 500ms\n")
    thread = threading.Thread(target=client.fetch, args=("00.bin",))
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
        time.sleep(0.001)
    thread.join()
    assert turns > 50


def test_a_program_ends_while_calls_are_under_way(server, program):
    s = server("--synthetic", SPEC)
    s.faults("GetObject * always delay 20s\n")
    run = program("import os2g, sys, threading, time\n"
                  "client = os2g.Client('s3://bench', endpoint_url=sys.argv[1])\n"
                  "threading.Thread(target=client.fetch, args=('00.bin',), daemon=True).start()\n"
                  "time.sleep(0.3)\n"
                  "each = client.as_completed(['01.bin'], sizes=[200000])\n"
                  "thread = threading.Thread(target=next, args=(each,), daemon=True).start()\n"
                  "time.sleep(0.3)\n", s.url)
    assert run.wait(15) == 0, run.stderr.read()
    assert run.stderr.read() == "" and sys.version_info >= (3, 9)
