# SPDX-License-Identifier: Apache-2.0
"""os2g's commands beside mount: what they do and show, what they say when they can't."""

import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

import mounts
import s3d
import synthetic
from test_socket import single  # noqa: F401 (a fixture)

SPEC = "bench: big/one.bin 20M; small/%02d.bin 100K x 12; top.txt 5; void 0"
COMMANDS = "mount umount status prefetch ls cat cp stat doctor".split()
# Every one is a key that a program may meet in the wild.
STRANGE = ["a b", "plus+plus", "per%cent", "%2F", "what?x=1&y=2", "hash#tag", "new\nline", "tab\there",
           "ünïcödé/日本", "quote\"'`", "back\\slash", "a:b@c", "~tilde", "semi;colon", "*star[1]",
           "dollar$HOME", "trailing ", " leading", "a" * 200, "-dash", "<xml>&amp;"]


def os2g(*words, env=None, check=True, server=None, **kwargs):
    """Runs os2g; with server, against it. The CompletedProcess, its output as bytes."""
    options = ["--endpoint-url", server.url] if server else []
    command, *rest = map(str, words)
    done = subprocess.run([str(mounts.PROGRAM), command, *options, *rest], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=env or mounts.environment(), timeout=120,
                          check=False, **kwargs)
    assert not check or done.returncode == 0, done.stderr.decode()
    return done


def says(*words, code=1, **kwargs):
    """What a command that fails with this exit code writes, on standard error alone."""
    done = os2g(*words, check=False, **kwargs)
    assert done.returncode == code, (done.returncode, done.stdout[:200], done.stderr)
    text = done.stderr.decode()
    assert "os2g" in text, text
    return text


@pytest.fixture
def bench(server):
    return server("--synthetic", SPEC)


@pytest.fixture
def strange(server):
    """A bucket of keys that are awkward; each object's content is its key."""
    s = server("--bucket", "odd")
    client = s.client()
    for key in STRANGE:
        client.put_object(Bucket="odd", Key=key, Body=key.encode())
    return s


# --- the command line ---

@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_that_names_it(command):
    for flag in ("--help", "-h"):
        done = os2g(command, flag)
        text = done.stdout.decode()
        assert text.startswith(f"Usage: os2g {command} ") and "--help" in text
        assert done.stderr == b""
        assert max(map(len, text.splitlines())) < 120


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_in_the_manual(command):
    manual = (s3d.ROOT / "docs" / "man" / "os2g.1").read_text().replace("\\-", "-")
    text = os2g(command, "--help").stdout.decode()
    assert f"os2g {command}" in manual
    assert not [n for n in re.findall(r"(?m)^ +(?:-., )?(--[a-z0-9-]+)", text)
                if n != "--help" and n not in manual]


@pytest.mark.parametrize("page", ["os2g.1", "os2g-s3d.1", "os2gd.8", "mount.os2g.8"])
def test_manual_pages_have_no_mistakes(page):
    done = subprocess.run(["man", "--warnings", "-l", s3d.ROOT / "docs" / "man" / page], check=True,
                          env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.stderr == b"" and b"NAME" in done.stdout


def test_the_help_of_all_names_every_command():
    text = os2g("--help").stdout.decode()
    assert not [c for c in COMMANDS if f"  {c} " not in text]
    assert re.match(r"os2g \d+\.\d+", os2g("--version").stdout.decode())


def test_no_command_is_a_mistake():
    done = subprocess.run([mounts.PROGRAM], stdout=subprocess.PIPE, check=False, timeout=30)
    assert done.returncode == 2 and done.stdout.startswith(b"Usage:")


def test_a_command_that_is_not_there_is_answered_with_the_nearest():
    assert "did you mean 'prefetch'?" in says("prefech", code=2)
    assert "no command 'xyzzy'" in says("xyzzy", code=2)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "mount"])
def test_an_option_that_is_not_there_is_a_mistake(command):
    text = says(command, "--no-such-thing-at-all", code=2)
    assert "--no-such-thing-at-all" in text and f"os2g {command} --help" in text
    assert "there is no option -Z" in says(command, "-Z", code=2)


