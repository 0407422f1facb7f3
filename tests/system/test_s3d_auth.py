# SPDX-License-Identifier: Apache-2.0
"""os2g-s3d: who is asking, and whether they may; and where temporary key pairs come from."""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from botocore.exceptions import ClientError

import s3d
import synthetic

SPEC = "bench: a%d/f%02d 10 x 3 x 20; b/x 10"


def code(error):
    return error.value.response["Error"]["Code"]


def status(error):
    return error.value.response["ResponseMetadata"]["HTTPStatusCode"]


def refused(client, **arguments):
    """The error that a GET runs into."""
    with pytest.raises(ClientError) as error:
        client.get_object(**({"Bucket": "bench", "Key": "a0/f00"} | arguments))
    return error


def fetch(url, method="GET", headers=None, body=None):
    """Status and body of a plain request."""
    request = urllib.request.Request(url, method=method, headers=headers or {},
                                     data=body.encode() if body is not None else None)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode("latin-1")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


# --- signatures ---


def test_a_wrong_secret_is_refused(server):
    assert code(refused(server("--synthetic", SPEC).client(secret="x"))) == "SignatureDoesNotMatch"


def test_an_unknown_key_is_refused(server):
    assert code(refused(server("--synthetic", SPEC).client(access="x"))) == "InvalidAccessKeyId"


def test_unsigned_requests_are_for_anonymous_servers(server):
    closed, opened = server("--synthetic", SPEC), server("--synthetic", SPEC, "--anonymous")
    assert code(refused(closed.client(access=None))) == "AccessDenied"
    client = opened.client(access=None)
    assert client.get_object(Bucket="bench", Key="a0/f00")["ContentLength"] == 10
    assert client.list_objects_v2(Bucket="bench")["KeyCount"] == 61
    with pytest.raises(ClientError) as error:
        client.put_object(Bucket="bench", Key="x", Body=b"")
    assert code(error) == "AccessDenied"


def test_the_wrong_region_is_told_the_right_one(server):
    one = server("--synthetic", SPEC, "--region", "eu-test-1")
    # botocore does what it is told; what that was is told by an unwilling client
    told = []
    client = one.client(region="us-east-1")
    client.meta.events.register_first(
        "needs-retry.s3", lambda response, **_: told.append(response[1].get("Error")))
    client.get_object(Bucket="bench", Key="a0/f00")
    assert told[0]["Code"] == "AuthorizationHeaderMalformed"
    assert told[0]["Region"] == "eu-test-1"
    assert one.counters()["statuses"] == {"200": 1, "400": 1}
    one.client(region="eu-test-1").get_object(Bucket="bench", Key="a0/f00")
    location = one.client(region="eu-test-1").get_bucket_location(Bucket="bench")
    assert location["LocationConstraint"] == "eu-test-1"


@pytest.mark.parametrize("offset", ["1000", "-1000"])
def test_a_clock_that_is_off_is_told_the_time(server, offset):
    error = refused(server("--synthetic", SPEC, f"--clock-offset={offset}").client())
    assert code(error) == "RequestTimeTooSkewed"
    told = time.mktime(time.strptime(error.value.response["Error"]["ServerTime"],
                                     "%Y-%m-%dT%H:%M:%S.000Z")) - time.timezone
    assert abs(told - time.time() - int(offset)) < 5


def test_a_small_offset_is_tolerated(server):
    server("--synthetic", SPEC, "--clock-offset", "800").client().head_bucket(Bucket="bench")


def test_keys_with_every_kind_of_character_are_signed_alike(server):
    client = server("--bucket", "new").client()
    for key in ("a b", "a+b", "a%2Fb", "\u00e4/~!*'()", "a&b=c?d#e", "a//b", ":@,;$[]"):
        client.put_object(Bucket="new", Key=key, Body=key.encode())
        assert client.get_object(Bucket="new", Key=key)["Body"].read() == key.encode()
        listed = client.list_objects_v2(Bucket="new", Prefix=key)["Contents"]
        assert [o["Key"] for o in listed] == [key]


def test_presigned_urls_work_until_they_expire(server):
    client = server("--synthetic", SPEC).client()
    arguments = {"Bucket": "bench", "Key": "a0/f00", "ResponseContentType": "x/y"}
    url = client.generate_presigned_url("get_object", arguments, ExpiresIn=1)
    assert fetch(url)[0] == 200
    assert "SignatureDoesNotMatch" in fetch(url.replace("f00", "f01"))[1]
    time.sleep(2.1)
    got, body = fetch(url)
    assert got == 403 and "Request has expired" in body


