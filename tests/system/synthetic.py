# SPDX-License-Identifier: Apache-2.0
"""The bytes that synthetic objects of os2g-s3d must have; src/s3d/synthetic.h says why these."""

import functools
import hashlib
import subprocess

import s3d

P = 33554393  # bytes in the table, a prime


@functools.lru_cache(maxsize=None)
def table():
    data = subprocess.run([str(s3d.PROGRAM), "table"], check=True, stdout=subprocess.PIPE).stdout
    assert len(data) == P
    return data


def table_word(i):
    """The i-th 8 bytes of the table, computed here: splitmix64."""
    mask = (1 << 64) - 1
    z = (i + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return (z ^ z >> 31).to_bytes(8, "little")


def _digest(bucket, key, generation):
    key = key if isinstance(key, bytes) else key.encode()
    return hashlib.sha256(bucket.encode() + b"/" + key + b"\n%d" % generation).digest()


def etag(bucket, key, generation=0):
    return _digest(bucket, key, generation)[8:24].hex() + "-1"


def expected(bucket, key, offset, length, generation=0):
    """The bytes of bucket/key from offset on."""
    start = int.from_bytes(_digest(bucket, key, generation)[:8], "little") % P
    data, at = table(), (start + offset) % P
    pieces = []
    while length:
        n = min(length, P - at)
        pieces.append(data[at:at + n])
        length, at = length - n, 0
    return b"".join(pieces)


@functools.lru_cache(maxsize=None)
def digest(bucket, key, length, generation=0):
    """SHA-256 of the whole of bucket/key, in hexadecimal."""
    return hashlib.sha256(expected(bucket, key, 0, length, generation)).hexdigest()


def first_wrong(data, bucket, key, offset=0, generation=0):
    """The index of the first byte of data that is not right, or None."""
    good = expected(bucket, key, offset, len(data), generation)
    if data == good:
        return None
    return next(i for i, (a, b) in enumerate(zip(data, good)) if a != b)
