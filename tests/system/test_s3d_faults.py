# SPDX-License-Identifier: Apache-2.0
"""os2g-s3d: scripted faults, as a client on a bare socket sees them; and broken requests."""

import socket
import time

import pytest

import synthetic

SPEC = "bench: a%d/f%02d 10 x 3 x 20; big 1M; empty 0"


class Bare:
    """One connection, on which nothing is hidden."""

    def __init__(self, one):
        self.socket = socket.create_connection((one.host, one.port), timeout=10)
        self.left = b""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.socket.close()

    def send(self, text):
        self.socket.sendall(text.encode() if isinstance(text, str) else text)

    def more(self):
        data = self.socket.recv(1 << 16)
        self.left += data
        return data

    def head(self):
        """Status, and headers by lower-case name."""
        while b"\r\n\r\n" not in self.left:
            if not self.more():
                raise ConnectionError("closed before the head was complete")
        head, self.left = self.left.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        return int(lines[0].split()[1]), {k.lower(): v for k, v in (
            line.split(": ", 1) for line in lines[1:])}

    def body(self, n):
        """n bytes, or what comes before the end."""
        while len(self.left) < n and self.more():
            pass
        body, self.left = self.left[:n], self.left[n:]
        return body

    def get(self, key="big", method="GET", headers="", bucket="bench"):
        self.send(f"{method} /{bucket}/{key} HTTP/1.1\r\nHost: x\r\n{headers}\r\n")
        return self.head()


@pytest.fixture
def faulty(server):
    """faulty(rules): a server that misbehaves so."""
    def start(rules="", *options):
        one = server("--synthetic", SPEC, "--anonymous", *options)
        one.faults(rules)
        return one
    return start


def data(offset, length, key="big"):
    return synthetic.expected("bench", key, offset, length)


# --- answers that are not what was asked for ---


def test_a_status_comes_with_its_xml(faulty):
    one = faulty("GET big nth=1 status 503\nGET big nth=2 status 500 Weird retry-after=7\n"
                 "GET big nth=3 status 403")
    with Bare(one) as c:
        for status, code in ((503, "SlowDown"), (500, "Weird"), (403, "AccessDenied")):
            got, headers = c.get()
            assert got == status
            assert f"<Code>{code}</Code>".encode() in c.body(int(headers["content-length"]))
            assert headers.get("retry-after") == ("7" if status == 500 else None)
        assert c.get()[0] == 200
    assert one.counters()["faults"] == {"status": 3}


def test_nothing_is_stored_when_a_status_is_due(server):
    one = server("--bucket", "new")
    one.faults("PUT * nth=1 status 500\n")
    client = one.client()
    with pytest.raises(Exception):
        client.put_object(Bucket="new", Key="k", Body=b"x")
    assert client.list_objects_v2(Bucket="new")["KeyCount"] == 0
    client.put_object(Bucket="new", Key="k", Body=b"x")


def test_xml_comes_where_data_was_due(faulty):
    with Bare(faulty("GET * always xml200")) as c:
        got, headers = c.get()
        assert got == 200 and c.body(int(headers["content-length"])).startswith(b"<?xml")
        got, headers = c.get(headers="Range: bytes=0-9\r\n")
        assert got == 206 and c.body(int(headers["content-length"])).startswith(b"<?xml")


def test_a_redirect_names_where_to_go(faulty):
    with Bare(faulty("GET big nth=1 redirect 307 http://127.0.0.1:9\n"
                     "GET big nth=2 redirect 301 http://other.test")) as c:
        got, headers = c.get()
        body = c.body(int(headers["content-length"]))
        assert got == 307 and headers["location"] == "http://127.0.0.1:9/bench/big"
        assert b"<Endpoint>127.0.0.1:9</Endpoint>" in body and b"TemporaryRedirect" in body
        got, headers = c.get()
        body = c.body(int(headers["content-length"]))
        assert got == 301 and b"PermanentRedirect" in body and b"<Endpoint>other.test<" in body


def test_another_region_is_claimed(faulty):
    with Bare(faulty("GET big always region eu-test-1")) as c:
        got, headers = c.get()
        body = c.body(int(headers["content-length"]))
        assert got == 400 and b"<Region>eu-test-1</Region>" in body
        assert headers["x-amz-bucket-region"] == "eu-test-1"


def test_an_etag_is_wrong_or_changes(faulty):
    with Bare(faulty("GET a0/* always etag wrong\nGET a1/* always etag changing")) as c:
        def etag(key):
            _, headers = c.get(key)
            assert c.body(10) == data(0, 10, key)
            return headers["etag"]

        right = f'"{synthetic.etag("bench", "a0/f00")}"'
        assert right != etag("a0/f00") == etag("a0/f00")
        assert len({etag("a1/f00") for _ in range(3)}) == 3


def test_a_content_range_is_shifted_or_missing(faulty):
    with Bare(faulty("GET big nth=1 content-range 4096\nGET big nth=2 content-range 0")) as c:
        for expected in ("bytes 4106-4115/1048576", None, "bytes 10-19/1048576"):
            got, headers = c.get(headers="Range: bytes=10-19\r\n")
            assert got == 206 and headers.get("content-range") == expected
            assert c.body(10) == data(10, 10)


