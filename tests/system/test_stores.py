# SPDX-License-Identifier: Apache-2.0
"""The same tests on os2g-s3d and on Ceph's gateway: names, bytes, changes, commands; then what only
a real store can show: throttling, a hanging disk, TLS."""

import concurrent.futures
import contextlib
import errno
import hashlib
import mmap
import os
import pathlib
import random
import subprocess
import threading
import time

import pytest

import ceph
import mounts

SIZES = {"void": 0, "one": 1, "page": 4096, "page-1": 4095, "dir/small": 100_000,
         "dir/deeper/eight": 8 << 20, "dir/deeper/more": (8 << 20) + 1, "big": (20 << 20) + 777}
STRANGE = ["a b", "plus+plus", "per%cent", "%2F", "what?x=1&y=2", "hash#tag", "new\nline", "tab\there",
           "ünïcödé/日本", "quote\"'`", "back\\slash", "a:b@c", "~tilde", "semi;colon", "*star[1]",
           "dollar$HOME", "trailing ", " leading", "a" * 200, "-dash", "<xml>&amp;"]


def content(key, version=0):
    """Bytes that are nobody else's."""
    return random.Random(f"{key} {version}").randbytes(SIZES.get(key, 5000))


def fill(store, keys):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, content(key)), keys))


@pytest.fixture
def on(mount):
    """on(store) -> the mount of its bucket."""
    def start(store, below="", **options):
        return mount(f"{store.bucket}{below}", endpoint_url=store.url, env=store.env, **options)
    return start


def os2g(store, command, *words, check=True):
    return subprocess.run([mounts.PROGRAM, command, "--endpoint-url", store.url, *map(str, words)],
                          env=store.env, check=check, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=120)


def walk(top):
    """{path below top: size}"""
    return {str((pathlib.Path(d) / f).relative_to(top)): os.stat(pathlib.Path(d) / f).st_size
            for d, _, files in os.walk(top) for f in files}


# --- names and bytes ---

def test_the_whole_tree_is_there_with_sizes_and_times(store, on):
    fill(store, SIZES)
    m = on(store)
    assert walk(m.path) == SIZES
    assert sorted(os.listdir(m.path / "dir")) == ["deeper", "small"]
    head = store.client.head_object(Bucket=store.bucket, Key="dir/small")
    assert (m.path / "dir" / "small").stat().st_mtime == head["LastModified"].timestamp()
    assert os.getxattr(m.path / "dir" / "small", "user.os2g.etag").decode() == head["ETag"]


@pytest.mark.parametrize("options", [{}, {"direct_io": True}], ids=["cached", "direct"])
def test_every_byte_is_right_however_it_is_read(store, on, options):
    fill(store, SIZES)
    m = on(store, **options)
    for key in SIZES:
        good, path = content(key), m.path / key
        assert path.read_bytes() == good, key
        with open(path, "rb") as f:
            if good:
                with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                    assert mapped[:] == good, key
            assert os.pread(f.fileno(), 100, len(good) + 10) == b""
            for offset in random.Random(key).choices(range(len(good) + 1), k=20):
                assert os.pread(f.fileno(), 5000, offset) == good[offset:offset + 5000], (key, offset)


def test_direct_reads_are_right(store, on):
    fill(store, ["big"])
    m, good = on(store), content("big")
    fd = os.open(m.path / "big", os.O_RDONLY | os.O_DIRECT)
    try:
        buffer = mmap.mmap(-1, 1 << 20)
        for offset in range(0, len(good), 1 << 20):
            n = os.preadv(fd, [buffer], offset)
            assert buffer[:n] == good[offset:offset + (1 << 20)]
    finally:
        os.close(fd)


def test_strange_keys_are_files_of_those_names(store, on):
    fill(store, STRANGE)
    m = on(store)
    assert sorted(walk(m.path)) == sorted(STRANGE)
    for key in STRANGE:
        assert (m.path / key).read_bytes() == content(key)
    m.umount()
    m = on(store)  # and when each is looked up by itself
    for key in STRANGE:
        assert (m.path / key).stat().st_size == 5000
        assert not (m.path / (key + "x")).exists()


def test_keys_that_no_file_can_have_are_hidden_and_reached_by_cat(store, on):
    keys = ["good", "a//b", "x/../y", "./z", "n" * 300, "marker/", "both", "both/below"]
    fill(store, keys)
    m = on(store)
    assert sorted(os.listdir(m.path)) == ["a", "both", "good", "marker", "x"]
    assert os.listdir(m.path / "both") == ["below"]
    assert os.listdir(m.path / "marker") == []
    for key in keys:
        assert os2g(store, "cat", f"s3://{store.bucket}/{key}").stdout == content(key), key


def test_more_names_than_a_page_of_the_listing(store, on):
    """The gateway's pages have 100 names, whatever is asked for."""
    names = [f"many/{i:04d}" for i in range(250)]
    fill(store, names)
    m = on(store)
    assert sorted(os.listdir(m.path / "many")) == [n[5:] for n in names]
    assert (m.path / "many" / "0249").read_bytes() == content("many/0249")