@pytest.mark.parametrize("words, sentence", [
    (["ls"], "name one bucket"), (["ls", "s3://a", "s3://b"], "name one bucket"),
    (["cat"], "name one object"), (["cat", "s3://a/b", "s3://a/c"], "name one object"),
    (["stat"], "name one object"), (["cp", "s3://a/b"], "where to"),
    (["cp", "--jobs", "0", "s3://a/b", "c"], "from 1 to 1024"),
    (["cp", "--jobs"], "--jobs needs a value"), (["cp", "--quiet=yes", "a", "b"], "takes no value"),
    (["status", "a", "b"], "name one directory"), (["status", "--watch"], "name one directory"),
    (["status", "--interval", "soon", "x"], "--interval takes a time"),
    (["prefetch"], "name one directory"), (["prefetch", "--window", "wide", "x"], "--window takes a size"),
    (["prefetch", "--jobs", "1000", "x"], "from 1 to 256"), (["doctor", "s3://a", "s3://b"], "at most one"),
    (["umount"], "director"), (["ls", "--endpoint-ulr", "x", "s3://a"], "--endpoint-url")])
def test_a_wrong_command_line_is_explained(words, sentence):
    assert sentence in says(*words, code=2)


@pytest.mark.parametrize("command", ["ls", "cat", "stat", "doctor"])
def test_a_source_that_is_no_url_is_refused(command):
    assert "'bench/top.txt' is no s3://BUCKET/KEY" in says(command, "bench/top.txt")


def test_two_dashes_end_the_options(strange):
    assert os2g("cat", "--", "s3://odd/-dash", server=strange).stdout == b"-dash"


# --- what all that talk to a store say ---

TALKERS = [["ls", "s3://bench/"], ["cat", "s3://bench/top.txt"], ["stat", "s3://bench/top.txt"],
           ["cp", "s3://bench/top.txt", "/nowhere/file"]]


@pytest.mark.parametrize("words", TALKERS, ids=lambda w: w[0])
def test_keys_that_are_refused_are_named(bench, words):
    text = says(*words, server=bench, env=mounts.environment(access="nobody"))
    assert "InvalidAccessKeyId" in text or "nobody" in text or "403" in text
    assert "environment" in text, "where the key came from is not said"


@pytest.mark.parametrize("words", TALKERS, ids=lambda w: w[0])
def test_no_keys_at_all_are_explained(bench, words):
    assert "--no-sign-request" in says(*words, server=bench, env=mounts.environment(access=None))


@pytest.mark.parametrize("words", TALKERS, ids=lambda w: w[0])
def test_a_server_that_is_not_there_is_told_of_soon(words):
    start = time.monotonic()
    command, *rest = words
    text = says(command, "--endpoint-url", f"http://127.0.0.1:{s3d.free_port()}", "--retry-timeout",
                "1s", *rest)
    assert "onnect" in text
    assert time.monotonic() - start < 10 * mounts.slowed_down()


def test_a_bucket_that_is_not_there_is_told_of(bench):
    text = says("ls", "s3://no-such-bucket/", server=bench)
    assert "no-such-bucket" in text or "NoSuchBucket" in text


# --- ls ---

def test_ls_shows_what_is_at_one_level(bench):
    lines = os2g("ls", "s3://bench", server=bench).stdout.decode().splitlines()
    assert [line.split()[-2:] for line in lines if "PRE" in line] == [["PRE", "big/"],
                                                                     ["PRE", "small/"]]
    objects = {line[33:]: line for line in lines if "PRE" not in line}
    assert sorted(objects) == ["top.txt", "void"]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +5 top\.txt$", objects["top.txt"])


def test_ls_takes_a_prefix_as_it_is(bench):
    def names(prefix, *options):
        out = os2g("ls", *options, f"s3://bench/{prefix}", server=bench).stdout.decode()
        return [line.split()[-1] for line in out.splitlines()]

    assert names("sma") == ["small/"]
    assert names("small") == ["small/"]
    assert names("small/") == [f"{i:02d}.bin" for i in range(12)]
    assert names("small/1") == ["10.bin", "11.bin"]
    assert names("small/1", "--recursive") == ["small/10.bin", "small/11.bin"]
    assert names("none") == []


