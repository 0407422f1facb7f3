# SPDX-License-Identifier: Apache-2.0
"""os2g-s3d: multipart uploads, copies, and the encodings and checksums of request bodies."""

import base64
import datetime
import hashlib
import hmac
import os
import zlib

import pytest
from botocore.exceptions import ClientError

import s3d
import synthetic
from test_s3d_faults import Bare

PART = 5 << 20


def code(error):
    return error.value.response["Error"]["Code"]


@pytest.fixture(params=["directory", "memory"])
def one(request, server, tmp_path):
    """A server with an empty bucket "new" of either kind."""
    one = server("--synthetic", "bench: f 12M; e 0",
                 *(["--data", tmp_path] if request.param == "directory" else []))
    one.client().create_bucket(Bucket="new")
    return one


# --- multipart uploads ---


def upload(client, key, bodies, **arguments):
    upload_id = client.create_multipart_upload(Bucket="new", Key=key, **arguments)["UploadId"]
    parts = [{"PartNumber": i, "ETag": client.upload_part(
        Bucket="new", Key=key, UploadId=upload_id, PartNumber=i, Body=body)["ETag"]}
        for i, body in enumerate(bodies, 1)]
    return {"Bucket": "new", "Key": key, "UploadId": upload_id,
            "MultipartUpload": {"Parts": parts}}


def test_parts_become_one_object(one):
    client = one.client()
    bodies = [os.urandom(PART), os.urandom(PART + 1), b"end"]
    complete = upload(client, "k", bodies, Metadata={"a": "b"}, ContentType="x/y")
    answer = client.complete_multipart_upload(**complete)
    md5 = hashlib.md5(b"".join(hashlib.md5(b).digest() for b in bodies)).hexdigest()
    assert answer["ETag"] == f'"{md5}-3"'
    got = client.get_object(Bucket="new", Key="k")
    assert got["ETag"] == answer["ETag"] and got["Metadata"] == {"a": "b"}
    assert got["ContentType"] == "x/y" and got["Body"].read() == b"".join(bodies)
    middle = client.get_object(Bucket="new", Key="k", Range=f"bytes={PART - 5}-{2 * PART + 2}")
    assert middle["Body"].read() == b"".join(bodies)[PART - 5:2 * PART + 3]
    assert "Uploads" not in client.list_multipart_uploads(Bucket="new")


def test_parts_can_be_listed_replaced_and_aborted(one):
    client = one.client()
    arguments = upload(client, "k", [b"1" * 10, b"2" * 20])
    parts = arguments.pop("MultipartUpload")["Parts"]
    client.upload_part(PartNumber=2, Body=b"3" * 30, **arguments)
    listed = client.list_parts(**arguments)["Parts"]
    assert [(p["PartNumber"], p["Size"]) for p in listed] == [(1, 10), (2, 30)]
    assert listed[0]["ETag"] == parts[0]["ETag"] and listed[1]["ETag"] != parts[1]["ETag"]
    uploads = client.list_multipart_uploads(Bucket="new")["Uploads"]
    assert [u["UploadId"] for u in uploads] == [arguments["UploadId"]]
    client.abort_multipart_upload(**arguments)
    with pytest.raises(ClientError) as error:
        client.upload_part(PartNumber=1, Body=b"", **arguments)
    assert code(error) == "NoSuchUpload"
    with pytest.raises(ClientError) as error:
        client.list_parts(**arguments)
    assert code(error) == "NoSuchUpload"


@pytest.mark.parametrize("change, expected", [
    (lambda parts: parts.reverse(), "InvalidPartOrder"),
    (lambda parts: parts[0].update(ETag='"0123"'), "InvalidPart"),
    (lambda parts: parts[1].update(PartNumber=9), "InvalidPart"),
    (lambda parts: parts.clear(), "MalformedXML"),
    (lambda parts: None, "EntityTooSmall")])
def test_a_wrong_completion_is_refused_and_can_be_mended(server, change, expected):
    client = server("--bucket", "new").client()
    complete = upload(client, "k", [b"x" * (100 if expected == "EntityTooSmall" else PART), b"y"])
    good = [dict(p) for p in complete["MultipartUpload"]["Parts"]]
    change(complete["MultipartUpload"]["Parts"])
    with pytest.raises(ClientError) as error:
        client.complete_multipart_upload(**complete)
    assert code(error) == expected
    if expected != "EntityTooSmall":
        complete["MultipartUpload"]["Parts"] = good
        client.complete_multipart_upload(**complete)


# --- copies ---


