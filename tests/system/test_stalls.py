# SPDX-License-Identifier: Apache-2.0
"""The stall report: each cause, brought about, is the one that is told of."""

import concurrent.futures
import json
import os
import random
import subprocess
import time

import mounts


def report(m):
    return json.loads((m.path / ".os2g" / "stalls").read_text())


def leading(epoch):
    """What the causes say, in case it is not what was expected."""
    return epoch["leading"], epoch


class Plan:
    """An order that is declared to a mount, until the end of the block."""

    def __init__(self, m, names, *options):
        self._process = subprocess.Popen(
            [mounts.PROGRAM, "prefetch", "--order", "-", *options, m.path], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=mounts.environment())
        self._process.stdin.write("".join(f"{name}\n" for name in names))
        self._process.stdin.close()
        assert self._process.stdout.readline() == f"plan of {len(names)} files set\n"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        # it ends by itself when all has been read
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def read_all(m, names, pause=0.0):
    for name in names:
        (m.path / name).read_bytes()
        time.sleep(pause)


def epoch_of(m, number=1):
    """That epoch, once it has ended."""
    def ended():
        found = [one for one in report(m)["epochs"] if one["epoch"] == number]
        return found[0] if found and not found[0]["under_way"] else None

    return mounts.wait_until(ended)


NAMES = [f"d/{i:03d}" for i in range(40)]


def planned(server, mount, options, *plan_options, size="100K", pause=0.0, **mount_options):
    m = mount("bench", server=server("--synthetic", f"bench: d/%03d {size} x 40", *options),
              **mount_options)
    os.listdir(m.path / "d")
    with Plan(m, NAMES, *plan_options):
        read_all(m, NAMES, pause)
    return m, epoch_of(m)


def test_a_store_that_answers_late_shows_as_latency(server, mount):
    _, epoch = planned(server, mount, ["--latency", "300ms"])
    assert epoch["plans"] == 1 and epoch["reads"]["waits"] > 0
    assert leading(epoch)[0] == "store latency", leading(epoch)
    assert epoch["reads"]["waited_for"]["first byte"] > 0.2
    assert 0.2 < epoch["waited"] <= epoch["seconds"]
    assert abs(epoch["waited"] + epoch["reader_itself"] - epoch["seconds"]) < 1e-4
    assert epoch["objects"][0]["key"] in NAMES
    assert epoch["objects"][0]["cause"] == "store latency"


def test_a_store_that_sends_slowly_shows_as_throughput(server, mount):
    _, epoch = planned(server, mount, ["--bandwidth", "200000"])
    assert leading(epoch)[0] == "store throughput", leading(epoch)
    assert epoch["causes"]["store throughput"] > 0.3


def test_too_few_connections_show(server, mount):
    _, epoch = planned(server, mount, ["--latency", "40ms"], max_connections=1)
    assert leading(epoch)[0] in ("connections in use", "store latency"), leading(epoch)
    assert epoch["causes"]["connections in use"] > 0.1


def test_a_window_that_is_too_small_shows_as_a_plan_that_is_too_short(server, mount):
    _, epoch = planned(server, mount, ["--latency", "30ms"], "--window", "110K")
    assert leading(epoch)[0] == "plan too short", leading(epoch)
    assert "window" in epoch["advice"]


def test_a_reader_that_takes_its_time_is_told_so(server, mount):
    _, epoch = planned(server, mount, ["--latency", "10ms"], pause=0.05)
    assert epoch["seconds"] > 2
    assert epoch["reader_itself"] > 0.7 * epoch["seconds"], epoch


def test_reads_that_nobody_foresaw_show_as_not_planned(server, mount):
    s = server("--synthetic", "bench: d/%03d 100K x 400", "--latency", "30ms")
    m = mount("bench", server=s)
    names = [f"d/{i:03d}" for i in range(400)]
    read_all(m, random.Random(3).sample(names, 10))
    epoch = report(m)["epochs"][-1]
    assert epoch["epoch"] is None and epoch["under_way"]
    assert leading(epoch)[0] == "not planned", leading(epoch)
    assert epoch["reads"]["waited_for"]["first byte"] > 0.2


