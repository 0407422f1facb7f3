# SPDX-License-Identifier: Apache-2.0
"""os2g-s3d itself: reading, listing, storing; boto3 is the client."""

import concurrent.futures
import signal
import subprocess
import time

import pytest
from botocore.exceptions import ClientError

import s3d
import synthetic

SPEC = "bench: big/one.bin 1T; small/%06d.bin 100K x 20000; a%d/f%02d 10 x 3 x 20"

# Keys that no file system takes as they are.
AWKWARD = ["a//b", ".", "..", "../up", "a/./b", "dir/", "/lead", "trail//", "same", "same/child",
           "x" * 300, "y" * 255 + "/z", "q?#%+& \n\t", "\u00e4\u20ac\U0001f600", "a.txt", "a/x",
           "a", ".os2g-s3d", ".os2g-s3d/keys", "k" * 1024, "'\"<>&"]


def code(error):
    return error.value.response["Error"]["Code"]


def status(error):
    return error.value.response["ResponseMetadata"]["HTTPStatusCode"]


def keys_of(client, bucket, **arguments):
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, **arguments)
    return [o["Key"] for page in pages for o in page.get("Contents", [])]


@pytest.fixture(params=["directory", "memory"])
def stored(request, server, tmp_path):
    """A client, and an empty bucket "new" of either kind."""
    client = server(*(["--data", tmp_path] if request.param == "directory" else [])).client()
    client.create_bucket(Bucket="new")
    return client


# --- synthetic objects ---


