# SPDX-License-Identifier: Apache-2.0
"""os2g.torch: data sets, readers and PlanSampler."""

import collections
import io
import os

import pytest

torch = pytest.importorskip("torch", reason="no torch (Debian: python3-torch)")

from torch.utils.data import (BatchSampler, DataLoader, RandomSampler, SequentialSampler,  # noqa: E402
                              Subset)

import mounts  # noqa: E402
import os2g.torch as ot  # noqa: E402
from torching import BIG, SPEC, expected, gets, load, place, right  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def store(server):
    return server("--synthetic", SPEC)


def images(store, **options):
    return ot.MapDataset.from_prefix("s3://train/img/", transform=load, **place(store), **options)


def plain(batch):
    return batch


# --- data sets ---

def test_a_prefix_is_listed_and_every_byte_is_right(store):
    data = images(store)
    assert len(data) == 75
    assert list(data.keys[:2]) == ["img/n0/000", "img/n0/001"]
    assert [key for key, _ in (data[i] for i in range(75))] == list(data.keys)
    assert all(right(*data[i]) for i in range(75))
    assert data[-1][0] == data.keys[74]
    with pytest.raises(IndexError):
        data[75]


def test_a_prefix_may_end_within_a_name(store):
    data = ot.MapDataset.from_prefix("s3://train/img/n1/01", **place(store))
    assert list(data.keys) == [f"img/n1/01{i}" for i in range(10)]
    assert (data[0].bucket, data[0].key) == ("train", "img/n1/010")


def test_objects_are_in_the_order_they_are_named_in(store):
    keys = ["img/n2/003", "fix/001", "img/n0/007", "fix/001"]
    data = ot.MapDataset.from_objects([f"s3://train/{key}" for key in keys], transform=load,
                                      **place(store))
    assert [data[i][0] for i in range(4)] == keys
    assert all(right(*data[i]) and data[i][1] for i in range(4))


@pytest.mark.parametrize("uris", [["s3://a/x", "s3://b/x"], [], ["http://a/b"], ["s3://"]])
def test_objects_that_cannot_be_one_data_set_are_refused(uris):
    with pytest.raises(ValueError):
        ot.MapDataset.from_objects(uris)


def test_a_batch_is_fetched_at_once(store):
    data = images(store)
    wanted = [3, 70, 3, -1, 41]
    store.latency("200ms")
    got = data.__getitems__(wanted)
    assert [key for key, _ in got] == [data.keys[i] for i in wanted]
    assert all(right(*item) for item in got)
    # four objects: one after the other they would have been in flight one at a time
    assert store.counters()["peak_in_flight"] >= 4


def test_an_object_that_is_missing_or_broken_raises_with_its_key(store):
    uris = [f"s3://train/img/{name}" for name in ("n0/001", "gone", "n0/002")]
    data = ot.MapDataset.from_objects(uris, transform=load, **place(store, retry_timeout="1s"))
    with pytest.raises(FileNotFoundError) as raised:
        data[1]
    assert raised.value.filename == "img/gone"
    with pytest.raises(FileNotFoundError) as raised:
        data.__getitems__([0, 1])
    assert raised.value.filename == "img/gone"
    store.faults("GET train/img/n0/002 always close 50%")
    with pytest.raises(OSError) as raised:
        data[2]
    assert raised.value.filename == "img/n0/002"


def test_workers_of_a_loader_read_after_their_parent_has(store):
    data = images(store)
    assert right(*data[0])
    got = [item for batch in DataLoader(data, 10, num_workers=2, collate_fn=plain) for item in batch]
    assert sorted(key for key, _ in got) == list(data.keys)
    assert all(right(*item) for item in got)
    assert right(*data[1])


@pytest.mark.parametrize("sharding, times", [(False, 3), (True, 1)])
def test_workers_share_an_iterable_data_set_if_it_is_sharded(store, sharding, times):
    data = ot.IterableDataset.from_prefix("s3://train/fix/", transform=load, enable_sharding=sharding,
                                          **place(store))
    got = list(DataLoader(data, None, num_workers=3))
    assert all(right(*item) for item in got)
    assert collections.Counter(key for key, _ in got) == {f"fix/{i:03d}": times for i in range(37)}


def test_an_iterable_data_set_is_fetched_ahead_in_its_order(store):
    data = ot.IterableDataset.from_objects([f"s3://train/fix/{i:03d}" for i in (9, 3, 7)],
                                           transform=load, **place(store))
    items = iter(data)
    assert next(items)[0] == "fix/009"
    mounts.wait_until(lambda: gets(store) == 3)
    assert [key for key, _ in items] == ["fix/003", "fix/007"]
    assert gets(store) == 3