def test_ls_counts_and_writes_sizes_for_people(bench):
    out = os2g("ls", "-rH", "--summarize", "s3://bench", server=bench).stdout.decode()
    assert out.splitlines()[-1] == f"15 objects, {(20 << 20) + 12 * 102400 + 5} bytes"
    assert re.search(r"20.0 MiB big/one\.bin", out) and "100.0 KiB small/00.bin" in out


def test_ls_shows_more_than_one_page_of_names(server):
    s = server("--synthetic", "bench: d/%05d 1 x 2500")
    out = os2g("ls", "-r", "s3://bench/d/", server=s).stdout.decode().splitlines()
    assert [line.split()[-1] for line in out] == [f"d/{i:05d}" for i in range(2500)]


def test_a_certificate_that_is_not_trusted_is_told_of_at_once(server, authority):
    s = server("--synthetic", SPEC, "--tls-cert", authority / "server.pem",
               "--tls-key", authority / "server.pem")
    start = time.monotonic()
    assert "certificate" in says("ls", "s3://bench", server=s)
    assert time.monotonic() - start < 5 * mounts.slowed_down()
    assert b"top.txt" in os2g("ls", "--ca-file", authority / "ca.pem", "s3://bench", server=s).stdout


def test_ls_shows_strange_keys_as_they_are(strange):
    out = os2g("ls", "-r", "s3://odd", server=strange).stdout
    assert not [k for k in STRANGE if b" " + k.encode() + b"\n" not in out]


def test_ls_into_a_closed_pipe_just_ends(server):
    s = server("--synthetic", "bench: d/%05d 1 x 20000")
    command = [mounts.PROGRAM, "ls", "--endpoint-url", s.url, "-r", "s3://bench"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=mounts.environment()) as p:
        p.stdout.readline()
        p.stdout.close()
        assert p.wait(timeout=30) != 0
        assert b"Sanitizer" not in p.stderr.read()


# --- cat ---

@pytest.mark.parametrize("key, size", [("big/one.bin", 20 << 20), ("small/07.bin", 102400),
                                       ("top.txt", 5), ("void", 0)])
def test_cat_writes_every_byte_in_order(bench, key, size):
    data = os2g("cat", f"s3://bench/{key}", server=bench).stdout
    assert len(data) == size and synthetic.first_wrong(data, "bench", key) is None


@pytest.mark.parametrize("text, first, last", [
    ("0-0", 0, 0), ("100-", 100, (20 << 20) - 1), ("8388600-8388620", 8388600, 8388620),
    ("-10", (20 << 20) - 10, (20 << 20) - 1), ("20971519-99999999", (20 << 20) - 1, (20 << 20) - 1),
    ("-99999999", 0, (20 << 20) - 1), ("1000-17000000", 1000, 17000000)])
def test_cat_writes_a_range(bench, text, first, last):
    data = os2g("cat", "--range", text, "s3://bench/big/one.bin", server=bench).stdout
    assert len(data) == last - first + 1
    assert synthetic.first_wrong(data, "bench", "big/one.bin", first) is None


@pytest.mark.parametrize("text", ["x", "5", "7-3", "a-b", "", "-"])
def test_cat_refuses_a_range_that_is_none(bench, text):
    assert "--range takes" in says("cat", f"--range={text}", "s3://bench/top.txt", server=bench)


def test_cat_of_what_is_not_there_says_so(bench):
    done = os2g("cat", "s3://bench/none", server=bench, check=False)
    assert done.returncode == 1 and done.stdout == b""
    assert "none: there is no such object" in done.stderr.decode()


@pytest.mark.parametrize("source", ["s3://bench", "s3://bench/"])
def test_cat_of_a_bucket_asks_for_an_object(bench, source):
    assert "name one object" in says("cat", source, server=bench)


def test_cat_and_stat_reach_strange_keys(strange):
    for key in STRANGE:
        assert os2g("cat", f"s3://odd/{key}", server=strange).stdout == key.encode()
        out = os2g("stat", f"s3://odd/{key}", server=strange).stdout.decode()
        assert f"size           {len(key.encode())}\n" in out