def test_a_body_that_is_not_what_was_signed_is_refused(server):
    client = server("--bucket", "new").client()

    def change(request, **_):
        request.body = b"another body"
        request.headers["Content-Length"] = "12"

    client.meta.events.register("before-send.s3.PutObject", change)
    with pytest.raises(ClientError) as error:
        client.put_object(Bucket="new", Key="k", Body=b"the body")
    assert code(error) in ("XAmzContentSHA256Mismatch", "BadDigest")
    with pytest.raises(ClientError) as error:
        client.head_object(Bucket="new", Key="k")
    assert status(error) == 404


def test_a_header_that_is_not_signed_is_refused(server):
    client = server("--bucket", "new").client()

    def add(request, **_):
        request.headers["x-amz-meta-smuggled"] = "1"

    client.meta.events.register("before-send.s3.PutObject", add)
    with pytest.raises(ClientError) as error:
        client.put_object(Bucket="new", Key="k", Body=b"")
    assert code(error) == "AccessDenied"


# --- rights ---


@pytest.fixture
def limited(server, tmp_path):
    (tmp_path / "keys").write_text("# for tests\nall s1\nreader s2 rights=get,list\n"
                                   "getter s3 rights=get\nnarrow s4 prefix=bench/a1/\n"
                                   "lister s5 rights=list\n")
    return server("--synthetic", SPEC, "--auth-file", tmp_path / "keys")


def test_a_reader_may_not_write(limited):
    client = limited.client("reader", "s2")
    client.get_object(Bucket="bench", Key="a0/f00")
    client.list_objects_v2(Bucket="bench")
    for call, arguments in ((client.put_object, {"Key": "a0/f00"}),
                            (client.delete_object, {"Key": "a0/f00"}),
                            (client.create_multipart_upload, {"Key": "x"})):
        with pytest.raises(ClientError) as error:
            call(Bucket="bench", **arguments)
        assert code(error) == "AccessDenied"
    answer = client.get_object(Bucket="bench", Key="a0/f00")
    assert answer["ContentLength"] == 10


def test_who_may_not_list_is_not_told_what_is_missing(limited):
    client = limited.client("getter", "s3")
    client.get_object(Bucket="bench", Key="a0/f00")
    assert code(refused(client, Key="missing")) == "AccessDenied"
    with pytest.raises(ClientError) as error:
        client.list_objects_v2(Bucket="bench")
    assert code(error) == "AccessDenied"
    assert code(refused(limited.client("reader", "s2"), Key="missing")) == "NoSuchKey"


def test_who_may_not_get_can_still_list(limited):
    client = limited.client("lister", "s5")
    assert client.list_objects_v2(Bucket="bench")["KeyCount"] == 61
    assert code(refused(client)) == "AccessDenied"


def test_a_prefix_limits_a_key_pair(limited):
    client = limited.client("narrow", "s4")
    client.get_object(Bucket="bench", Key="a1/f00")
    assert client.list_objects_v2(Bucket="bench", Prefix="a1/")["KeyCount"] == 20
    assert code(refused(client, Key="a2/f00")) == "AccessDenied"
    with pytest.raises(ClientError) as error:
        client.list_objects_v2(Bucket="bench")
    assert code(error) == "AccessDenied"
    with pytest.raises(ClientError) as error:
        client.copy_object(Bucket="bench", Key="a1/new", CopySource="bench/a2/f00")
    assert code(error) == "AccessDenied"


# --- temporary key pairs ---


def works(one, answer, token_name):
    """Uses key pair and token of an answer; expires them; sees that."""
    arguments = (answer["AccessKeyId"], answer["SecretAccessKey"])
    client = one.client(*arguments, token=answer[token_name])
    client.get_object(Bucket="bench", Key="a0/f00")
    assert code(refused(one.client(*arguments))) == "InvalidToken"
    assert code(refused(one.client(*arguments, token="other"))) == "InvalidToken"
    assert one.expire_credentials() >= 1
    assert code(refused(client)) == "ExpiredToken"


def test_web_identity_gives_keys(server):
    import boto3

    one = server("--synthetic", SPEC, "--web-identity-token", "the+token", "--session-lifetime", "60")
    sts = boto3.client("sts", endpoint_url=one.url, region_name="us-east-1",
                       aws_access_key_id="x", aws_secret_access_key="x")
    arguments = {"RoleArn": "arn:aws:iam::1:role/some-role", "RoleSessionName": "session"}
    with pytest.raises(ClientError) as error:
        sts.assume_role_with_web_identity(WebIdentityToken="nope", **arguments)
    assert code(error) == "InvalidIdentityToken"
    answer = sts.assume_role_with_web_identity(WebIdentityToken="the+token", **arguments)
    assert 50 < answer["Credentials"]["Expiration"].timestamp() - time.time() <= 61
    works(one, answer["Credentials"], "SessionToken")