def test_an_iterable_data_set_without_a_window_fetches_what_is_read(store):
    data = ot.IterableDataset.from_prefix("s3://train/fix/", window=None, **place(store))
    readers = list(data)
    assert [reader.key for reader in readers] == [f"fix/{i:03d}" for i in range(37)]
    assert gets(store) == 0
    assert right(readers[5].key, readers[5].read()) and gets(store) == 1


# --- readers ---

def test_a_reader_is_a_file_of_a_small_object(store):
    reader = ot.MapDataset.from_prefix("s3://train/img/n0/", **place(store))[4]
    size = reader.seek(0, io.SEEK_END)
    good = expected("img/n0/004", size)
    reader.seek(10)
    assert reader.read(16) == good[10:26] and reader.tell() == 26
    reader.seek(-5, io.SEEK_CUR)
    assert reader.read() == good[21:] and reader.read() == b"" and reader.read(3) == b""
    reader.seek(0)
    room = bytearray(7)
    assert reader.readinto(room) == 7 and room == good[:7]
    assert gets(store) == 1
    with reader:
        pass
    with pytest.raises(ValueError):
        reader.read()


def test_a_reader_lands_a_whole_object_where_it_is_wanted(store):
    data = ot.MapDataset.from_prefix("s3://train/fix/", **place(store))
    into = torch.zeros(5000, dtype=torch.uint8)
    reader = data[0]
    assert reader.readinto(into.numpy()) == 4096
    assert bytes(into[:4096].numpy()) == expected("fix/000", 4096)
    assert not into[4096:].any() and reader.read() == b""
    assert gets(store) == 1


@pytest.mark.parametrize("known", [True, False])
def test_a_reader_reads_of_a_large_object_what_is_asked(store, known):
    make = ot.MapDataset.from_prefix if known else ot.MapDataset.from_objects
    reader = make("s3://train/big", **place(store))[0]
    assert reader.seek(-3, io.SEEK_END) == BIG - 3
    assert reader.read() == expected("big", BIG)[-3:]
    reader.seek(9 << 20)
    assert reader.read(100) == expected("big", BIG)[9 << 20:(9 << 20) + 100]
    reader.seek(0)
    assert reader.read() == expected("big", BIG)


def test_an_empty_object_is_read_as_empty(store):
    data = ot.MapDataset.from_prefix("s3://train/empty", **place(store))
    assert data[0].read() == b"" and data[0].read(5) == b"" and data[0].readinto(bytearray(3)) == 0
    assert data.__getitems__([0])[0].read() == b""


# --- PlanSampler ---

@pytest.mark.parametrize("workers", [0, 3])
def test_a_declared_order_is_fetched_once_by_whatever_reads_it(store, workers):
    data = images(store)
    sampler = ot.PlanSampler(RandomSampler(data, generator=torch.Generator().manual_seed(3)), data)
    again = list(RandomSampler(data, generator=torch.Generator().manual_seed(3)))
    got = [item for batch in DataLoader(data, 8, sampler=sampler, num_workers=workers,
                                        collate_fn=plain) for item in batch]
    assert [key for key, _ in got] == [data.keys[i] for i in again]
    assert all(right(*item) for item in got)
    assert gets(store) == 75
    assert len(sampler) == 75
    sampler.close()


def test_an_order_of_batches_is_declared_too(store):
    data = images(store)
    batches = ot.PlanSampler(BatchSampler(SequentialSampler(data), 10, False), data)
    got = [item for batch in DataLoader(data, batch_sampler=batches, collate_fn=plain)
           for item in batch]
    assert [key for key, _ in got] == list(data.keys) and all(right(*item) for item in got)
    assert gets(store) == 75 and len(batches) == 8


def test_objects_are_there_before_they_are_asked_for(store):
    data = Subset(images(store), range(10, 40))
    order = iter(ot.PlanSampler(SequentialSampler(data), data))
    assert next(order) == 0
    mounts.wait_until(lambda: gets(store) == 30)
    assert all(right(*data[i]) for i in range(30))
    assert gets(store) == 30


def test_an_order_resumed_is_declared_from_there_on(store):
    data = images(store)
    first = ot.PlanSampler(SequentialSampler(data), data)
    given = iter(first)
    seen = [next(given) for _ in range(60)]
    state = first.state_dict()
    first.close()
    mounts.wait_until(lambda: store.counters()["in_flight"] == 0)
    store.reset()
    second = ot.PlanSampler(SequentialSampler(data), data)
    second.load_state_dict(state)
    rest = list(second)
    assert seen + rest == list(range(75))
    assert list(second) == list(range(75))


def test_an_endless_sampler_is_declared_in_pieces(store, monkeypatch):
    monkeypatch.setattr("os2g.torch._sampler._AHEAD", 4)
    data = images(store)

    def forever():
        while True:
            yield from range(75)

    order = iter(ot.PlanSampler(forever(), data))
    assert [next(order) for _ in range(80)] == [*range(75), *range(5)]
    order.close()