def test_cat_reaches_keys_that_no_file_can_have(server):
    s = server("--bucket", "odd")
    keys = ["a//b", "/leading", "./dot", "x/../y", "dir/", "n" * 300]
    for key in keys:
        s.client().put_object(Bucket="odd", Key=key, Body=key.encode())
    for key in keys:
        assert os2g("cat", f"s3://odd/{key}", server=s).stdout == key.encode()


def test_cat_into_a_closed_pipe_just_ends(bench):
    command = [mounts.PROGRAM, "cat", "--endpoint-url", bench.url, "s3://bench/big/one.bin"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=mounts.environment()) as p:
        p.stdout.read(10)
        p.stdout.close()
        assert p.wait(timeout=30) != 0
        assert p.stderr.read() == b""


def test_cat_goes_on_after_faults(bench):
    bench.faults("seed 3\nGET * 20% status 503 SlowDown\nGET * 20% reset 50%\nGET * 20% short 5\n")
    data = os2g("cat", "s3://bench/big/one.bin", server=bench).stdout
    assert len(data) == 20 << 20 and synthetic.first_wrong(data, "bench", "big/one.bin") is None


def test_cat_never_mixes_two_versions(bench):
    """The object changes between the parts: an error, and what was written is of one version."""
    bench.faults("GET * always rate 8M\n")
    command = [mounts.PROGRAM, "cat", "--endpoint-url", bench.url, "s3://bench/big/one.bin"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=mounts.environment()) as p:
        mounts.wait_until(lambda: bench.counters()["operations"].get("GetObject", 0) > 0)
        bench.touch("bench", "big/one.bin")
        bench.faults("GET * 100% reset 10%\n")
        data = p.stdout.read()
        error = p.stderr.read().decode()
        code = p.wait(timeout=60)
    assert synthetic.first_wrong(data, "bench", "big/one.bin") is None
    assert (code == 0 and len(data) == 20 << 20) or (code == 1 and "os2g cat: big/one.bin" in error)


# --- stat ---

def test_stat_tells_all_that_the_store_says(server):
    s = server("--bucket", "box")
    s.client().put_object(Bucket="box", Key="k", Body=b"hello", ContentType="text/x-greeting",
                          Metadata={"colour": "blue", "owner": "me"})
    out = os2g("stat", "s3://box/k", server=s).stdout.decode()
    fields = [tuple(line.split(None, 1)) for line in out.splitlines()]
    assert ("key", "k") in fields and ("size", "5") in fields
    assert "5d41402abc4b2a76b9719d911017c592" in out
    assert "text/x-greeting" in out and "STANDARD" in out
    assert "colour: blue" in out and "owner: me" in out
    when = re.search(r"^modified +(.*)$", out, re.M).group(1)
    told = datetime.datetime.strptime(when, "%a, %d %b %Y %H:%M:%S GMT")
    assert abs((told - datetime.datetime.utcnow()).total_seconds()) < 600


def test_stat_of_what_is_not_there_fails(bench):
    assert "none: there is no such object" in says("stat", "s3://bench/none", server=bench)
    assert "name one object" in says("stat", "s3://bench/", server=bench)


# --- cp ---

def listing(top):
    return {str(p.relative_to(top)): p.read_bytes() for p in pathlib.Path(top).rglob("*") if p.is_file()}


@pytest.mark.parametrize("to, name", [("file", "file"), ("", "one.bin"), ("new/deeper/", "new/deeper/one.bin")])
def test_cp_makes_a_file_or_puts_it_into_a_directory(bench, tmp_path, to, name):
    out = os2g("cp", "s3://bench/big/one.bin", f"{tmp_path}/{to}", server=bench).stdout
    assert b"1 copied, 0 skipped, 0 failed" in out
    files = listing(tmp_path)
    assert list(files) == [name] and len(files[name]) == 20 << 20
    assert synthetic.first_wrong(files[name], "bench", "big/one.bin") is None


@pytest.mark.parametrize("source", ["s3://bench", "s3://bench/"])
def test_cp_copies_a_whole_bucket(bench, tmp_path, source):
    os2g("cp", "-r", source, tmp_path / "all", server=bench)
    files = listing(tmp_path / "all")
    assert len(files) == 15 and files["void"] == b""
    assert not [k for k, data in files.items() if synthetic.first_wrong(data, "bench", k) is not None]