# --- bodies of the wrong length ---


def test_a_short_body_is_a_consistent_lie(faulty):
    with Bare(faulty("GET big nth=1 short 100")) as c:
        got, headers = c.get(headers="Range: bytes=0-999\r\n")
        assert headers["content-length"] == "900"
        assert headers["content-range"] == "bytes 0-999/1048576"
        assert c.body(900) == data(0, 900)
        assert c.get("a0/f00")[0] == 200


def test_a_long_body_is_a_consistent_lie(faulty):
    with Bare(faulty("GET big nth=1 long 100")) as c:
        got, headers = c.get(headers="Range: bytes=0-999\r\n")
        assert headers["content-length"] == "1100"
        assert c.body(1100)[:1000] == data(0, 1000)
        assert c.get("a0/f00")[0] == 200


def test_garbage_follows_a_whole_body(faulty):
    with Bare(faulty("GET big nth=1 garbage 5000")) as c:
        _, headers = c.get(headers="Range: bytes=0-999\r\n")
        assert headers["content-length"] == "1000"
        assert c.body(1000) == data(0, 1000)
        assert len(c.body(1 << 20)) == 5000  # and then the end


@pytest.mark.parametrize("at, n", [("50%", 524288), ("100K", 102400), ("0", 0), ("100%", 1048576)])
def test_a_connection_is_closed_within_a_body(faulty, at, n):
    one = faulty(f"GET big always close {at}")
    with Bare(one) as c:
        _, headers = c.get()
        assert headers["content-length"] == "1048576"
        assert c.body(1 << 20) == data(0, n)
    assert one.counters()["faults"] == {"close": 1}


def test_a_connection_is_closed_before_the_head(faulty):
    with Bare(faulty("GET big always close head")) as c:
        c.send("GET /bench/big HTTP/1.1\r\nHost: x\r\n\r\n")
        assert c.more() == b""


def test_a_connection_is_reset(faulty):
    for at in ("head", "1000", "50%"):
        with Bare(faulty(f"GET big always reset {at}")) as c:
            c.send("GET /bench/big HTTP/1.1\r\nHost: x\r\n\r\n")
            with pytest.raises(ConnectionResetError):
                while True:
                    assert c.more()
            assert len(c.left) < 600000


def test_a_kept_alive_connection_is_hung_up(faulty):
    with Bare(faulty("GET big always hangup")) as c:
        _, headers = c.get(headers="Range: bytes=0-9\r\n")
        assert "connection" not in headers
        assert c.body(10) == data(0, 10)
        assert c.more() == b""


# --- late ---


def test_a_first_byte_is_late(faulty):
    with Bare(faulty("GET big nth=1 delay 300ms")) as c:
        start = time.monotonic()
        c.get(headers="Range: bytes=0-9\r\n")
        assert time.monotonic() - start >= 0.3
        assert c.body(10) == data(0, 10)


@pytest.mark.parametrize("at, before", [("head", None), ("0", 0), ("400000", 400000)])
def test_an_answer_stalls_and_goes_on(faulty, at, before):
    with Bare(faulty(f"GET big nth=1 stall {at} 700ms")) as c:
        c.send("GET /bench/big HTTP/1.1\r\nHost: x\r\n\r\n")
        c.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            while True:
                c.more()
        c.socket.settimeout(10)
        if before is None:
            assert c.left == b""
        else:
            assert len(c.left.split(b"\r\n\r\n", 1)[1]) == before
        c.head()
        assert c.body(1 << 20) == data(0, 1 << 20)


def test_a_stall_without_end_ends_with_its_client(faulty):
    one = faulty("GET big always stall 10")
    with Bare(one) as c:
        c.get()
        assert c.body(10) == data(0, 10)
        assert one.counters()["in_flight"] == 1
    for _ in range(100):
        if one.counters()["in_flight"] == 0:
            break
        time.sleep(0.02)
    assert one.counters()["in_flight"] == 0


def test_a_body_trickles(faulty):
    with Bare(faulty("GET big nth=1 rate 20K")) as c:
        start = time.monotonic()
        c.get(headers="Range: bytes=0-9999\r\n")
        assert c.body(10000) == data(0, 10000)
        assert 0.3 < time.monotonic() - start < 2


# --- which request is hit ---


def test_rules_hit_by_operation_and_pattern(faulty):
    one = faulty("HEAD * always status 500\n"
                 "GetObject bench/a1/* always status 501 # a comment\n"
                 "LIST * always status 502\n* a2/f1? always status 504\n")
    with Bare(one) as c:
        def get(*args):
            got, headers = c.get(*args)
            if "HEAD" not in args:
                c.body(int(headers["content-length"]))
            return got

        assert get("a0/f00", "HEAD") == 500
        assert get("a0/f00") == 200
        assert get("a1/f00") == 501
        assert get("?list-type=2") == 502
        assert get("a2/f10") == 504 and get("a2/f00") == 200