def test_readers_without_memory_show_as_a_full_pool(server, mount):
    # so late that nearly all are waiting for that, and not for a core of a busy machine
    s = server("--synthetic", "bench: big 2G", "--latency", "300ms")
    m = mount("bench", server=s, memory="16M", threads=1, direct_io=True)
    # wherever the buffer begins, one request of the kernel's: 16 of 80 have memory at a time
    size, fd = 1000 << 10, os.open(m.path / "big", os.O_RDONLY)
    try:
        with concurrent.futures.ThreadPoolExecutor(80) as pool:
            places = random.Random(5).sample(range(2000), 160)
            assert all(len(data) == size
                       for data in pool.map(lambda i: os.pread(fd, size, i * size), places))
    finally:
        os.close(fd)
    epoch = report(m)["epochs"][-1]
    assert leading(epoch)[0] == "pool full", leading(epoch)
    assert "memory" in epoch["advice"] and epoch["objects"][0]["key"] == "big"


def test_what_is_here_keeps_nobody_waiting(server, mount):
    s = server("--synthetic", "bench: d/%03d 100K x 40", "--latency", "20ms")
    m = mount("bench", server=s, direct_io=True)
    read_all(m, NAMES)
    before = report(m)["totals"]["reads"]
    read_all(m, NAMES)
    after = report(m)["totals"]["reads"]
    assert before["waits"] > 0
    assert after["waits"] == before["waits"]


def test_every_declaration_begins_an_epoch(server, mount):
    m, _ = planned(server, mount, ["--latency", "1ms"])
    with Plan(m, NAMES):
        read_all(m, NAMES)
    assert epoch_of(m, 2)["plans"] == 1
    with Plan(m, NAMES[:20]), Plan(m, NAMES[20:]):
        read_all(m, NAMES)
    assert epoch_of(m, 3)["plans"] == 2


def test_status_shows_it_in_words_and_as_json(server, mount):
    m, epoch = planned(server, mount, ["--latency", "30ms"], "--window", "110K")
    shown = subprocess.run([mounts.PROGRAM, "status", m.path], check=True, env=mounts.environment(),
                           stdout=subprocess.PIPE, text=True).stdout
    line = next(line for line in shown.splitlines() if "epoch 1: readers waited " in line)
    assert line.startswith("stalls ") and "plan too short" in line and " %" in line
    assert any(line.startswith("  slowest ") and " d/0" in line for line in shown.splitlines())
    assert any(line.startswith("  advice ") and "window" in line for line in shown.splitlines())
    told = m.status()["stalls"]
    assert [one for one in told["epochs"] if one["epoch"] == 1] == [epoch]
    assert told["totals"].keys() == report(m)["totals"].keys()


def test_the_file_is_as_others_are_and_lasts_for_its_reader(server, mount):
    m = mount("bench", server=server("--synthetic", "bench: d/%03d 100K x 40"), file_mode="0440")
    path = m.path / ".os2g" / "stalls"
    assert path.stat().st_mode & 0o777 == (m.path / "d" / "000").stat().st_mode & 0o777 == 0o440
    assert sorted(os.listdir(path.parent)) == ["control", "gdd", "stalls"]
    with open(path, "rb", buffering=0) as f:
        begun = f.read(10)
        (m.path / "d" / "001").read_bytes()
        assert json.loads(begun + f.readall())["epochs"][0]["reads"]["waits"] == 0
    assert report(m)["epochs"][0]["reads"]["waits"] > 0
    for mode in ("w", "a"):
        try:
            open(path, mode).close()
            raise AssertionError("it was opened for writing")
        except OSError:
            pass


def test_a_new_worker_counts_from_zero(server, mount):
    m, _ = planned(server, mount, ["--latency", "5ms"])
    with open(m.path / ".os2g" / "stalls", "rb", buffering=0) as f:
        f.read(10)
        m.kill_worker()
        mounts.wait_until(lambda: m.status()["worker"]["restarts"] == 1)
        told = report(m)
        assert [one["epoch"] for one in told["epochs"]] == [None]
        assert told["totals"]["reads"]["waits"] == 0
        f.seek(0)
        assert json.loads(f.readall())["epochs"]