@pytest.mark.parametrize("source", ["s3://bench/small", "s3://bench/small/"])
def test_cp_copies_what_is_below_a_prefix(bench, tmp_path, source):
    os2g("cp", "--recursive", "--jobs", "3", source, tmp_path, server=bench)
    assert sorted(listing(tmp_path)) == [f"{i:02d}.bin" for i in range(12)]


def test_cp_keeps_the_time_of_the_object(server, tmp_path):
    s = server("--bucket", "box")
    s.client().put_object(Bucket="box", Key="k", Body=b"x")
    modified = s.client().head_object(Bucket="box", Key="k")["LastModified"].timestamp()
    time.sleep(1.1)
    os2g("cp", "s3://box/k", tmp_path / "k", server=s)
    assert (tmp_path / "k").stat().st_mtime == modified


def test_cp_overwrites_unless_told_not_to(bench, tmp_path):
    (tmp_path / "top.txt").write_text("mine")
    out = os2g("cp", "-n", "s3://bench/top.txt", tmp_path, server=bench).stdout
    assert b"0 copied, 1 skipped, 0 failed" in out
    assert (tmp_path / "top.txt").read_text() == "mine"
    os2g("cp", "s3://bench/top.txt", tmp_path, server=bench)
    assert (tmp_path / "top.txt").read_bytes() == synthetic.expected("bench", "top.txt", 0, 5)


def test_cp_is_quiet_when_told(bench, tmp_path):
    done = os2g("cp", "-rq", "s3://bench/small", tmp_path, server=bench)
    assert done.stdout == done.stderr == b""


def test_cp_copies_strange_keys(strange, tmp_path):
    os2g("cp", "-r", "s3://odd", tmp_path / "odd", server=strange)
    assert listing(tmp_path / "odd") == {k: k.encode() for k in STRANGE}


def test_cp_skips_keys_that_would_leave_the_directory(server, tmp_path):
    s = server("--bucket", "odd")
    for key in ["good", "../evil", "x/../../evil", "/etc/evil", "a//b", "./c", "n" * 300, "dir/"]:
        s.client().put_object(Bucket="odd", Key=key, Body=b"x")
    done = os2g("cp", "-r", "s3://odd", tmp_path / "in" / "here", server=s)
    assert listing(tmp_path) == {"in/here/good": b"x"}
    assert b"1 copied, 6 skipped, 0 failed" in done.stdout
    assert done.stderr.count(b"can't be a file's name") == 6


def test_cp_of_an_object_and_a_prefix_of_one_name_says_which_failed(server, tmp_path):
    s = server("--bucket", "odd")
    for key in ["a", "a/b", "c"]:
        s.client().put_object(Bucket="odd", Key=key, Body=key.encode())
    done = os2g("cp", "-r", "s3://odd", tmp_path / "t", server=s, check=False)
    assert done.returncode == 1 and b"2 copied, 0 skipped, 1 failed" in done.stdout
    files = listing(tmp_path / "t")
    assert files.pop("c") == b"c" and files in ({"a": b"a"}, {"a/b": b"a/b"})


@pytest.mark.parametrize("source, words", [
    ("s3://bench/none", "none: there is no such object"), ("s3://bench/big/", "--recursive"), ("s3://bench", "--recursive"),
    ("bench/top.txt", "no s3://BUCKET/KEY")])
def test_cp_says_why_it_cannot(bench, tmp_path, source, words):
    assert words in says("cp", source, tmp_path, server=bench)
    assert listing(tmp_path) == {}


def test_cp_to_a_place_that_cannot_be_written_says_so(bench, tmp_path):
    (tmp_path / "file").touch()
    assert "Not a directory" in says("cp", "s3://bench/top.txt", tmp_path / "file" / "x", server=bench)
    (tmp_path / "top.txt").mkdir()
    text = says("cp", "s3://bench/top.txt", tmp_path, server=bench)
    assert "top.txt: Is a directory" in text
    assert listing(tmp_path) == {"file": b""}


