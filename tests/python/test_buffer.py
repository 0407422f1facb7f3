# SPDX-License-Identifier: Apache-2.0
"""Memory that others see without a copy, for as long as they look."""

import ctypes
import errno
import gc
import mmap
import os
import sys
import weakref

import pytest

import synthetic

numpy = pytest.importorskip("numpy")


@pytest.fixture
def client(server, connect):
    return connect(server("--synthetic", "bench: a.bin 100000"))


def right(data):
    return bytes(data) == synthetic.expected("bench", "a.bin", 0, len(bytes(data)))


def address_of(view):
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def is_mapped(address):
    with open("/proc/self/maps", encoding="ascii") as maps:
        ranges = [[int(n, 16) for n in line.split()[0].split("-")] for line in maps]
    return any(low <= address < high for low, high in ranges)


def test_a_buffer_is_memory(client):
    buffer = client.buffer(100_001)
    assert (len(buffer), buffer.memory, buffer.device) == (100_001, "host", 0)
    assert buffer.address % (2 << 20) == 0 and not any(bytes(buffer))
    assert "100001" in repr(buffer) and not buffer.closed
    buffer[5:8] = b"abc"
    assert bytes(buffer.view(4, 5)) == b"\0abc\0" == bytes(buffer[4:9])
    for bad in ((100_000, 2), (-1, 1), (0, -1)):
        with pytest.raises(ValueError):
            buffer.view(*bad)
    with pytest.raises(ValueError):
        client.buffer(10, "tape")
    with pytest.raises(OSError):
        client.buffer(0)
    with pytest.raises(OSError):
        client.buffer(10, "bar")


def test_a_closed_buffer_is_no_memory(client):
    with client.buffer(1000) as buffer:
        address = buffer.address
    assert buffer.closed and not is_mapped(address)
    for call in (lambda: memoryview(buffer), lambda: buffer.view(), lambda: len(buffer),
                 lambda: client.fetch("a.bin", buffer), lambda: buffer.__dlpack__()):
        with pytest.raises(ValueError):
            call()
    buffer.close()


@pytest.mark.parametrize("look", ["memoryview", "frombuffer", "asarray", "dlpack", "interface"])
def test_a_view_is_no_copy_and_keeps_the_memory(client, look):
    buffer = client.buffer(100_000)
    address = buffer.address
    view = {"memoryview": memoryview, "asarray": numpy.asarray, "dlpack": numpy.from_dlpack,
            "frombuffer": lambda b: numpy.frombuffer(b, numpy.uint8),
            "interface": lambda b: numpy.array(Interface(b), copy=False)}[look](buffer)
    client.fetch("a.bin", buffer)
    assert right(view) and len(view) == 100_000
    if look != "memoryview":
        assert view.dtype == numpy.uint8 and view.ctypes.data == address
    buffer.close()
    assert right(view) and is_mapped(address)
    last = view[10:20]
    del view, buffer
    gc.collect()
    assert bytes(last) == synthetic.expected("bench", "a.bin", 10, 10)
    del last
    gc.collect()
    assert not is_mapped(address)


class Interface:
    """Only that."""

    def __init__(self, buffer):
        self.buffer, self.__array_interface__ = buffer, buffer.__array_interface__


def test_memory_outlives_its_client(server, connect):
    client = connect(server("--synthetic", "bench: a.bin 100000"))
    array = numpy.asarray(client.fetch_many(["a.bin"])[0])
    client.close()
    del client
    gc.collect()
    assert right(array)


def test_dlpack_is_as_its_specification_says(client):
    buffer = client.buffer(1000)
    assert buffer.__dlpack_device__() == (1, 0)
    assert '"dltensor"' in repr(buffer.__dlpack__())
    assert '"dltensor_versioned"' in repr(buffer.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(buffer.__dlpack__(max_version=(0, 8), stream=None, copy=False))
    for refused in ({"copy": True}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError):
            buffer.__dlpack__(**refused)
    # capsules that nobody has taken give it back
    address = buffer.address
    buffer.close()
    gc.collect()
    assert not is_mapped(address)


def test_torch_sees_it(client):
    torch = pytest.importorskip("torch")
    buffer = client.buffer(100_000)
    address = buffer.address
    tensors = [torch.from_dlpack(buffer), torch.frombuffer(buffer, dtype=torch.uint8),
               torch.frombuffer(buffer.view(), dtype=torch.uint8)]
    client.fetch("a.bin", buffer)
    for tensor in tensors:
        assert tensor.data_ptr() == address and right(tensor.numpy())
    buffer.close()
    assert right(tensors[0].numpy())
    tensors.clear()
    del tensor, buffer
    gc.collect()
    assert not is_mapped(address)


def test_memory_of_others_is_registered(client):
    fd = os.memfd_create("test")
    os.ftruncate(fd, 200_704)
    memory = mmap.mmap(fd, 200_704)
    buffer = client.register(memory, fd=fd)
    os.close(fd)
    before = client.stats().bounced_bytes
    client.fetch("a.bin", buffer, 5)
    assert right(memory[5:100_005]) and buffer.address == address_of(memory)
    assert len(buffer) == 200_704 and sys.getrefcount(memory) > 2
    with pytest.raises(BufferError):
        memory.close()
    assert client.stats().bounced_bytes in (before, before + 100_000)  # sealed or not
    buffer.close()
    memory.close()
    with pytest.raises(ValueError):
        client.register(bytearray(4096))


def test_more_pieces_than_the_daemon_takes_are_refused_with_what_to_do(client):
    buffers = []
    with pytest.raises(OSError, match="than the 128 that it has: free buffers") as error:
        while len(buffers) < 200:
            buffers.append(client.buffer(1))
    assert error.value.errno == errno.ENOSPC and len(buffers) > 100
    buffers.pop().close()
    assert len(client.buffer(1)) == 1


def test_a_buffer_can_be_referred_to_weakly(client):
    buffer = client.buffer(10)
    gone = []
    weakref.finalize(buffer, gone.append, 1)
    del buffer
    gc.collect()
    assert gone == [1]