def test_synthetic_bytes_are_the_documented_function(server):
    client = server("--synthetic", SPEC).client()
    for key, size in (("big/one.bin", 1 << 40), ("small/012345.bin", 102400)):
        for offset, length in ((0, 1), (5, 1000), (size - 7, 7), (size // 3, 70000)):
            answer = client.get_object(Bucket="bench", Key=key,
                                       Range=f"bytes={offset}-{offset + length - 1}")
            body = answer["Body"].read()
            length = min(length, size - offset)
            assert len(body) == length
            assert synthetic.first_wrong(body, "bench", key, offset) is None
            assert answer["ContentRange"] == f"bytes {offset}-{offset + length - 1}/{size}"
            assert answer["ETag"] == f'"{synthetic.etag("bench", key)}"'


def test_a_body_goes_on_over_the_end_of_the_table(server):
    client = server("--synthetic", "big: one 200M").client()
    for offset in range(0, 200 << 20, 50 << 20):
        body = client.get_object(Bucket="big", Key="one",
                                 Range=f"bytes={offset}-{offset + (50 << 20) - 1}")["Body"].read()
        assert synthetic.first_wrong(body, "big", "one", offset) is None


def test_the_table_is_splitmix64():
    for i in (0, 1, 2, 1000, synthetic.P // 8 - 1):
        assert synthetic.table()[8 * i:8 * i + 8] == synthetic.table_word(i)


def test_the_bytes_command_prints_what_the_server_sends():
    def run(*arguments):
        return subprocess.run([s3d.PROGRAM, "bytes", "b/k/e", "33554390", "20000000", *arguments],
                              check=True, stdout=subprocess.PIPE).stdout
    import hashlib

    for generation in (0, 3):
        data = run("--generation", str(generation))
        assert data == synthetic.expected("b", "k/e", 33554390, 20000000, generation)
        md5 = run("--generation", str(generation), "--md5").decode().strip()
        assert md5 == hashlib.md5(data).hexdigest()


def test_touch_makes_another_version_of_the_same_size(server):
    one = server("--synthetic", SPEC)
    client = one.client()
    before = client.get_object(Bucket="bench", Key="a0/f00")
    assert one.touch("bench", "a0/f00") == 1
    after = client.get_object(Bucket="bench", Key="a0/f00")
    body = after["Body"].read()
    assert body == synthetic.expected("bench", "a0/f00", 0, 10, 1) != before["Body"].read()
    assert after["ETag"] == f'"{synthetic.etag("bench", "a0/f00", 1)}"' != before["ETag"]
    assert after["LastModified"] > before["LastModified"]
    listed = client.list_objects_v2(Bucket="bench", Prefix="a0/f00")["Contents"][0]
    assert listed["ETag"] == after["ETag"]
    assert one.touch("bench", "a0/f00") == 2
    with pytest.raises(ValueError, match="NoSuchKey"):
        one.touch("bench", "nothing")


def test_synthetic_objects_can_be_replaced_and_deleted(server):
    client = server("--synthetic", SPEC).client()
    client.put_object(Bucket="bench", Key="a0/f00", Body=b"mine")
    client.put_object(Bucket="bench", Key="a0/f00x", Body=b"new")
    client.delete_object(Bucket="bench", Key="a0/f01")
    assert client.get_object(Bucket="bench", Key="a0/f00")["Body"].read() == b"mine"
    assert keys_of(client, "bench", Prefix="a0/")[:3] == ["a0/f00", "a0/f00x", "a0/f02"]
    with pytest.raises(ClientError) as error:
        client.head_object(Bucket="bench", Key="a0/f01")
    assert status(error) == 404


def test_sizes_are_drawn_the_same_way_each_time(server):
    spec = "s: u%03d uniform:1K-3K x 200; l%03d lognormal:100K,0.5 x 200"
    listings = [server("--synthetic", "big" + spec).client().list_objects_v2(Bucket="bigs")
                for _ in range(2)]
    sizes = [{o["Key"]: o["Size"] for o in listing["Contents"]} for listing in listings]
    assert sizes[0] == sizes[1]
    uniform = [n for k, n in sizes[0].items() if k[0] == "u"]
    assert 1024 <= min(uniform) < max(uniform) <= 3072 and len(set(uniform)) > 150
    lognormal = sorted(n for k, n in sizes[0].items() if k[0] == "l")
    assert 80000 < lognormal[100] < 130000 and lognormal[0] < 50000 and lognormal[-1] > 200000


# --- listing ---


def test_a_listing_has_every_key_in_the_order_of_bytes(server):
    client = server("--synthetic", SPEC).client()
    keys = keys_of(client, "bench", PaginationConfig={"PageSize": 777})
    assert len(keys) == 1 + 20000 + 60
    assert keys == sorted(keys)


def test_a_million_keys_cost_no_memory(server):
    one = server("--synthetic", "many: d%03d/f%04d 100K x 200 x 5000; x%d 1 x 1000000")
    before = one.memory()
    client = one.client()
    prefixes = client.list_objects_v2(Bucket="many", Delimiter="/", MaxKeys=1000)
    assert len(prefixes["CommonPrefixes"]) == 200 and prefixes["KeyCount"] == 1000
    last = client.list_objects_v2(Bucket="many", StartAfter="x999997")["Contents"]
    assert [o["Key"] for o in last] == ["x999998", "x999999"]
    assert one.memory() - before < 16 << 20


def test_common_prefixes_are_paged_once_each(server):
    client = server("--synthetic", "many: d%03d/f%04d 1 x 200 x 50; e 1; z%d/x 1 x 3").client()
    seen, token = [], {}
    while True:
        page = client.list_objects_v2(Bucket="many", Delimiter="/", MaxKeys=7, **token)
        seen += sorted([p["Prefix"] for p in page.get("CommonPrefixes", [])] +
                       [o["Key"] for o in page.get("Contents", [])])
        if not page["IsTruncated"]:
            break
        token = {"ContinuationToken": page["NextContinuationToken"]}
    assert seen == [f"d{i:03}/" for i in range(200)] + ["e"] + [f"z{i}/" for i in range(3)]


def test_prefix_and_start_after_narrow_a_listing(server):
    client = server("--synthetic", SPEC).client()
    assert keys_of(client, "bench", Prefix="a1/f1", StartAfter="a1/f17") == ["a1/f18", "a1/f19"]
    assert keys_of(client, "bench", Prefix="b", StartAfter="a") == ["big/one.bin"]
    assert keys_of(client, "bench", Prefix="nothing") == []
    page = client.list_objects(Bucket="bench", Prefix="a", Delimiter="/", MaxKeys=2)
    assert [p["Prefix"] for p in page["CommonPrefixes"]] == ["a0/", "a1/"]
    assert page["IsTruncated"] and page["NextMarker"] == "a1/"
    page = client.list_objects(Bucket="bench", Prefix="a", Delimiter="/", Marker="a1/")
    assert [p["Prefix"] for p in page["CommonPrefixes"]] == ["a2/"]


def test_a_continuation_token_is_checked(server):
    client = server("--synthetic", SPEC).client()
    for token in ("small/000001.bin", "!!!", "YWJj"):
        with pytest.raises(ClientError) as error:
            client.list_objects_v2(Bucket="bench", ContinuationToken=token)
        assert code(error) == "InvalidArgument"


# --- objects that are stored ---


def test_what_was_put_is_got(stored):
    body = bytes(range(256)) * 5000
    put = stored.put_object(Bucket="new", Key="a/b c", Body=body, Metadata={"x": "y"},
                            ContentType="text/plain", CacheControl="no-store")
    answer = stored.get_object(Bucket="new", Key="a/b c")
    assert answer["Body"].read() == body
    assert answer["ETag"] == put["ETag"]
    assert answer["Metadata"] == {"x": "y"}
    assert answer["ContentType"] == "text/plain" and answer["CacheControl"] == "no-store"
    part = stored.get_object(Bucket="new", Key="a/b c", Range="bytes=1000-600000")["Body"].read()
    assert part == body[1000:600001]


def test_empty_objects_are_objects(stored):
    stored.put_object(Bucket="new", Key="empty", Body=b"")
    answer = stored.get_object(Bucket="new", Key="empty")
    assert answer["ContentLength"] == 0 and answer["Body"].read() == b""
    assert answer["ETag"] == '"d41d8cd98f00b204e9800998ecf8427e"'
    with pytest.raises(ClientError) as error:
        stored.get_object(Bucket="new", Key="empty", Range="bytes=0-")
    assert code(error) == "InvalidRange"


def test_awkward_keys_are_kept_apart(stored):
    for key in AWKWARD:
        stored.put_object(Bucket="new", Key=key, Body=key.encode())
    for key in AWKWARD:
        assert stored.get_object(Bucket="new", Key=key)["Body"].read() == key.encode()
    in_order = sorted(AWKWARD, key=str.encode)
    assert keys_of(stored, "new") == in_order
    assert keys_of(stored, "new", PaginationConfig={"PageSize": 1}) == in_order
    for key in AWKWARD[::2]:
        stored.delete_object(Bucket="new", Key=key)
    assert keys_of(stored, "new") == sorted(AWKWARD[1::2], key=str.encode)
    for key in AWKWARD[1::2]:
        assert stored.get_object(Bucket="new", Key=key)["Body"].read() == key.encode()


def test_an_object_and_a_prefix_share_a_name_in_either_order(stored):
    for first, second in (("o", "o/p"), ("r/s", "r")):
        stored.put_object(Bucket="new", Key=first, Body=b"1")
        stored.put_object(Bucket="new", Key=second, Body=b"2")
        assert stored.get_object(Bucket="new", Key=first)["Body"].read() == b"1"
        assert stored.get_object(Bucket="new", Key=second)["Body"].read() == b"2"
        stored.delete_object(Bucket="new", Key=first)
        stored.put_object(Bucket="new", Key=second, Body=b"3")
        assert stored.get_object(Bucket="new", Key=second)["Body"].read() == b"3"
        assert keys_of(stored, "new", Prefix=first[0]) == [second]


def test_files_put_into_the_directory_are_objects(server, tmp_path):
    (tmp_path / "shared" / "d").mkdir(parents=True)
    (tmp_path / "shared" / "d" / "f.txt").write_bytes(b"hello")
    client = server("--data", tmp_path).client()
    first = client.get_object(Bucket="shared", Key="d/f.txt")
    assert first["Body"].read() == b"hello"
    assert client.list_objects_v2(Bucket="shared")["Contents"][0]["ETag"] == first["ETag"]
    client.put_object(Bucket="shared", Key="d/f.txt", Body=b"stored")
    (tmp_path / "shared" / "d" / "f.txt").write_bytes(b"behind the server's back")
    again = client.get_object(Bucket="shared", Key="d/f.txt")
    assert again["Body"].read() == b"behind the server's back"
    assert len({first["ETag"], again["ETag"]}) == 2
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "x").write_bytes(b"x")
    assert keys_of(client, "later") == ["x"]


def test_stored_objects_outlive_the_server(server, tmp_path):
    one = server("--data", tmp_path)
    one.client().create_bucket(Bucket="new")
    one.client().put_object(Bucket="new", Key="a//b", Body=b"x", Metadata={"k": "v"})
    before = one.client().head_object(Bucket="new", Key="a//b")
    one.stop()
    after = server("--data", tmp_path).client().head_object(Bucket="new", Key="a//b")
    assert after["ETag"] == before["ETag"] and after["Metadata"] == {"k": "v"}


def test_deleting_many_names_each(stored):
    for i in range(10):
        stored.put_object(Bucket="new", Key=f"d/{i}&", Body=b"")
    objects = [{"Key": f"d/{i}&"} for i in range(0, 10, 2)] + [{"Key": "never there"}]
    answer = stored.delete_objects(Bucket="new", Delete={"Objects": objects})
    assert [d["Key"] for d in answer["Deleted"]] == [o["Key"] for o in objects]
    assert keys_of(stored, "new") == [f"d/{i}&" for i in range(1, 10, 2)]


def test_buckets_come_and_go(stored):
    stored.create_bucket(Bucket="other")
    assert [b["Name"] for b in stored.list_buckets()["Buckets"]] == ["new", "other"]
    with pytest.raises(ClientError) as error:
        stored.create_bucket(Bucket="other")
    assert code(error) == "BucketAlreadyOwnedByYou"
    stored.put_object(Bucket="other", Key="..", Body=b"")
    with pytest.raises(ClientError) as error:
        stored.delete_bucket(Bucket="other")
    assert code(error) == "BucketNotEmpty"
    stored.delete_object(Bucket="other", Key="..")
    stored.delete_bucket(Bucket="other")
    with pytest.raises(ClientError) as error:
        stored.head_bucket(Bucket="other")
    assert status(error) == 404
    assert stored.get_bucket_location(Bucket="new")["LocationConstraint"] is None


def test_archived_objects_are_not_read(stored):
    stored.put_object(Bucket="new", Key="cold", Body=b"brrr", StorageClass="GLACIER")
    assert stored.head_object(Bucket="new", Key="cold")["StorageClass"] == "GLACIER"
    assert stored.list_objects_v2(Bucket="new")["Contents"][0]["StorageClass"] == "GLACIER"
    with pytest.raises(ClientError) as error:
        stored.get_object(Bucket="new", Key="cold")
    assert code(error) == "InvalidObjectState" and status(error) == 403


# --- conditions, ranges, overrides ---


def test_conditions_hold_a_read_back(stored):
    etag = stored.put_object(Bucket="new", Key="k", Body=b"0123456789")["ETag"]
    when = stored.head_object(Bucket="new", Key="k")["LastModified"]
    stored.get_object(Bucket="new", Key="k", IfMatch=etag)
    for arguments, expected in (({"IfMatch": '"other"'}, 412), ({"IfNoneMatch": etag}, 304),
                                ({"IfModifiedSince": when}, 304),
                                ({"IfUnmodifiedSince": when.replace(year=2001)}, 412)):
        with pytest.raises(ClientError) as error:
            stored.get_object(Bucket="new", Key="k", **arguments)
        assert status(error) == expected
    stored.get_object(Bucket="new", Key="k", IfNoneMatch='"other"', IfUnmodifiedSince=when)


@pytest.mark.parametrize("asked, got", [("bytes=0-0", b"0"), ("bytes=3-5", b"345"),
                                        ("bytes=8-", b"89"), ("bytes=-3", b"789"),
                                        ("bytes=5-999", b"56789"), ("bytes=-999", b"0123456789"),
                                        ("bytes=10-", None), ("bytes=-0", None),
                                        ("bytes=5-3", b"0123456789"), ("lines=1", b"0123456789"),
                                        ("bytes=0-1,3-4", b"0123456789")])
def test_a_range_gives_its_bytes(server, asked, got):
    client = server("--bucket", "new").client()
    client.put_object(Bucket="new", Key="k", Body=b"0123456789")
    if got is None:
        with pytest.raises(ClientError) as error:
            client.get_object(Bucket="new", Key="k", Range=asked)
        assert code(error) == "InvalidRange" and status(error) == 416
    else:
        assert client.get_object(Bucket="new", Key="k", Range=asked)["Body"].read() == got


def test_responses_are_overridden_on_request(server):
    client = server("--synthetic", SPEC).client()
    answer = client.get_object(Bucket="bench", Key="a0/f00", ResponseContentType="x/y",
                               ResponseContentDisposition="attachment")
    assert answer["ContentType"] == "x/y" and answer["ContentDisposition"] == "attachment"


def test_a_requester_pays_bucket_wants_a_payer(server):
    client = server("--synthetic", SPEC, "--requester-pays", "bench").client()
    with pytest.raises(ClientError) as error:
        client.get_object(Bucket="bench", Key="a0/f00")
    assert status(error) == 403
    client.get_object(Bucket="bench", Key="a0/f00", RequestPayer="requester")


# --- speed and life ---


def test_thousands_of_requests_wait_side_by_side(server):
    import socket

    one = server("--synthetic", SPEC, "--anonymous", "--latency", "500ms")
    request = b"GET /bench/a0/f00 HTTP/1.1\r\nHost: x\r\n\r\n"
    start = time.monotonic()
    sockets = [socket.create_connection((one.host, one.port)) for _ in range(2000)]
    try:
        for s in sockets:
            s.sendall(request)
        for s in sockets:
            assert s.recv(65536).startswith(b"HTTP/1.1 200 OK")
    finally:
        for s in sockets:
            s.close()
    assert time.monotonic() - start < 5
    assert one.counters()["peak_in_flight"] > 1000


def test_latency_is_kept_to_the_millisecond(server):
    client = server("--synthetic", SPEC, "--latency", "20ms").client()
    client.head_object(Bucket="bench", Key="a0/f00")
    times = []
    for _ in range(20):
        start = time.monotonic()
        client.head_object(Bucket="bench", Key="a0/f00")
        times.append(time.monotonic() - start)
    assert 0.020 <= min(times) < 0.027


@pytest.mark.parametrize("option, connections", [("--bandwidth", 1), ("--bandwidth-total", 4)])
def test_bandwidth_is_limited(server, option, connections):
    one = server("--synthetic", SPEC, option, "8M")
    clients = [one.client() for _ in range(connections)]
    size = (8 << 20) // connections

    def get(i):
        answer = clients[i].get_object(Bucket="bench", Key="big/one.bin",
                                       Range=f"bytes={i * size}-{(i + 1) * size - 1}")
        return synthetic.first_wrong(answer["Body"].read(), "bench", "big/one.bin", i * size)

    def seconds():
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(connections) as pool:
            assert list(pool.map(get, range(connections))) == [None] * connections
        return time.monotonic() - start

    # never faster; and as fast as that when the machine has nothing else to do
    times = [seconds()]
    while times[-1] > 1.5 and len(times) < 10:
        times.append(seconds())
    assert 0.9 < min(times) <= 1.5


def test_counters_tell_what_happened(server):
    one = server("--synthetic", SPEC)
    client = one.client()
    client.get_object(Bucket="bench", Key="small/000000.bin")["Body"].read()
    client.head_object(Bucket="bench", Key="a0/f00")
    client.list_objects_v2(Bucket="bench")
    counters = one.counters()
    assert counters["requests"] | {"ADMIN": 0} == {"GET": 1, "HEAD": 1, "LIST": 1, "ADMIN": 0}
    assert counters["operations"]["ListObjectsV2"] == 1
    assert counters["requests_total"] == 3 and counters["statuses"]["200"] == 3
    assert counters["object_bytes_out"] == 102400
    assert counters["in_flight"] == 0
    one.reset()
    assert one.counters()["requests_total"] == 0


def test_requests_are_logged(server, tmp_path):
    one = server("--synthetic", SPEC, "--log-requests", tmp_path / "log")
    one.client().get_object(Bucket="bench", Key="a0/f00", Range="bytes=1-2")["Body"].read()
    one.stop()
    line = (tmp_path / "log").read_text()
    assert "GetObject GET /bench/a0/f00 206 2 " in line and "range=bytes=1-2" in line


def test_it_ends_cleanly_with_requests_under_way(server):
    one = server("--synthetic", SPEC, "--latency", "60s")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.client().head_object, Bucket="bench", Key="a0/f00")
        for _ in range(200):
            if one.counters()["in_flight"]:
                break
            time.sleep(0.02)
        assert one.stop(signal.SIGINT) == 0
        with pytest.raises(Exception):
            waiting.result(timeout=10)


@pytest.mark.parametrize("arguments, message", [
    (["--latncy", "1ms"], "did you mean --latency?"),
    (["--latency", "fast"], "cannot be understood"),
    (["--synthetic", "bench: f%02d 1K x 1000"], "1000 numbers need 3 digits"),
    (["--synthetic", "bench: f%d 1K"], "1 numbers in the pattern, but 0 counts"),
    (["--synthetic", "B: f 1K"], "a bucket's name is"),
    (["--data", "/does/not/exist"], "No such file"),
    (["--tls-cert", "x.pem"], "certificate and key go together"),
    (["--secret-key", "x"], "comes after its --access-key")])
def test_a_mistake_in_the_options_is_explained(arguments, message):
    ended = subprocess.run([s3d.PROGRAM, *arguments], stderr=subprocess.PIPE, text=True,
                           timeout=20, check=False)
    assert ended.returncode != 0 and message in ended.stderr