def test_cp_writes_to_a_device_and_does_not_replace_it(bench):
    before = os.stat("/dev/null")
    os2g("cp", "s3://bench/big/one.bin", "/dev/null", server=bench)
    after = os.stat("/dev/null")
    assert (after.st_mode, after.st_rdev, after.st_ino) == (before.st_mode, before.st_rdev, before.st_ino)


def test_cp_that_fails_leaves_no_file(bench, tmp_path):
    bench.faults("GET big/* nth=2, status 403 AccessDenied\n")
    done = os2g("cp", "-r", "s3://bench", tmp_path, server=bench, check=False)
    assert done.returncode == 1 and b"14 copied, 0 skipped, 1 failed" in done.stdout
    assert b"big/one.bin" in done.stderr
    files = listing(tmp_path)
    assert len(files) == 14 and not [f for f in files if f.startswith("big")]


def test_cp_survives_what_a_store_does(bench, tmp_path):
    bench.faults("seed 5\nGET * 15% status 503 SlowDown\nGET * 10% reset 50%\nGET * 10% xml200\n"
                 "GET * 10% close 30%\n")
    os2g("cp", "-r", "s3://bench", tmp_path, server=bench)
    files = listing(tmp_path)
    assert len(files) == 15
    assert not [k for k, data in files.items() if synthetic.first_wrong(data, "bench", k) is not None]


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_cp_that_is_killed_leaves_no_half_file_under_its_name(server, tmp_path, signum):
    s = server("--synthetic", "bench: %02d.bin 8M x 8", "--bandwidth-total", "20M")
    p = subprocess.Popen([mounts.PROGRAM, "cp", "--endpoint-url", s.url, "-qr", "-j", "3", "s3://bench",
                          tmp_path], env=mounts.environment())
    mounts.wait_until(lambda: s.counters()["object_bytes_out"] > 24 << 20)
    p.send_signal(signum)
    assert p.wait(timeout=30) != 0
    whole = list(tmp_path.glob("??.bin"))
    assert len(whole) < 8
    for path in whole:
        data = path.read_bytes()
        assert len(data) == 8 << 20 and synthetic.first_wrong(data, "bench", path.name) is None
    # and again from there
    os2g("cp", "-qrn", "s3://bench", tmp_path, server=s)
    assert len(list(tmp_path.glob("??.bin"))) == 8


# --- status ---

def test_status_shows_a_table_of_what_was_done(bench, mount):
    m = mount("bench", server=bench)
    (m.path / "big" / "one.bin").read_bytes()
    out = os2g("status", m.path).stdout.decode()
    assert re.match(rf"s3://bench/? on {m.path}, OS2G \d", out)
    for label in ("worker", "credentials", "page pool used", "FUSE requests", "GET requests",
                  "files opened", "given to readers"):
        assert re.search(rf"^ *{label}", out, re.M), label
    assert re.search(r"^given to readers +20(\.0)? MiB", out, re.M), out
    assert s3d.SECRET not in out


def test_status_as_json_has_the_counters(bench, mount):
    m = mount("bench", server=bench)
    data = (m.path / "small" / "03.bin").read_bytes()
    status = json.loads(os2g("status", "--json", m.path / "small").stdout)
    assert status["cache"]["read_bytes"] >= len(data) and status["fs"]["opens"] == 1
    assert status["store"]["requests"]["get"] >= 1
    assert s3d.SECRET not in json.dumps(status)


def test_status_of_all_names_every_mount(bench, mount):
    places = [mount("bench", server=bench).path, mount("bench/small", server=bench).path]
    out = os2g("status", check=False).stdout.decode()
    assert not [p for p in places if f"on {p}," not in out]


def test_status_of_all_names_exports_that_have_only_a_socket(bench, mount, single):
    one = single("bench/small", bench)
    assert one.line() == "ready"
    place = mount("bench", server=bench).path
    out = os2g("status", check=False).stdout.decode()
    assert out.count(f"s3://bench/small/ on {one.path},") == 1
    assert out.count(f" on {place},") == 1  # and not once more for its socket
    one.process.kill()
    one.process.wait()
    done = os2g("status", check=False)  # the name that it has left says nothing
    assert f" on {one.path}," not in done.stdout.decode() and one.path.name not in done.stderr.decode()


