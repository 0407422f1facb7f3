# SPDX-License-Identifier: Apache-2.0
"""GPU memory; the CUDA driver is the test double, whose device memory the host can read."""

import pytest

import mounts
import s3d

DOUBLE = s3d.BUILD / "tests" / "double" / "libcuda-double.so"
PROGRAM = """
import ctypes, sys
sys.path.insert(0, sys.argv[3])
import os2g, synthetic

cuda = ctypes.CDLL(sys.argv[2])
device, context = ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0

def content(address, size):
    host = ctypes.create_string_buffer(size)
    assert cuda.cuMemcpyDtoH_v2(host, ctypes.c_uint64(address), ctypes.c_size_t(size)) == 0
    return host.raw

with os2g.Client("s3://bench", endpoint_url=sys.argv[1], event=print) as client:
    buffer = client.buffer(4 << 20, "cuda")
    assert (buffer.memory, buffer.device, len(buffer)) == ("cuda", 0, 4 << 20)
    assert buffer.__dlpack_device__() == (2, 0)
    keys = [f"{i}.bin" for i in range(8)]
    fetched = client.fetch_many(keys, buffer)
    for i, view in enumerate(fetched):
        assert isinstance(view, os2g.DeviceView) and len(view) == 100_000
        assert view.__cuda_array_interface__["data"] == (view.address, False)
        assert view.__cuda_array_interface__["shape"] == (100_000,)
        assert content(view.address, 100_000) == synthetic.expected("bench", keys[i], 0, 100_000)
        assert "dltensor" in repr(view.__dlpack__()) and view.__dlpack_device__() == (2, 0)
    view = client.fetch("3.bin", buffer, 999)
    assert view.address == buffer.address + 999 and view[10:20].address == view.address + 10
    assert content(view.address, 100_000) == synthetic.expected("bench", "3.bin", 0, 100_000)
    into = buffer.view(2 << 20)
    client.read_into(client.open("5.bin"), into, 7)
    assert content(into.address + 7, 100_000) == synthetic.expected("bench", "5.bin", 0, 100_000)
    for call in (lambda: memoryview(buffer), lambda: buffer.__dlpack__(dl_device=(1, 0))):
        try:
            call()
        except BufferError:
            continue
        raise AssertionError
    assert not hasattr(buffer, "__array_interface__")
    assert client.stats().cuda_bytes >= 1_000_000

    class Tensor:
        __cuda_array_interface__ = {"shape": (1000, 100), "typestr": "|u1", "version": 3,
                                    "data": (buffer.address + (1 << 20), False)}
    assert client.fetch("1.bin", Tensor()).address == buffer.address + (1 << 20)
    Tensor.__cuda_array_interface__["strides"] = (200, 1)
    try:
        client.fetch("1.bin", Tensor())
    except ValueError:
        print("done")
"""


def test_objects_land_in_gpu_memory(server, program, monkeypatch):
    # where the daemon's worker, another user when root runs the tests, can load it
    library = mounts._reachable(DOUBLE)
    monkeypatch.setenv("OS2G_CUDA_LIBRARY", str(library))
    s = server("--synthetic", "bench: %d.bin 100000 x 8")
    run = program(PROGRAM, s.url, library, s3d.ROOT / "tests" / "system")
    out, err = run.communicate(timeout=mounts.SECONDS)
    assert run.returncode == 0 and out.endswith("done\n"), err


def test_no_driver_is_an_error(server, connect, monkeypatch):
    monkeypatch.setenv("OS2G_CUDA_LIBRARY", "/nonexistent/libcuda.so")
    client = connect(server("--synthetic", "bench: a.bin 10"))
    with pytest.raises(OSError) as caught:
        client.buffer(4096, "cuda")
    assert caught.value.strerror
