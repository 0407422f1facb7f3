# SPDX-License-Identifier: Apache-2.0
"""os2g.torch: safetensors, and WebDataset's shards."""

import io
import json
import sys
import tarfile
import types

import pytest

torch = pytest.importorskip("torch", reason="no torch (Debian: python3-torch)")

import mounts  # noqa: E402
import os2g.torch as ot  # noqa: E402
import os2g.torch.webdataset as shards  # noqa: E402
from os2g.torch._safetensors import _DTYPES, parse_header  # noqa: E402
from torching import gets, place  # noqa: E402


@pytest.fixture
def store(server):
    return server("--bucket", "box")


def put(store, key, data):
    store.client().put_object(Bucket="box", Key=key, Body=data)


def raw(tensor):
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


def encoded(tensors, pad=8, metadata=None):
    """As safetensors writes them: name -> (type's name, tensor)."""
    header, data = {"__metadata__": metadata or {"format": "pt"}}, b""
    for name, (dtype, tensor) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw(tensor))]}
        data += raw(tensor)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % pad)
    return len(text).to_bytes(8, "little") + text + data


def random(dtype, *shape):
    size = torch.empty(0, dtype=dtype).element_size()
    n = torch.Size(shape).numel()
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, dtype=torch.uint8).bool()
    return torch.randint(0, 256, (max(n * size, 0),), dtype=torch.uint8).view(dtype).view(shape)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and raw(a) == raw(b)


def test_tensors_of_every_type_come_as_they_are(store):
    tensors = {f"layer.{name}": (name, random(dtype, 3, 16)) for name, dtype in _DTYPES.items()}
    tensors["one"] = ("F32", random(torch.float32).view(()))
    tensors["none"] = ("F32", torch.zeros(0, 4))
    tensors["large"] = ("F16", random(torch.float16, 5, 1 << 20))
    put(store, "models/a.safetensors", encoded(tensors, metadata={"x": "y"}))
    got = ot.load_file("s3://box/models/a.safetensors", **place(store))
    assert list(got) == list(tensors)
    assert all(same(got[name], tensor) for name, (_, tensor) in tensors.items())


def test_tensors_that_are_not_aligned_come_right_too(store):
    tensors = {"a": ("U8", random(torch.uint8, 3)), "b": ("F32", random(torch.float32, 5))}
    put(store, "odd", encoded(tensors, pad=1))
    got = ot.load_file("s3://box/odd", **place(store))
    assert all(same(got[name], tensor) for name, (_, tensor) in tensors.items())


def entry(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


BAD = {
    "no JSON": b"{",
    "no object": b"[]",
    "no UTF-8": b'{"\xff": 1}',
    "nested": b'{"a":' * 100000,
    "a name twice": b'{"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},'
                    b' "a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}',
    "no type": {"a": {"shape": [4], "data_offsets": [0, 4]}},
    "an unknown type": {"a": entry("F7")},
    "a type that is none": {"a": entry(["U8"])},
    "no shape": {"a": entry(shape=[-4])},
    "a fraction": {"a": entry(shape=[4.0])},
    "too long": {"a": entry(offsets=(0, 5))},
    "backwards": {"a": entry(offsets=(4, 0))},
    "huge": {"a": entry(shape=[1 << 62, 1 << 62])},
    "a gap": {"a": entry(shape=[3], offsets=(1, 4))},
    "an overlap": {"a": entry(), "b": entry(shape=[2], offsets=(2, 4))},
    "bytes left": {"a": entry(shape=[3], offsets=(0, 3))},
    "beyond the end": {"a": entry(shape=[5], offsets=(0, 5))},
}


@pytest.mark.parametrize("what", BAD)
def test_a_header_with_a_fault_is_refused(what):
    header = BAD[what] if isinstance(BAD[what], bytes) else json.dumps(BAD[what]).encode()
    with pytest.raises(ValueError):
        parse_header(header, 4)


def test_an_object_that_is_no_safetensors_is_named(store):
    for number, data in enumerate([b"", b"1234567", (9).to_bytes(8, "little") + b"{}",
                                   (1 << 63).to_bytes(8, "little") + b"{}",
                                   (2).to_bytes(8, "little") + b"{}x"]):
        put(store, f"dir/bad{number}", data)
        with pytest.raises(ValueError, match=f"s3://box/dir/bad{number}"):
            ot.load_file(f"s3://box/dir/bad{number}", **place(store))


def test_a_missing_safetensors_object_is_named(store):
    put(store, "dir/x", b"x")
    with pytest.raises(FileNotFoundError) as raised:
        ot.load_file("s3://box/dir/none", **place(store))
    assert raised.value.filename == "dir/none"


def test_a_path_in_a_mount_is_that_object_and_not_one_of_its_name_elsewhere(store, tmp_path):
    wanted = {"a": random(torch.float32, 8)}
    put(store, "model", encoded({"a": ("F32", random(torch.float32, 8))}))
    put(store, "run1/model", encoded({"a": ("F32", wanted["a"])}))
    mount = mounts.Mount(tmp_path, "box", server=store)
    try:
        assert same(ot.load_file(f"{tmp_path}/run1/model")["a"], wanted["a"])
    finally:
        mount.close()


# --- WebDataset ---

def shard(samples):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in samples.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def test_a_shard_is_a_stream_read_once(store):
    samples = {f"{i:04d}.bin": bytes([i]) * (90000 + i) for i in range(150)}
    data = shard(samples)
    put(store, "shards/0.tar", data)
    opened = shards.Opener(**place(store))("s3://box/shards/0.tar", mode="rb", bufsize=8192)
    with opened, tarfile.open(fileobj=opened, mode="r|") as tar:
        got = {member.name: tar.extractfile(member).read() for member in tar}
    assert got == samples
    # each byte once, and not by the samples
    counters = store.counters()
    assert counters["object_bytes_out"] == len(data) and gets(store) < 20
    with pytest.raises(ValueError):
        shards.Opener(**place(store))("s3://box/shards/0.tar", mode="wb")


def test_urls_are_opened_by_what_was_registered(store, monkeypatch):
    module = types.ModuleType("webdataset")
    gopen = types.ModuleType("webdataset.gopen")
    gopen.gopen_schemes = {}
    module.gopen = print  # a function there
    monkeypatch.setitem(sys.modules, "webdataset", module)
    monkeypatch.setitem(sys.modules, "webdataset.gopen", gopen)
    put(store, "a", b"12345")
    shards.register(**place(store))
    for url in ("s3://box/a", "os2g://box/a"):
        with gopen.gopen_schemes[url.split(":")[0]](url, "rb", 0) as stream:
            assert stream.read() == b"12345"


def test_webdataset_itself_reads_shards(store):
    webdataset = pytest.importorskip("webdataset", reason="no webdataset (PyPI)")
    put(store, "w/0.tar", shard({"a.txt": b"one", "b.txt": b"two"}))
    shards.register(**place(store))
    got = [sample["txt"] for sample in webdataset.WebDataset("s3://box/w/0.tar", shardshuffle=False)]
    assert got == [b"one", b"two"]