def test_the_same_seed_hits_the_same_requests(faulty):
    def pattern(seed):
        with Bare(faulty(f"seed {seed}\nGET * 20% status 503")) as c:
            hits = []
            for _ in range(200):
                got, headers = c.get("a0/f00")
                c.body(int(headers["content-length"]))
                hits.append(got == 503)
            return hits

    first = pattern(1)
    assert first == pattern(1) != pattern(2)
    assert 20 < sum(first) < 60


def test_nth_hits_a_stretch(faulty):
    with Bare(faulty("GET * nth=2,2 status 503\nGET * nth=4, status 500")) as c:
        got = []
        for _ in range(6):
            status, headers = c.get("a0/f00")
            c.body(int(headers["content-length"]))
            got.append(status)
    assert got == [200, 503, 503, 500, 500, 500]


@pytest.mark.parametrize("rules, message", [
    ("GET *", "line 1: expected OPERATION"), ("\nGOT * always hangup", 'line 2: "GOT" is no op'),
    ("GET * 120% hangup", "expected a probability"), ("GET * always explode", "is no action"),
    ("GET * always status 42", "wrong arguments of status"), ("GET * nth=0 hangup", "nth=N"),
    ("GET * always stall", "wrong arguments of stall"), ("seed x", "seed: expected a number")])
def test_a_mistake_in_the_rules_is_explained(faulty, rules, message):
    one = faulty("GET * always status 503")
    with pytest.raises(ValueError) as error:
        one.faults(rules)
    assert message.replace('"', "&quot;") in str(error.value)
    assert "status 503" in one.admin("GET", "faults")


def test_rules_come_from_a_file(server, tmp_path):
    (tmp_path / "rules").write_text("seed 5\nGET big always status 503\n")
    with Bare(server("--synthetic", SPEC, "--anonymous", "--faults", tmp_path / "rules")) as c:
        assert c.get()[0] == 503


# --- HTTP itself ---


def test_requests_in_a_row_are_answered_in_order(faulty):
    with Bare(faulty("")) as c:
        c.send("".join(f"GET /bench/a0/f{i:02} HTTP/1.1\r\nHost: x\r\n\r\n" for i in range(20)))
        for i in range(20):
            assert c.head()[0] == 200
            assert c.body(10) == data(0, 10, f"a0/f{i:02}")


def test_a_request_may_come_byte_by_byte(faulty):
    with Bare(faulty("")) as c:
        for byte in b"GET /bench/a0/f00 HTTP/1.1\r\nHost: x\r\n\r\n":
            c.send(bytes([byte]))
            time.sleep(0.001)
        assert c.head()[0] == 200 and c.body(10) == data(0, 10, "a0/f00")


def test_the_connection_closes_when_it_is_asked_to(faulty):
    one = faulty("", "--max-requests", "2")
    with Bare(one) as c:
        _, headers = c.get("a0/f00", headers="Connection: close\r\n")
        assert headers["connection"] == "close" and c.body(99) == data(0, 10, "a0/f00")
    with Bare(one) as c:
        assert "connection" not in c.get("empty")[1]
        assert c.get("empty")[1]["connection"] == "close" and c.more() == b""


def test_an_idle_connection_is_closed(faulty):
    with Bare(faulty("", "--idle-timeout", "200ms")) as c:
        c.get("empty")
        start = time.monotonic()
        assert c.more() == b""
        assert 0.1 < time.monotonic() - start < 2


@pytest.mark.parametrize("request_bytes", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET\r\n\r\n",
    b"PUT /b/k HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"PUT /b/k HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"])
def test_what_is_not_http_is_refused(faulty, request_bytes):
    one = faulty("")
    with Bare(one) as c:
        c.send(request_bytes)
        assert c.head()[0] == 400
        assert c.more() == b""
    with Bare(one) as c:
        assert c.get("a0/f00")[0] == 200


@pytest.mark.parametrize("target", ["/bench/%zz", "/bench/a%00b", "/bench?prefix=%f",
                                    "/" + "b" * 300 + "/k"])
def test_a_broken_target_is_refused(faulty, target):
    with Bare(faulty("")) as c:
        c.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")
        got, headers = c.head()
        assert got == 400 and b"<Error>" in c.body(int(headers["content-length"]))
        assert c.get("a0/f00")[0] == 200


def test_a_head_larger_than_the_limit_is_refused(faulty):
    with Bare(faulty("")) as c:
        c.send("GET /bench/big HTTP/1.1\r\nX: " + "x" * 70000)
        try:
            assert c.head()[0] == 400
        except ConnectionError:
            pass  # the answer may be lost with the bytes that were not read


def test_a_client_that_waits_for_100_gets_it(server):
    one = server("--bucket", "new")
    one.client().put_object(Bucket="new", Key="k", Body=b"x" * 100000)  # botocore waits for 100
    client = one.client(read_timeout=5)
    client.put_object(Bucket="new", Key="empty/", Body=b"")
    client.put_object(Bucket="new", Key="empty/k", Body=b"on the same connection")
    with Bare(one) as c:
        # unsigned writing is refused before the body is asked for
        c.send("PUT /new/k HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
               "Expect: 100-continue\r\n\r\n")
        got, headers = c.head()
        assert got == 403 and headers["connection"] == "close"
