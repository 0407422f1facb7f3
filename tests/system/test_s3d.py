# SPDX-License-Identifier: Apache-2.0
"""os2g-s3d itself: the core, with boto3 as the client."""

import pytest
from botocore.exceptions import ClientError

import synthetic

SPEC = "bench: big/one.bin 1T; small/%06d.bin 100K x 20000; a%d/f%02d 10 x 3 x 20"


def code(error):
    return error.value.response["Error"]["Code"]


def test_synthetic_bytes_are_the_documented_function(server):
    client = server("--synthetic", SPEC).client()
    for key, size in (("big/one.bin", 1 << 40), ("small/012345.bin", 102400)):
        for offset, length in ((0, 1), (5, 1000), (size - 7, 7), (max(0, size // 3), 70000)):
            answer = client.get_object(Bucket="bench", Key=key,
                                       Range=f"bytes={offset}-{offset + length - 1}")
            body = answer["Body"].read()
            length = min(length, size - offset)
            assert len(body) == length
            assert synthetic.first_wrong(body, "bench", key, offset) is None
            assert answer["ContentRange"] == f"bytes {offset}-{offset + length - 1}/{size}"
            assert answer["ETag"] == f'"{synthetic.etag("bench", key)}"'


def test_the_table_is_splitmix64():
    for i in (0, 1, 2, 1000, synthetic.P // 8 - 1):
        assert synthetic.table()[8 * i:8 * i + 8] == synthetic.table_word(i)


def test_a_listing_has_every_key_in_the_order_of_bytes(server):
    client = server("--synthetic", SPEC).client()
    keys = [o["Key"] for page in client.get_paginator("list_objects_v2").paginate(
        Bucket="bench", PaginationConfig={"PageSize": 777}) for o in page["Contents"]]
    assert len(keys) == 1 + 20000 + 60
    assert keys == sorted(keys)


def test_a_wrong_secret_is_refused(server):
    client = server("--synthetic", SPEC).client(secret="wrong")
    with pytest.raises(ClientError) as error:
        client.get_object(Bucket="bench", Key="a0/f00")
    assert code(error) == "SignatureDoesNotMatch"


def test_what_was_put_is_got(server, tmp_path):
    for options in (["--data", tmp_path], []):
        client = server(*options).client()
        client.create_bucket(Bucket="new")
        body = bytes(range(256)) * 5000
        put = client.put_object(Bucket="new", Key="a/b c", Body=body, Metadata={"x": "y"})
        answer = client.get_object(Bucket="new", Key="a/b c")
        assert answer["Body"].read() == body
        assert answer["ETag"] == put["ETag"]
        assert answer["Metadata"] == {"x": "y"}
