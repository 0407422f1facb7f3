# SPDX-License-Identifier: Apache-2.0
"""Buckets through fsspec, and what reads through it."""

import io
import pickle

import pytest

import mounts
import synthetic

fsspec = pytest.importorskip("fsspec")
from os2g.fsspec import OS2GFileSystem, register  # noqa: E402

MIB = 1 << 20


@pytest.fixture(autouse=True)
def registered():
    register()
    yield
    OS2GFileSystem.clear_instance_cache()


@pytest.fixture
def fs(server):
    s = server("--synthetic", f"bench: d/a.bin 5000; d/e/b.bin {MIB}; c.bin 10", "--bucket", "box")
    made = fsspec.filesystem("os2g", endpoint_url=s.url)
    made.server = s
    return made


def right(key, data, offset=0):
    return bytes(data) == synthetic.expected("bench", key, offset, len(data))


def test_names_are_as_everywhere_in_fsspec(fs):
    assert fs.ls("bench", detail=False) == ["bench/c.bin", "bench/d"]
    assert fs.ls("os2g://bench/d/", detail=False) == ["bench/d/a.bin", "bench/d/e"]
    assert fs.ls("bench/c.bin", detail=False) == ["bench/c.bin"]
    assert fs.find("bench") == ["bench/c.bin", "bench/d/a.bin", "bench/d/e/b.bin"]
    assert fs.find("bench/d/a.bin") == ["bench/d/a.bin"] and fs.find("bench/no") == []
    assert fs.glob("bench/d/*.bin") == ["bench/d/a.bin"]
    assert fs.glob("bench/**/b.bin") == ["bench/d/e/b.bin"]
    info = fs.info("bench/d/a.bin")
    assert (info["name"], info["size"], info["type"]) == ("bench/d/a.bin", 5000, "file")
    assert info["ETag"].strip('"') == synthetic.etag("bench", "d/a.bin")
    assert fs.info("bench/d")["type"] == "directory" and fs.isdir("bench") and fs.isdir("bench/d")
    assert fs.exists("bench/c.bin") and not fs.exists("bench/no") and fs.size("bench/c.bin") == 10
    assert fs.modified("bench/c.bin").tzinfo and fs.checksum("bench/c.bin")
    assert fs.du("bench") == 5000 + MIB + 10
    with pytest.raises(FileNotFoundError):
        fs.info("bench/no")


def test_contents_are_right(fs):
    assert right("d/a.bin", fs.cat("bench/d/a.bin")) and right("d/a.bin", fs.cat_file("bench/d/a.bin"))
    assert right("d/a.bin", fs.cat_file("bench/d/a.bin", 100, 200), 100)
    assert right("d/a.bin", fs.cat_file("bench/d/a.bin", -50), 4950)
    assert fs.cat_file("bench/d/a.bin", 6000, 7000) == b"" and right("c.bin", fs.head("bench/c.bin", 5))
    many = fs.cat(["bench/d/a.bin", "bench/c.bin"])
    assert sorted(many) == ["bench/c.bin", "bench/d/a.bin"] and right("c.bin", many["bench/c.bin"])
    below = fs.cat("bench/d", recursive=True)
    assert sorted(below) == ["bench/d/a.bin", "bench/d/e/b.bin"]
    assert right("d/e/b.bin", below["bench/d/e/b.bin"])
    with pytest.raises(FileNotFoundError):
        fs.cat(["bench/c.bin", "bench/no"])
    both = fs.cat(["bench/c.bin", "bench/no"], on_error="return")
    assert isinstance(both["bench/no"], FileNotFoundError) and len(both["bench/c.bin"]) == 10
    assert list(fs.cat(["bench/c.bin", "bench/no"], on_error="omit")) == ["bench/c.bin"]


def test_ranges_are_right(fs):
    paths = ["bench/d/a.bin", "bench/d/e/b.bin", "bench/d/a.bin", "bench/no"]
    got = fs.cat_ranges(paths, [5, 1000, 4990, 0], [10, 2000, None, 5])
    assert right("d/a.bin", got[0], 5) and right("d/e/b.bin", got[1], 1000)
    assert right("d/a.bin", got[2], 4990) and list(map(len, got[:3])) == [5, 1000, 10]
    assert isinstance(got[3], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, 0, 5, on_error="raise")
    with pytest.raises(ValueError):
        fs.cat_ranges(paths, [1], [2])


def test_files_are_read(fs, tmp_path):
    with fs.open("os2g://bench/d/e/b.bin") as file:
        assert right("d/e/b.bin", file.read(10)) and file.size == MIB
        file.seek(-10, io.SEEK_END)
        assert right("d/e/b.bin", file.read(), MIB - 10) and file.info()["type"] == "file"
        file.seek(500)
        into = bytearray(1000)
        assert file.readinto(into) == 1000 and right("d/e/b.bin", into, 500)
    with pytest.raises(OSError):
        fs.open("bench/new.bin", "wb")
    fs.get("bench/d", str(tmp_path / "d"), recursive=True)
    assert right("d/e/b.bin", (tmp_path / "d/e/b.bin").read_bytes())
    with fsspec.open("os2g://bench/c.bin", endpoint_url=fs.server.url) as file:
        assert right("c.bin", file.read())


def test_it_pickles(fs):
    other = pickle.loads(pickle.dumps(fs))
    assert right("c.bin", other.cat("bench/c.bin"))


def test_it_stands_in_for_s3fs(fs):
    register(s3=True)
    s3 = fsspec.filesystem("s3", client_kwargs={"endpoint_url": fs.server.url,
                                                "region_name": "us-east-1"})
    assert isinstance(s3, OS2GFileSystem) and right("c.bin", s3.cat("s3://bench/c.bin"))
    for wrong in ({"key": "a", "secret": "b"}, {"client_kwargs": {"verify": False}}):
        with pytest.raises(ValueError):
            fsspec.filesystem("s3", **wrong)
    with pytest.raises(OSError):
        s3.ls("")


def test_a_mount_is_a_file_system(server, tmp_path):
    s = server("--synthetic", "bench: d/a.bin 5000")
    mount = mounts.Mount(tmp_path, "bench", server=s)
    try:
        fs = fsspec.filesystem("os2g", where=str(tmp_path))
        assert fs.ls("", detail=False) == ["d"] and right("d/a.bin", fs.cat("os2g://d/a.bin"))
    finally:
        OS2GFileSystem.clear_instance_cache()
        del fs
        mount.close()


def test_pandas_reads_through_it(fs):
    pandas = pytest.importorskip("pandas")
    fs.server.client().put_object(Bucket="box", Key="t.csv", Body=b"a,b\n1,2\n3,4\n")
    table = pandas.read_csv("os2g://box/t.csv", storage_options={"endpoint_url": fs.server.url})
    assert table["b"].tolist() == [2, 4]


def test_pyarrow_reads_through_it(fs):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    data = io.BytesIO()
    parquet.write_table(pyarrow.table({"a": list(range(100_000))}), data)
    fs.server.client().put_object(Bucket="box", Key="t.parquet", Body=data.getvalue())
    assert parquet.read_table("box/t.parquet", filesystem=fs)["a"].to_pylist()[-1] == 99_999


def test_torch_loads_through_it(fs):
    torch = pytest.importorskip("torch")
    data = io.BytesIO()
    torch.save({"w": torch.arange(1000)}, data)
    fs.server.client().put_object(Bucket="box", Key="m.pt", Body=data.getvalue())
    with fs.open("box/m.pt") as file:
        assert torch.load(file)["w"].sum() == 499_500