def test_what_has_no_objects_cannot_be_declared():
    with pytest.raises(TypeError):
        ot.PlanSampler(range(3), object())


@pytest.fixture
def mount(store, tmp_path):
    """Mounts the bucket at tmp_path/mnt: mount(option=...)."""
    running = []

    def start(**options):
        (tmp_path / "mnt").mkdir()
        running.append(mounts.Mount(tmp_path / "mnt", "train", server=store, **options))
        return running[-1]

    yield start
    for one in running:
        one.close()


def read_as_declared(store, mounted, paths):
    """All of 75 images, each right, and found there because of the plan."""
    store.reset()
    sampler = ot.PlanSampler(RandomSampler(paths), paths)
    for i in sampler:
        with open(paths[i], "rb") as file:
            assert right(os.path.relpath(os.path.realpath(paths[i]), mounted.path), file.read())
    assert gets(store) == 75
    assert mounted.status()["fs"]["plan_used"] == 75
    sampler.close()


def image_paths(*tops):
    return [f"{tops[i % len(tops)]}n{i}/{j:03d}" for i in range(3) for j in range(25)]


def test_files_of_a_mount_are_declared_by_their_paths(store, mount):
    m = mount()
    # other ways to say the same
    read_as_declared(store, m, image_paths(f"{m.path}/img/", f"{m.path}//img/",
                                           f"{m.path}/img/../img/"))


def test_the_socket_of_a_mount_may_be_elsewhere(store, mount, tmp_path):
    m = mount(socket=tmp_path / "its.sock")
    read_as_declared(store, m, image_paths(f"{m.path}/img/"))


def test_links_lead_into_a_mount(store, mount, tmp_path):
    m = mount()
    (tmp_path / "data").symlink_to(m.path)
    read_as_declared(store, m, image_paths(f"{tmp_path}/data/img/"))


def test_a_directory_of_links_into_a_mount_is_declared_as_what_they_lead_to(store, mount, tmp_path):
    m = mount()
    links = tmp_path / "links"
    links.mkdir()
    for name, to in (("n0", "n0"), ("n1", "n2"), ("n2", "n1")):
        (links / name).symlink_to(m.path / "img" / to)
    read_as_declared(store, m, image_paths(f"{links}/"))


def test_where_no_daemon_takes_a_plan_everything_is_read_without(mount):
    paths = image_paths(f"{mount(socket='none').path}/img/")
    with pytest.warns(RuntimeWarning, match="no plan"):
        assert list(ot.PlanSampler(SequentialSampler(paths), paths)) == list(range(75))


def test_two_passes_at_a_time_are_given_all_of_it(store):
    data = images(store)
    loader = DataLoader(data, 8, sampler=ot.PlanSampler(SequentialSampler(data), data),
                        collate_fn=plain)
    got = [item for pair in zip(loader, loader) for batch in pair for item in batch]
    assert len(got) == 150 and all(right(*item) for item in got)


def test_no_paths_are_refused():
    with pytest.raises(ValueError, match="no paths"):
        ot.PlanSampler(range(0), [])


# --- data sets of a mount ---

def test_a_directory_of_a_mount_is_what_is_below_it(mount, tmp_path):
    top = mount().path
    (tmp_path / "link").symlink_to(top / "img")
    wanted = [f"img/n1/{i:03d}" for i in range(25)]
    for uri in (f"{top}/img/n1", f"{top}/img/n1/", f"{tmp_path}/link/n1"):
        data = ot.MapDataset.from_prefix(uri, transform=load)
        assert list(data.keys) == wanted
        assert right(*data[3])
    data = ot.MapDataset.from_prefix(f"{top}/img/n1/00")
    assert list(data.keys) == wanted[:10]
    assert len(ot.MapDataset.from_prefix(top)) == len(ot.MapDataset.from_prefix(f"{top}/"))
    with pytest.raises(FileNotFoundError):
        len(ot.MapDataset.from_prefix(f"{top}/nothing/"))


def test_paths_in_a_mount_are_those_objects(mount, monkeypatch):
    top = mount().path
    data = ot.MapDataset.from_objects([f"{top}/img/n0/000", f"{top}/img/n2/001"], transform=load)
    assert list(data.keys) == ["img/n0/000", "img/n2/001"]
    assert all(right(*data[i]) for i in range(2))
    monkeypatch.chdir(top / "img")
    data = ot.MapDataset.from_objects(["n0/000"], transform=load)
    assert list(data.keys) == ["img/n0/000"] and right(*data[0])
    monkeypatch.chdir("/")
    with pytest.raises(ValueError, match="not in one mount of os2g: /etc, "):
        ot.MapDataset.from_objects([f"{top}/img/n0/000", "/etc/passwd"])


