# SPDX-License-Identifier: Apache-2.0
"""os2g cat and cp by way of the daemon that OS2G_SOCKET names: it has the keys, they have none."""

import hashlib
import os
import subprocess

import pytest

import mounts
import s3d
import synthetic

SIZES = {"big.bin": 50_000_001, "a.bin": 100_000, "dir/b.bin": 8 << 20, "dir/deep/c.bin": 1,
         "dir/empty": 0}
SPEC = "bench: " + "; ".join(f"{key} {size}" for key, size in SIZES.items())


@pytest.fixture
def place(server, mount, tmp_path):
    """run(words) with OS2G_SOCKET; .server, .dir."""
    s = server("--synthetic", SPEC)
    socket = tmp_path / "socket"
    mount("bench", server=s, socket=socket)

    def run(*words, check=True, **env):
        done = subprocess.run([mounts.PROGRAM, *map(str, words)], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=mounts.SECONDS,
                              env=mounts.environment(access=None, OS2G_SOCKET=str(socket), **env))
        assert not check or done.returncode == 0, done.stderr
        return done

    run.server, run.dir = s, tmp_path
    return run


def right(path, key):
    return (path.stat().st_size == SIZES[key] and
            hashlib.sha256(path.read_bytes()).hexdigest() ==
            synthetic.digest("bench", key, SIZES[key]))


@pytest.mark.parametrize("key", SIZES)
def test_cat_writes_each_object(place, key):
    out = place("cat", f"s3://bench/{key}").stdout
    assert out == synthetic.expected("bench", key, 0, SIZES[key])


@pytest.mark.parametrize("text, offset, length", [("5-", 5, SIZES["big.bin"] - 5),
                                                  ("-9000000", SIZES["big.bin"] - 9000000, 9000000),
                                                  ("8388000-8389000", 8388000, 1001),
                                                  ("0-0", 0, 1)])
def test_cat_takes_a_range(place, text, offset, length):
    out = place("cat", "--range", text, "s3://bench/big.bin").stdout
    assert out == synthetic.expected("bench", "big.bin", offset, length)


def test_cp_copies_one_object(place):
    place("cp", "s3://bench/big.bin", place.dir / "copy")
    assert right(place.dir / "copy", "big.bin")


def test_cp_copies_a_tree_with_its_times(place):
    done = place("cp", "--recursive", "s3://bench", place.dir / "tree")
    assert b"5 copied, 0 skipped, 0 failed" in done.stdout
    for key in SIZES:
        assert right(place.dir / "tree" / key, key), key
    head = place.server.client().head_object(Bucket="bench", Key="dir/b.bin")
    assert (place.dir / "tree/dir/b.bin").stat().st_mtime == head["LastModified"].timestamp()


def test_cp_copies_what_is_below_a_prefix(place):
    place("cp", "--recursive", "s3://bench/dir/", place.dir / "tree")
    found = sorted(str(p.relative_to(place.dir / "tree"))
                   for p in (place.dir / "tree").rglob("*") if p.is_file())
    assert found == ["b.bin", "deep/c.bin", "empty"]


def test_many_small_objects_that_the_daemon_has_already(server, mount, tmp_path):
    s = server("--synthetic", "bench: %04d 1000 x 2000")
    mount("bench", server=s, socket=tmp_path / "socket")
    for n in range(3):
        done = subprocess.run([mounts.PROGRAM, "cp", "-r", "s3://bench", tmp_path / str(n)],
                              check=True, stdout=subprocess.PIPE, timeout=mounts.SECONDS,
                              env=mounts.environment(access=None,
                                                     OS2G_SOCKET=str(tmp_path / "socket")))
        assert done.stdout == b"2000 copied, 0 skipped, 0 failed\n"


def test_what_is_not_there_is_said(place):
    for words in (("cat", "s3://bench/none"), ("cp", "s3://bench/none", place.dir / "none")):
        done = place(*words, check=False)
        assert done.returncode == 1 and b"none" in done.stderr, done.stderr
    assert place("cp", "-r", "s3://bench/none", place.dir / "none").stdout.startswith(b"0 copied")


def test_a_daemon_that_is_not_there_is_said(place):
    done = subprocess.run([mounts.PROGRAM, "cat", "s3://bench/a.bin"], check=False,
                          stderr=subprocess.PIPE, timeout=mounts.SECONDS, text=True,
                          env=mounts.environment(OS2G_SOCKET=str(place.dir / "gone")))
    assert done.returncode == 1 and "OS2G_SOCKET=" in done.stderr


def test_a_daemon_of_another_bucket_is_not_asked(place):
    done = place("cat", "s3://other/a.bin", check=False)
    assert done.returncode == 1 and done.stdout == b""
    assert b"OS2G_SOCKET=" in done.stderr and b"s3://bench/" in done.stderr


def test_options_on_the_store_are_for_the_command_itself(place):
    place.server.reset()
    out = place("cat", "--endpoint-url", place.server.url, "s3://bench/a.bin",
                AWS_ACCESS_KEY_ID=s3d.ACCESS, AWS_SECRET_ACCESS_KEY=s3d.SECRET).stdout
    assert len(out) == SIZES["a.bin"]
    assert place.server.counters()["operations"]["HeadObject"] == 1
    done = place("cat", "--endpoint-url", place.server.url, "s3://bench/a.bin", check=False)
    assert done.returncode == 1  # the daemon's keys are not the command's
    assert os.environ.get("OS2G_SOCKET") is None