def test_instance_metadata_gives_keys_to_who_has_a_token(server):
    one = server("--synthetic", SPEC, "--imds", "node-role")
    roles = one.url + "/latest/meta-data/iam/security-credentials/"
    assert fetch(roles)[0] == 401
    assert fetch(one.url + "/latest/api/token", "PUT")[0] == 400

    def header_for(seconds):
        got, token = fetch(one.url + "/latest/api/token", "PUT",
                           {"X-aws-ec2-metadata-token-ttl-seconds": seconds})
        assert got == 200
        return {"X-aws-ec2-metadata-token": token}

    header = header_for("600")
    assert fetch(roles, headers=header) == (200, "node-role")
    assert fetch(roles + "other", headers=header)[0] == 404
    works(one, json.loads(fetch(roles + "node-role", headers=header)[1]), "Token")
    assert fetch(roles, headers={k: v + "1" for k, v in header.items()})[0] == 401
    header = header_for("1")
    time.sleep(2.1)
    assert fetch(roles, headers=header)[0] == 401


def test_container_metadata_gives_keys_to_who_knows_the_word(server):
    one = server("--synthetic", SPEC, "--container-token", "open sesame")
    assert fetch(one.url + "/credentials")[0] == 401
    answer = fetch(one.url + "/credentials", headers={"Authorization": "open sesame"})[1]
    works(one, json.loads(answer), "Token")


def test_issue_credentials_prints_what_credential_process_reads(server):
    one = server("--synthetic", SPEC)
    out = subprocess.run([s3d.PROGRAM, "issue-credentials", one.url], check=True,
                         stdout=subprocess.PIPE, timeout=20).stdout
    answer = json.loads(out)
    assert answer["Version"] == 1
    works(one, answer, "SessionToken")


def test_issued_keys_expire_by_themselves(server):
    one = server("--synthetic", SPEC, "--session-lifetime", "1")
    answer = json.loads(one.admin("POST", "issue-credentials"))
    client = one.client(answer["AccessKeyId"], answer["SecretAccessKey"],
                        token=answer["SessionToken"])
    client.head_bucket(Bucket="bench")
    time.sleep(2.1)
    assert code(refused(client)) == "ExpiredToken"


def test_services_that_are_not_asked_for_are_not_there(server):
    one = server("--synthetic", SPEC)
    assert fetch(one.url + "/latest/api/token", "PUT",
                 {"X-aws-ec2-metadata-token-ttl-seconds": "60"})[0] == 403
    assert fetch(one.url + "/credentials")[0] == 403


# --- addressing and TLS ---


def test_a_bucket_is_found_by_host_name_too(server, monkeypatch):
    one = server("--synthetic", SPEC, "--domain", "s3.localhost", "--anonymous")
    for host, path in ((f"bench.s3.localhost:{one.port}", "/a0/f00"),
                       (f"s3.localhost:{one.port}", "/bench/a0/f00"),
                       ("127.0.0.1", "/bench/a0/f00")):
        assert fetch(one.url + path, headers={"Host": host})[0] == 200
    # signed, too; whatever the name is here, it means this machine
    find = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo",
                        lambda host, *args, **kwargs: find("127.0.0.1", *args, **kwargs))
    one.url = f"http://s3.localhost:{one.port}"
    client = one.client(s3={"addressing_style": "virtual"})
    assert client.get_object(Bucket="bench", Key="a0/f00")["ContentLength"] == 10


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    top = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", top / "key.pem", "-out", top / "cert.pem"], check=True,
                   stderr=subprocess.DEVNULL)
    return top


@pytest.mark.parametrize("size", [0, 1, 100_000, 40_000_000])
def test_tls_carries_bodies_both_ways(server, certificate, tmp_path, size):
    one = server("--data", tmp_path, "--tls-cert", certificate / "cert.pem",
                 "--tls-key", certificate / "key.pem", "--synthetic", f"bench: f {size}")
    assert one.url.startswith("https://")
    body = os.urandom(size)
    subprocess.run(["curl", "-sSf", "--cacert", certificate / "cert.pem", "--aws-sigv4",
                    "aws:amz:us-east-1:s3", "--user", "os2g:os2g-secret", "-X", "PUT",
                    "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", one.url + "/new"], check=True)
    (tmp_path / "body").write_bytes(body)
    for command in (["-T", tmp_path / "body", one.url + "/new/k"],
                    ["-o", tmp_path / "got", one.url + "/new/k"],
                    ["-o", tmp_path / "synthetic", one.url + "/bench/f"]):
        subprocess.run(["curl", "-sSf", "--cacert", certificate / "cert.pem", "--aws-sigv4",
                        "aws:amz:us-east-1:s3", "--user", "os2g:os2g-secret",
                        "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", *command], check=True)
    assert (tmp_path / "new" / "k").read_bytes() == body
    if size:
        assert (tmp_path / "got").read_bytes() == body
        assert (tmp_path / "synthetic").read_bytes() == synthetic.expected("bench", "f", 0, size)