def test_paths_in_no_mount_are_named_with_what_to_do(tmp_path, monkeypatch):
    outside = tmp_path / "outside"
    (tmp_path / "elsewhere").mkdir()
    outside.symlink_to(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    told = f"{outside} is neither the socket .* mount the bucket"
    for uri in (f"{outside}/", outside, "outside/"):
        with pytest.raises(FileNotFoundError, match=told):
            len(ot.MapDataset.from_prefix(uri))
    with pytest.raises(FileNotFoundError, match=told):
        ot.MapDataset.from_objects([outside / "a", outside / "b"], transform=load)[0]
    paths = [f"{outside}/{name}" for name in "abc"]
    with pytest.warns(RuntimeWarning, match=told):
        assert list(ot.PlanSampler(SequentialSampler(paths), paths)) == [0, 1, 2]


def test_a_data_set_asks_whom_the_environment_names_when_it_begins(store, monkeypatch):
    data = images(store)
    assert right(*data[0])
    monkeypatch.setenv("OS2G_SOCKET", "/nowhere")
    assert right(*data[1])
    with pytest.raises(FileNotFoundError, match="/nowhere"):
        len(images(store))


# --- what was listed is not so any more ---

@pytest.fixture
def box(server):
    """A bucket, and what puts objects into it."""
    s = server("--bucket", "box")
    client = s.client()
    s.put = lambda key, data: client.put_object(Bucket="box", Key=key, Body=data)
    s.delete = lambda key: client.delete_object(Bucket="box", Key=key)
    return s


def listed(box, prefix):
    data = ot.MapDataset.from_prefix(f"s3://box/{prefix}", **place(box))
    assert len(data)
    return data


def test_an_object_that_was_listed_as_empty_is_read_all_the_same(box):
    for key in ("w/filled", "w/gone", "w/empty"):
        box.put(key, b"")
    data = listed(box, "w/")
    assert list(data.keys) == ["w/empty", "w/filled", "w/gone"]
    box.put("w/filled", b"data")
    box.delete("w/gone")
    assert data[1].read() == b"data"
    assert data.__getitems__([1])[0].read() == b"data"
    room = bytearray(10)
    assert data[1].readinto(room) == 4 and room[:4] == b"data"
    assert data[0].read() == b"" and data[0].readinto(room) == 0
    with pytest.raises(FileNotFoundError) as caught:
        data[2].read()
    assert caught.value.filename == "w/gone"


def test_of_an_object_that_has_grown_all_is_read(box):
    box.put("g/a", b"o" * 100)
    data = listed(box, "g/")
    box.put("g/a", b"n" * 300)
    reader = data[0]
    assert reader.seek(150) == 150 and reader.read() == b"n" * 150
    reader = data[0]
    assert reader.seek(0, io.SEEK_END) == 300


def test_a_listing_that_is_found_to_be_old_tells_no_sizes_that_never_were(box):
    for turn in range(4):
        for i in range(12):
            box.put(f"r{turn}/{i:02}", b"o" * 1000)
        old = listed(box, f"r{turn}/")
        assert len(old.keys) == 12
        for i in range(12):
            box.put(f"r{turn}/{i:02}", b"n" * 50000)
        for batch in ot.DeviceLoader(old, 12, errors="return"):
            assert list(batch.sizes) == [50000] * 12
        again = listed(box, f"r{turn}/")
        # a listing may be as old as metadata may be, and tells no sizes that were never there
        assert {one.size for one in again._objects.listed} <= {1000, 50000}
        assert [len(again[i].read()) for i in range(12)] == [50000] * 12


def test_a_key_that_ends_with_a_slash_is_an_object_like_any_other(box):
    box.put("o/dir/", b"marker")
    box.put("o/dir/x", b"x")
    data = ot.MapDataset.from_objects(["s3://box/o/dir/", "s3://box/o/dir/x"], **place(box))
    assert list(data.keys) == ["o/dir/", "o/dir/x"]
    assert [data[i].read() for i in range(2)] == [b"marker", b"x"]
    batch, = ot.DeviceLoader(data, 2)
    assert [bytes(batch[i].numpy()) for i in range(2)] == [b"marker", b"x"]
    with pytest.raises(ValueError, match="names no object"):
        ot.MapDataset.from_objects(["s3://box/"])


def test_readers_of_a_batch_come_from_workers(store):
    """Whoever has no transform is given readers, with the bytes that were fetched."""
    data = ot.MapDataset.from_prefix("s3://train/fix/", **place(store))
    for reader in next(iter(DataLoader(data, batch_size=4, num_workers=1, collate_fn=list,
                                       timeout=30))):
        assert right(reader.key, reader.read())