def test_a_copy_has_bytes_and_metadata(one):
    client = one.client()
    body = os.urandom(700_000)
    client.put_object(Bucket="new", Key="a b/\u00e4", Body=body, Metadata={"x": "1"},
                      ContentType="t/u")
    client.copy_object(Bucket="new", Key="copy", CopySource={"Bucket": "new", "Key": "a b/\u00e4"})
    got = client.get_object(Bucket="new", Key="copy")
    assert got["Body"].read() == body and got["Metadata"] == {"x": "1"}
    assert got["ContentType"] == "t/u" and got["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
    client.copy_object(Bucket="new", Key="copy", CopySource="new/copy", Metadata={"y": "2"},
                       MetadataDirective="REPLACE")
    got = client.get_object(Bucket="new", Key="copy")
    assert got["Body"].read() == body and got["Metadata"] == {"y": "2"}


def test_a_synthetic_object_can_be_copied_whole_or_in_parts(one):
    client = one.client()
    whole = synthetic.expected("bench", "f", 0, 12 << 20)
    client.copy_object(Bucket="new", Key="whole", CopySource="bench/f")
    got = client.get_object(Bucket="new", Key="whole")
    assert got["Body"].read() == whole and got["ETag"] == f'"{hashlib.md5(whole).hexdigest()}"'
    upload_id = client.create_multipart_upload(Bucket="new", Key="parts")["UploadId"]
    parts = []
    for i in (1, 2):
        answer = client.upload_part_copy(
            Bucket="new", Key="parts", UploadId=upload_id, PartNumber=i, CopySource="bench/f",
            CopySourceRange=f"bytes={(i - 1) * PART}-{i * PART - 1}")
        parts.append({"PartNumber": i, "ETag": answer["CopyPartResult"]["ETag"]})
    client.complete_multipart_upload(Bucket="new", Key="parts", UploadId=upload_id,
                                     MultipartUpload={"Parts": parts})
    assert client.get_object(Bucket="new", Key="parts")["Body"].read() == whole[:2 * PART]


def test_a_copy_holds_its_conditions(one):
    client = one.client()
    with pytest.raises(ClientError) as error:
        client.copy_object(Bucket="new", Key="k", CopySource="bench/f", CopySourceIfMatch='"x"')
    assert code(error) == "PreconditionFailed"
    with pytest.raises(ClientError) as error:
        client.copy_object(Bucket="new", Key="k", CopySource="bench/missing")
    assert code(error) == "NoSuchKey"


# --- bodies of requests ---


def test_checksums_are_checked(one):
    client = one.client()
    for algorithm in ("CRC32", "SHA1", "SHA256"):
        client.put_object(Bucket="new", Key="k", Body=b"some bytes", ChecksumAlgorithm=algorithm)
        assert client.get_object(Bucket="new", Key="k")["Body"].read() == b"some bytes"
    for wrong in ({"ChecksumCRC32": "AAAAAA=="}, {"ChecksumCRC32C": "AAAAAA=="},
                  {"ChecksumSHA1": "x"}, {"ContentMD5": base64.b64encode(b"0" * 16).decode()}):
        with pytest.raises(ClientError) as error:
            client.put_object(Bucket="new", Key="other", Body=b"some bytes", **wrong)
        assert code(error) == "BadDigest"
    with pytest.raises(ClientError):
        client.head_object(Bucket="new", Key="other")


def test_crc32c_is_the_castagnoli_polynomial(one):
    # RFC 3720, B.4: 32 bytes of zeros give 8a9136aa
    crc = base64.b64encode(bytes.fromhex("8a9136aa")).decode()
    one.client().put_object(Bucket="new", Key="k", Body=bytes(32), ChecksumCRC32C=crc)


def test_an_object_is_only_made_when_it_is_new(one):
    client = one.client()

    def only_new(request, **_):
        request.headers["If-None-Match"] = "*"

    client.meta.events.register("before-send.s3.PutObject", only_new)
    client.put_object(Bucket="new", Key="k", Body=b"1")
    with pytest.raises(ClientError) as error:
        client.put_object(Bucket="new", Key="k", Body=b"2")
    assert code(error) == "PreconditionFailed"
    assert client.get_object(Bucket="new", Key="k")["Body"].read() == b"1"


class Signer:
    """Signs a PUT of /new/KEY whose body is signed chunk by chunk, from the documentation."""

    def __init__(self, one, key, length, trailer=None):
        now = datetime.datetime.utcnow()
        self.date = now.strftime("%Y%m%dT%H%M%SZ")
        self.scope = f"{self.date[:8]}/us-east-1/s3/aws4_request"
        self.key = ("AWS4" + s3d.SECRET).encode()
        for step in self.scope.split("/"):
            self.key = hmac.new(self.key, step.encode(), "sha256").digest()
        hashed = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("-TRAILER" if trailer else "")
        headers = {"host": f"{one.host}:{one.port}", "x-amz-content-sha256": hashed,
                   "x-amz-date": self.date, "x-amz-decoded-content-length": str(length)}
        if trailer:
            headers["x-amz-trailer"] = trailer
        names = ";".join(sorted(headers))
        canonical = "\n".join(["PUT", f"/new/{key}", "",
                               *(f"{k}:{headers[k]}" for k in sorted(headers)), "", names, hashed])
        self.last = self.sign("AWS4-HMAC-SHA256", hashlib.sha256(canonical.encode()).hexdigest())
        self.head = f"PUT /new/{key} HTTP/1.1\r\n" + "".join(
            f"{k}: {v}\r\n" for k, v in headers.items()) + (
            f"Authorization: AWS4-HMAC-SHA256 Credential={s3d.ACCESS}/{self.scope}, "
            f"SignedHeaders={names}, Signature={self.last}\r\nContent-Encoding: aws-chunked\r\n")

    def sign(self, algorithm, *lines):
        text = "\n".join([algorithm, self.date, self.scope, *lines])
        return hmac.new(self.key, text.encode(), "sha256").hexdigest()

    def chunk(self, data):
        self.last = self.sign("AWS4-HMAC-SHA256-PAYLOAD", self.last,
                              hashlib.sha256(b"").hexdigest(), hashlib.sha256(data).hexdigest())
        return b"%x;chunk-signature=%s\r\n" % (len(data), self.last.encode()) + data + (
            b"\r\n" if data else b"")

    def trailers(self, lines):
        digest = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
        last = self.sign("AWS4-HMAC-SHA256-TRAILER", self.last, digest)
        return "".join(f"{line}\r\n" for line in lines) + f"x-amz-trailer-signature:{last}\r\n"


def put_chunked(one, chunks, spoil=lambda body: body, trailer=None, key="k"):
    signer = Signer(one, key, sum(map(len, chunks)), trailer and trailer.split(":")[0])
    body = b"".join(signer.chunk(c) for c in [*chunks, b""])
    if trailer:
        body += signer.trailers([trailer]).encode()
    body = spoil(body + b"\r\n")
    with Bare(one) as c:
        c.send(f"{signer.head}Content-Length: {len(body)}\r\n\r\n")
        c.send(body)
        status, headers = c.head()
        return status, c.body(int(headers["content-length"]))


def test_signed_chunks_are_put_together(one):
    chunks = [os.urandom(65536), os.urandom(1), os.urandom(300_000)]
    assert put_chunked(one, chunks) == (200, b"")
    assert one.client().get_object(Bucket="new", Key="k")["Body"].read() == b"".join(chunks)


def test_a_spoilt_chunk_is_refused(one):
    status, body = put_chunked(one, [b"a" * 1000, b"b" * 1000],
                               lambda body: body.replace(b"bbb", b"bcb", 1))
    assert status == 403 and b"SignatureDoesNotMatch" in body
    status, body = put_chunked(one, [b"a" * 1000], lambda body: body[:-20])
    assert status == 400 and b"IncompleteBody" in body
    with pytest.raises(ClientError):
        one.client().head_object(Bucket="new", Key="k")


def test_trailing_checksums_are_checked(one):
    data = os.urandom(100_000)
    crc = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
    assert put_chunked(one, [data], trailer=f"x-amz-checksum-crc32:{crc}")[0] == 200
    assert one.client().get_object(Bucket="new", Key="k")["Body"].read() == data
    status, body = put_chunked(one, [data], trailer="x-amz-checksum-crc32:AAAAAA==")
    assert status == 400 and b"BadDigest" in body


def test_a_chunked_transfer_is_taken(server):
    one = server("--bucket", "new")
    url = one.client().generate_presigned_url("put_object", {"Bucket": "new", "Key": "k"})
    with Bare(one) as c:
        c.send(f"PUT {url[len(one.url):]} HTTP/1.1\r\nHost: {one.host}:{one.port}\r\n"
               "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\n\r\n")
        assert c.head()[0] == 200
    assert one.client().get_object(Bucket="new", Key="k")["Body"].read() == b"hello, world"


def test_a_large_upload_takes_no_memory(server, tmp_path):
    one = server("--data", tmp_path)
    client = one.client()
    client.create_bucket(Bucket="new")
    with open(tmp_path / "file", "wb") as f:
        f.truncate(300 << 20)
    before = one.memory()
    with open(tmp_path / "file", "rb") as f:
        client.put_object(Bucket="new", Key="k", Body=f)
    assert one.memory() - before < 32 << 20
    assert client.head_object(Bucket="new", Key="k")["ContentLength"] == 300 << 20