def test_status_can_be_watched(bench, mount):
    m = mount("bench", server=bench)
    with subprocess.Popen([mounts.PROGRAM, "status", "--interval", "100ms", "--json", m.path],
                          stdout=subprocess.PIPE, env=mounts.environment(), text=True) as p:
        first = json.loads(p.stdout.readline())
        (m.path / "small" / "00.bin").read_bytes()
        looks = (json.loads(line) for line in p.stdout)
        assert next(l for l in looks if l["fs"]["opens"] > first["fs"]["opens"])
        m.umount()
        p.stdout.read()
        assert p.wait(timeout=30) == 1


def test_status_elsewhere_says_so(tmp_path):
    assert str(tmp_path) in says("status", tmp_path)
    assert "No such file" in says("status", tmp_path / "none")


# --- prefetch ---

def test_prefetch_reads_a_directory_into_the_page_cache(bench, mount):
    m = mount("bench", server=bench)
    out = os2g("prefetch", m.path).stdout.decode()
    assert "14 files" in out and "0 failed" in out
    before = bench.counters()["operations"]["GetObject"]
    for i in range(12):
        data = (m.path / "small" / f"{i:02d}.bin").read_bytes()
        assert synthetic.first_wrong(data, "bench", f"small/{i:02d}.bin") is None
    assert len((m.path / "big" / "one.bin").read_bytes()) == 20 << 20
    assert bench.counters()["operations"]["GetObject"] == before


def test_prefetch_of_one_directory_leaves_the_others(bench, mount):
    m = mount("bench", server=bench)
    out = os2g("prefetch", "--jobs", "2", f"{m.path}/small/").stdout.decode()
    assert "12 files" in out
    assert bench.counters()["object_bytes_out"] == 12 * 102400
    assert os2g("prefetch", "-q", m.path / "small").stdout == b""


def test_prefetch_asks_for_each_object_once(server, mount):
    s = server("--synthetic", "bench: d/%04d 20K x 500", "--latency", "5ms")
    m = mount("bench", server=s)
    os2g("prefetch", m.path)
    assert s.counters()["operations"]["GetObject"] == 500
    assert s.counters()["object_bytes_out"] == 500 * 20 * 1024


def plan(m, order, *options):
    """A running os2g prefetch --order whose plan is set."""
    p = subprocess.Popen([mounts.PROGRAM, "prefetch", "--order", "-", *options, m.path], text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env=mounts.environment())
    p.stdin.write("".join(f"{name}\n" for name in order))
    p.stdin.close()
    p.first = p.stdout.readline()
    return p


def test_prefetch_with_an_order_fetches_before_it_is_read(server, mount):
    s = server("--synthetic", "bench: d/%03d 50K x 100", "--latency", "30ms")
    m = mount("bench", server=s)
    order = [f"d/{i * 37 % 100:03d}" for i in range(100)]
    with plan(m, order) as p:
        assert p.first == "plan of 100 files set\n"
        mounts.wait_until(lambda: s.counters()["operations"].get("GetObject", 0) == 100)
        for name in order:
            assert synthetic.first_wrong((m.path / name).read_bytes(), "bench", name) is None
        out = p.stdout.read()
        assert p.wait(timeout=30) == 0
    assert "100 entries: 100 read, 0 dropped unread, 0 not found" in out
    assert s.counters()["operations"]["GetObject"] == 100


def test_prefetch_with_an_order_takes_paths_in_several_spellings(bench, mount):
    m = mount("bench", server=bench)
    with plan(m, [f"{m.path}/small/00.bin", "./small/01.bin", "", "small/02.bin", "none"]) as p:
        assert p.first == "plan of 4 files set\n"
        for i in range(3):
            (m.path / "small" / f"{i:02d}.bin").read_bytes()
        out = p.stdout.read()
    assert "4 entries: 3 read" in out and "1 not found" in out


def test_a_plan_ends_with_the_command(bench, mount):
    m = mount("bench", server=bench)
    with plan(m, [f"small/{i:02d}.bin" for i in range(12)]) as p:
        mounts.wait_until(lambda: bench.counters()["operations"].get("GetObject", 0) == 12)
        p.kill()
    data = (m.path / "small" / "05.bin").read_bytes()
    assert synthetic.first_wrong(data, "bench", "small/05.bin") is None