def test_a_prefix_is_mounted_alone(store, on):
    fill(store, SIZES)
    assert walk(on(store, "/dir/deeper").path) == {"eight": 8 << 20, "more": (8 << 20) + 1}


def test_what_was_put_in_parts_is_one_file(store, on):
    parts = [random.Random(i).randbytes(5 << 20) for i in range(3)] + [b"the end"]
    client, key = store.client, {"Bucket": store.bucket, "Key": "parts"}
    upload = client.create_multipart_upload(**key)["UploadId"]
    done = [{"PartNumber": i, "ETag": client.upload_part(**key, UploadId=upload, PartNumber=i,
                                                         Body=part)["ETag"]}
            for i, part in enumerate(parts, 1)]
    client.complete_multipart_upload(**key, UploadId=upload, MultipartUpload={"Parts": done})
    m = on(store)
    assert (m.path / "parts").read_bytes() == b"".join(parts)
    digests = b"".join(hashlib.md5(part).digest() for part in parts)
    etag = f'"{hashlib.md5(digests).hexdigest()}-4"'
    assert os.getxattr(m.path / "parts", "user.os2g.etag").decode() == etag
    assert etag in os2g(store, "stat", f"s3://{store.bucket}/parts").stdout.decode()


# --- changes ---

def test_a_rewrite_of_the_same_size_is_seen_by_the_next_open(store, on):
    m = on(store, metadata_ttl="minimal")
    for key in ("dir/small", "big"):
        for version in range(3):
            store.put(key, content(key, version))
            assert (m.path / key).read_bytes() == content(key, version)


def test_a_handle_reads_one_version_or_estale(store, on):
    fill(store, ["big"])
    m = on(store, memory="16M", threads=1, direct_io=True)
    old, new = content("big"), content("big", 1)
    fd = os.open(m.path / "big", os.O_RDONLY)
    try:
        assert os.pread(fd, 1000, 0) == old[:1000]
        store.put("big", new)
        with pytest.raises(OSError) as caught:
            for offset in range(0, len(old), 1 << 18):
                assert os.pread(fd, 1 << 18, offset) == old[offset:offset + (1 << 18)]
        assert caught.value.errno == errno.ESTALE
    finally:
        os.close(fd)
    assert (m.path / "big").read_bytes() == new


def test_what_is_deleted_is_gone_and_what_comes_is_there(store, on):
    fill(store, ["one", "dir/small"])
    m = on(store, metadata_ttl="minimal", negative_metadata_ttl="minimal")
    assert (m.path / "one").read_bytes() == content("one")
    store.client.delete_object(Bucket=store.bucket, Key="one")
    with pytest.raises(FileNotFoundError):
        (m.path / "one").read_bytes()
    assert not (m.path / "page").exists()
    store.put("page", content("page"))
    assert (m.path / "page").read_bytes() == content("page")


# --- the worker, the commands, the rights ---

def test_a_killed_worker_is_not_noticed(store, on):
    fill(store, SIZES)
    m = on(store)
    with open(m.path / "big", "rb") as f:
        head = f.read(5 << 20)
        m.kill_worker()
        assert head + f.read() == content("big")
    assert walk(m.path) == SIZES


def test_the_commands_work(store, tmp_path):
    fill(store, SIZES)
    bucket = f"s3://{store.bucket}"
    listed = os2g(store, "ls", "-r", "--summarize", bucket).stdout.decode()
    assert f"{len(SIZES)} objects, {sum(SIZES.values())} bytes" in listed
    assert b"PRE dir/" in os2g(store, "ls", bucket).stdout
    assert os2g(store, "cat", f"{bucket}/big").stdout == content("big")
    assert os2g(store, "cat", "--range", "9000000-", f"{bucket}/big").stdout == content("big")[9000000:]
    assert b"size           4095" in os2g(store, "stat", f"{bucket}/page-1").stdout
    os2g(store, "cp", "-qr", bucket, tmp_path)
    assert walk(tmp_path) == SIZES
    assert not [key for key in SIZES if (tmp_path / key).read_bytes() != content(key)]
    assert b"BAD" not in os2g(store, "doctor", bucket).stdout


def test_what_is_not_there_is_told_in_words(store):
    done = os2g(store, "cat", f"s3://{store.bucket}/none", check=False)
    assert done.returncode == 1 and b"none: there is no such object" in done.stderr
    done = os2g(store, "ls", "s3://no-such-bucket-here", check=False)
    assert done.returncode == 1 and b"no-such-bucket-here" in done.stderr


def test_a_prefetched_directory_asks_no_more(store, on):
    fill(store, SIZES)
    m = on(store)
    subprocess.run([mounts.PROGRAM, "prefetch", "-q", m.path], check=True, env=store.env)
    before = m.status()["store"]["requests"]["get"]
    assert not [key for key in SIZES if (m.path / key).read_bytes() != content(key)]
    assert m.status()["store"]["requests"]["get"] == before


