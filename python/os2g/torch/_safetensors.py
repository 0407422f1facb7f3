# SPDX-License-Identifier: Apache-2.0
"""load_file: the tensors of a safetensors object, in the memory that they are wanted in."""

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import torch

import os2g

from ._region import Regions
from ._source import client_of, client_options, named, place_of

# Format: https://huggingface.co/docs/safetensors, "Format": 8 bytes length of the header (little
# endian), the header (JSON), then all tensors' bytes, without gaps.
_LENGTH = 8
_HEADER_MAX = 100_000_000  # the format's own limit
_PIECE = 8 << 20

# What torch has no type for is refused by name.
_DTYPES = {
    name: getattr(torch, attribute)
    for name, attribute in {
        "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16",
        "U32": "uint32", "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16",
        "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
        "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    }.items()
    if hasattr(torch, attribute)
}


class _Tensor(NamedTuple):
    name: str
    dtype: torch.dtype
    shape: Tuple[int, ...]
    begin: int
    end: int


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _parse_one(name: str, entry: Any) -> _Tensor:
    if not isinstance(entry, dict) or {"dtype", "shape", "data_offsets"} - entry.keys():
        raise ValueError(f"tensor {name!r} lacks dtype, shape or data_offsets")
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
        raise ValueError(f"tensor {name!r} is of type {entry['dtype']!r}, which this torch lacks")
    dtype = _DTYPES[entry["dtype"]]
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not isinstance(shape, list) or not all(map(_is_count, shape)):
        raise ValueError(f"tensor {name!r} has shape {shape!r}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise ValueError(f"tensor {name!r} has offsets {offsets!r}")
    size = torch.empty(0, dtype=dtype).element_size()
    for extent in shape:
        size *= extent
    if offsets[1] - offsets[0] != size:
        raise ValueError(f"tensor {name!r} has {size} bytes, its offsets are {offsets}")
    return _Tensor(name, dtype, tuple(shape), *offsets)


def _once(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name comes twice")
    return result


def parse_header(header: bytes, size: int) -> List[_Tensor]:
    """The tensors, in the header's order; size: of all of them in the object. ValueError."""
    try:
        entries = json.loads(header.decode(), object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("the header is nested too deeply") from None
    if not isinstance(entries, dict):
        raise ValueError("the header is no JSON object")
    tensors = [_parse_one(name, entry) for name, entry in entries.items() if name != "__metadata__"]
    at = 0
    for tensor in sorted(tensors, key=lambda t: (t.begin, t.end)):
        if tensor.begin != at:
            raise ValueError(f"tensor {tensor.name!r} begins at {tensor.begin}, not at {at}")
        at = tensor.end
    if at != size:
        raise ValueError(f"the tensors have {at} bytes, the object {size}")
    return tensors


def _read_header(file: os2g.File) -> Tuple[List[_Tensor], int]:
    """The tensors, and where they begin."""
    # most headers come with the length
    first = file.pread(1 << 16, 0)
    length = int.from_bytes(first[:_LENGTH], "little")
    if len(first) < _LENGTH or length > _HEADER_MAX or _LENGTH + length > file.size:
        raise ValueError(f"no safetensors header in {file.size} bytes")
    header = first[_LENGTH : _LENGTH + length]
    while len(header) < length:
        more = file.pread(length - len(header), _LENGTH + len(header))
        if not more:
            raise ValueError("the header ends too early")
        header += more
    return parse_header(header, file.size - _LENGTH - length), _LENGTH + length


def _view(data: torch.Tensor, tensor: _Tensor) -> torch.Tensor:
    part = data[tensor.begin : tensor.end]
    if tensor.begin % torch.empty(0, dtype=tensor.dtype).element_size():
        part = part.clone()  # not aligned in the object: moved
    return part.view(tensor.dtype).view(tensor.shape)


def load_file(
    uri: str,
    device: Union[str, torch.device] = "cpu",
    *,
    region: Optional[str] = None,
    endpoint: Optional[str] = None,
    **options: object,
) -> Dict[str, torch.Tensor]:
    """The tensors of a safetensors object, by name. They share one region, which their bytes have
    landed in, and are freed with the last of them. device: "cpu", or a CUDA device.

    OSError with the key; ValueError, with the URI, for what is no (whole) safetensors object."""
    place, key = place_of(os.fspath(uri))
    client = client_of(place.where, client_options(region, endpoint, options))
    regions = Regions(client, _cuda_numbered(torch.device(device)), 0)
    with named(place.prefix + key), client.open(key) as file:
        try:
            tensors, begin = _read_header(file)
        except (ValueError, UnicodeDecodeError) as error:
            raise ValueError(f"{uri}: {error}") from None
        size = file.size - begin
        memory, view = regions.take(size)
        data = regions.tensor(view, max(size, 1))
        regions.close()
        pieces = [(file, begin + at, min(_PIECE, size - at), at) for at in range(0, size, _PIECE)]
        if pieces:
            with regions.context:
                fetched = client.read_many(pieces, memory.buffer)
            if list(fetched.sizes) != [piece[2] for piece in pieces]:
                raise ValueError(f"{uri}: the object ends too early")
    return {tensor.name: _view(data, tensor) for tensor in tensors}


def _cuda_numbered(device: torch.device) -> torch.device:
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