def test_prefetch_says_why_it_cannot(bench, mount, tmp_path):
    m = mount("bench", server=bench)
    assert f"{tmp_path} is not in a mount of os2g: os2g status shows" in says("prefetch", tmp_path)
    assert "No such file" in says("prefetch", tmp_path / "none")
    assert "No such file" in says("prefetch", m.path / "none")
    assert "no-order" in says("prefetch", "--order", tmp_path / "no-order", m.path)


def test_prefetch_tells_of_files_that_cannot_be_read(bench, mount):
    m = mount("bench", server=bench, retry_timeout="1s")
    bench.faults("GET small/03.bin always status 403 AccessDenied\n")
    done = os2g("prefetch", m.path / "small", check=False)
    assert done.returncode == 1 and b"11 files" in done.stdout and b"1 failed" in done.stdout
    assert b"small/03.bin: Permission denied" in done.stderr


# --- doctor ---

def verdicts(done):
    """{what: verdict} of doctor's lines."""
    return {line[6:].split()[0]: line[:4].strip() for line in done.stdout.decode().splitlines()}


def test_doctor_finds_nothing_wrong_where_nothing_is(bench):
    done = os2g("doctor", "s3://bench", server=bench)
    found = verdicts(done)
    assert "BAD" not in found.values()
    for what in ("FUSE", "limits", "endpoint", "name", "connection", "clock", "credentials", "list",
                 "get"):
        assert found[what] == "ok", done.stdout
    assert s3d.SECRET.encode() not in done.stdout


def test_doctor_without_a_bucket_looks_at_the_machine():
    found = verdicts(os2g("doctor"))
    assert found["FUSE"] == "ok" and found["store"] == "note"


def doctor_finds(what, *words, **kwargs):
    """The line of doctor that is BAD."""
    done = os2g("doctor", *words, check=False, **kwargs)
    assert done.returncode == 1
    bad = [line for line in done.stdout.decode().splitlines() if line.startswith("BAD")]
    assert len(bad) == 1 and bad[0][6:].split()[0] == what, done.stdout
    return bad[0]


def test_doctor_finds_a_server_that_is_not_there():
    port = s3d.free_port()
    line = doctor_finds("connection", "--endpoint-url", f"http://127.0.0.1:{port}", "s3://bench")
    assert str(port) in line


def test_doctor_finds_a_name_that_nobody_has():
    line = doctor_finds("name", "--endpoint-url", "http://no-such-host.invalid", "s3://bench")
    assert "DNS" in line


def test_doctor_finds_a_clock_that_is_wrong(server):
    s = server("--synthetic", SPEC, "--clock-offset", "7200")
    assert re.search(r"-?(7199|720\d) s", doctor_finds("clock", "s3://bench", server=s))


def test_doctor_finds_that_there_are_no_keys(bench):
    line = doctor_finds("settings", "s3://bench", server=bench, env=mounts.environment(access=None))
    assert "--no-sign-request" in line


def test_doctor_finds_a_wrong_secret(bench):
    line = doctor_finds("list", "s3://bench", server=bench, env=mounts.environment(secret="wrong"))
    assert "SignatureDoesNotMatch" in line or "secret" in line


def test_doctor_finds_a_missing_right_to_get(server, tmp_path):
    (tmp_path / "auth").write_text("lister secret rights=list\n")
    s = server("--synthetic", SPEC, "--auth-file", tmp_path / "auth")
    line = doctor_finds("get", "s3://bench", server=s, env=mounts.environment("lister", "secret"))
    assert "denied" in line.lower() or "403" in line or "right" in line


def test_doctor_finds_a_bucket_that_is_not_there(bench):
    assert "no-such-bucket" in doctor_finds("list", "s3://no-such-bucket", server=bench)


def test_doctor_has_nothing_to_get_in_an_empty_bucket(server):
    found = verdicts(os2g("doctor", "s3://box", server=server("--bucket", "box")))
    assert found["list"] == "ok" and found["get"] == "note"
