# SPDX-License-Identifier: Apache-2.0
"""os2g bench: its figures are of what it says."""

import subprocess

import pytest

import landings
import mounts
import s3d

SPEC = "bench: small/%03d.bin 50000 x 100; big.bin 30000000"


@pytest.fixture
def place(server, mount):
    m = mount("bench", server=server("--synthetic", SPEC))
    return m.path


def test_fetch_reads_each_object_once_in_a_loop(place):
    r = landings.bench(place, "--keys", "small", "--loops", 3, "--depth", 8)
    assert (r["ops"], r["bytes"], r["errors"]) == (300, 300 * 50000, 0)
    assert r["gibps"] == pytest.approx(r["bytes"] / (1 << 30) / r["seconds"], rel=1e-6)
    assert r["ops_per_s"] == pytest.approx(300 / r["seconds"], rel=1e-6)
    latency = r["latency_us"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]
    assert r["bounced_bytes"] == 0


def test_read_takes_blocks_of_a_file_to_their_places(place):
    r = landings.bench(place, "--op", "read", "--key", "big.bin", "--block-size", "1M", "--in-place",
                       "--loops", 2)
    assert (r["ops"], r["bytes"]) == (2 * 29, 2 * 30000000)


def test_several_threads_share_the_work(place):
    r = landings.bench(place, "--keys", "/", "--object-size", "32M", "--threads", 4, "--loops", 2,
                       "--verify", "same", "--shuffle")
    assert (r["ops"], r["bytes"], r["mismatches"]) == (202, 2 * (100 * 50000 + 30000000), 0)


def test_malloc_memory_goes_through_the_bounce_buffer(place):
    r = landings.bench(place, "--keys", "small", "--memory", "malloc", "--loops", 1, "--warm-up", 0)
    assert r["bytes"] == r["bounced_bytes"] == 100 * 50000


def test_the_daemons_cpu_is_counted(place):
    r = landings.bench(place, "--keys", "small", "--loops", 20)
    assert r["device_cpu_s"] > 0
    assert r["total_cpu_s"] == pytest.approx(r["host_cpu_s"] + r["device_cpu_s"])


def test_the_daemon_behind_a_socket_is_found(server, mount, tmp_path):
    mount("bench", server=server("--synthetic", SPEC), socket=tmp_path / "socket")
    r = landings.bench(tmp_path / "socket", "--keys", "small", "--loops", 20, "--reap", 8)
    assert r["device_cpu_s"] > 0


def test_it_reads_for_so_many_seconds(place):
    r = landings.bench(place, "--keys", "small", "--seconds", "1")
    assert 0.9 < r["seconds"] < 5 * mounts.slowed_down()
    assert r["ops"] > 100


def test_a_plan_is_told_before(place):
    r = landings.bench(place, "--keys", "small", "--plan", "--shuffle")
    assert r["plan"]["entries"] == 100 and r["errors"] == 0


def test_a_changed_object_does_not_verify(server, mount):
    s = server("--synthetic", "bench: a.bin 50000")
    m = mount("bench", server=s, metadata_ttl="minimal")
    process = subprocess.Popen([mounts.PROGRAM, "bench", m.path, "--key", "a.bin", "--seconds", "4",
                                "--verify", "same", "--json"], stdout=subprocess.PIPE, text=True,
                               env=mounts.environment())
    counted = s.counters()["operations"].get("GetObject", 0)
    mounts.wait_until(lambda: s.counters()["operations"].get("GetObject", 0) > counted)
    s.touch("bench", "a.bin")
    out, _ = process.communicate(timeout=mounts.SECONDS)
    assert process.returncode == 1
    assert '"mismatches":0' not in out


def test_objects_that_are_not_there_are_errors(place):
    done = landings.bench(place, "--key", "none.bin", "--loops", 1, check=False)
    assert done.returncode == 1
    assert '"errors":1' in done.stdout


def test_what_cannot_be_is_said(place):
    for options, text in ((["--key", "a", "--in-place"], "--op read"),
                          (["--key", "a", "--plan", "--seconds", "1"], "--loops"),
                          ([], "nothing to read"), (["--key", "a", "--memory", "tape"], "--memory")):
        done = landings.bench(place, *options, check=False)
        assert done.returncode != 0 and text in done.stderr, (options, done.stderr)


def test_gpu_memory_without_a_driver_is_told(place):
    done = landings.bench(place, "--key", "big.bin", "--memory", "cuda", check=False,
                          env=mounts.environment(OS2G_CUDA_LIBRARY="/nonexistent"))
    assert done.returncode == 1 and "CUDA" in done.stderr


def stream(where, *options):
    return subprocess.run([s3d.BUILD / "examples" / "gpu_stream", where, *options], check=False,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=mounts.environment(OS2G_CUDA_LIBRARY="/nonexistent"),
                          timeout=mounts.SECONDS)


def test_the_example_streams_a_directory(server, mount):
    m = mount("bench/small/", server=server("--synthetic", SPEC))
    said = "100 objects, 5000000 bytes in host memory, 0 failed\n"
    done = stream(m.path, "--memory", "host")
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
    done = stream(m.path)
    assert (done.returncode, done.stdout) == (0, said) and "to host memory" in done.stderr