@pytest.mark.parametrize("access, secret", [(None, "wrong"), ("UNKNOWNKEY", "wrong")])
def test_wrong_keys_fail_the_mount(store, mount, access, secret):
    access = access or store.env["AWS_ACCESS_KEY_ID"]
    with pytest.raises(subprocess.CalledProcessError) as error:
        mount(store.bucket, endpoint_url=store.url, env=mounts.environment(access, secret))
    text = error.value.stderr
    assert "403" in text and ("SignatureDoesNotMatch" in text or "InvalidAccessKeyId" in text)


def test_a_bucket_that_is_not_there_fails_the_mount(store, mount):
    with pytest.raises(subprocess.CalledProcessError) as error:
        mount("no-such-bucket-here", endpoint_url=store.url, env=store.env)
    assert "no-such-bucket-here" in error.value.stderr


# --- TLS ---

@pytest.fixture(params=["s3d", "ceph"])
def tls_store(request, authority):
    """(endpoint, bucket, environment, put(key, bytes)) of a store with the authority's certificate."""
    if request.param == "s3d":
        s = request.getfixturevalue("server")("--bucket", "box", "--tls-cert", authority / "server.pem",
                                              "--tls-key", authority / "server.pem")
        client, url, env = s.client(), s.url, mounts.environment()
    else:
        gateway = request.getfixturevalue("gateway")
        client, url = gateway.client(), gateway.tls_url
        env = mounts.environment(gateway.access, gateway.secret)
        client.create_bucket(Bucket="box")
    return url, "box", env, lambda key, data: client.put_object(Bucket="box", Key=key, Body=data)


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_tls_with_an_authority_of_our_own(tls_store, authority, mount):
    url, bucket, env, put = tls_store
    for key in ("big", "dir/small"):
        put(key, content(key))
    m = mount(bucket, endpoint_url=url, env=env, ca_file=authority / "ca.pem")
    assert (m.path / "big").read_bytes() == content("big")
    m.umount()
    m = mount(bucket, endpoint_url=url, env={**env, "AWS_CA_BUNDLE": str(authority / "ca.pem")},
              direct_io=True)
    assert (m.path / "dir" / "small").read_bytes() == content("dir/small")

    for options in ({"ca_file": authority / "other.pem"}, {}):
        start = time.monotonic()
        with pytest.raises(subprocess.CalledProcessError) as error:
            mount(bucket, endpoint_url=url, env=env, **options)
        assert "certificate" in error.value.stderr
        assert time.monotonic() - start < 4 * mounts.slowed_down(), "a wrong certificate is not tried again"


# --- what only Ceph shows ---

@pytest.fixture
def slow_gateway():
    """A gateway that answers 503 SlowDown when more than two requests are under way."""
    why = ceph.missing()
    if why:
        pytest.skip(why)
    one = ceph.Ceph(conf="rgw_max_concurrent_requests=2")
    yield one
    one.stop()


def test_a_store_that_says_slow_down_is_read_to_the_end(slow_gateway, mount):
    client = slow_gateway.client()
    client.create_bucket(Bucket="box")
    names = [f"{i:03d}" for i in range(200)]
    for key in ["big", *names]:
        client.put_object(Bucket="box", Key=key, Body=content(key))
    m = mount("box", endpoint_url=slow_gateway.url, direct_io=True,
              env=mounts.environment(slow_gateway.access, slow_gateway.secret))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        wrong = [key for key, right in zip(["big", *names], pool.map(
            lambda key: (m.path / key).read_bytes() == content(key), ["big", *names])) if not right]
    assert wrong == []
    statuses = slow_gateway.statuses()
    assert statuses.count(503) > 0, "the gateway never throttled: the test shows nothing"
    assert m.status()["store"]["throttled"] > 0
    # load control: far from one refusal for each answer
    assert statuses.count(503) < len(statuses) / 2


@contextlib.contextmanager
def frozen(gateway):
    go_on = gateway.freeze()
    try:
        yield go_on
    finally:
        go_on()


@pytest.mark.parametrize("store", ["ceph"], indirect=True)
def test_a_disk_that_hangs_for_a_while_is_only_a_delay(store, on):
    fill(store, SIZES)
    m = on(store, direct_io=True)
    results = {}

    def read(key):
        results[key] = (m.path / key).read_bytes() == content(key)

    os.listdir(m.path / "dir" / "deeper")
    with frozen(store.server) as go_on:
        readers = [threading.Thread(target=read, args=(key,)) for key in ("big", "dir/deeper/more")]
        for r in readers:
            r.start()
        time.sleep(3)
        assert results == {}, "the disk did not hang: the test shows nothing"
        go_on()
        for r in readers:
            r.join(timeout=60)
    assert results == {"big": True, "dir/deeper/more": True}


@pytest.mark.parametrize("store", ["ceph"], indirect=True)
def test_a_disk_that_hangs_too_long_is_an_error_and_not_a_hang(store, on):
    fill(store, ["big"])
    m = on(store, retry_timeout="4s")
    with frozen(store.server):
        start = time.monotonic()
        with pytest.raises(OSError) as caught:
            (m.path / "big").read_bytes()
        assert caught.value.errno == errno.EIO
        assert time.monotonic() - start < 30
    mounts.wait_until(lambda: (m.path / "big").read_bytes() == content("big"), seconds=60)
