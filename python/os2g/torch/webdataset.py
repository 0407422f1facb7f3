# SPDX-License-Identifier: Apache-2.0
"""WebDataset's shards, read through os2g.

    import webdataset
    import os2g.torch.webdataset

    os2g.torch.webdataset.register(region="eu-west-1")
    dataset = webdataset.WebDataset("s3://bucket/train-{000000..000146}.tar")
"""

import importlib
import io
import os
from typing import Any, Iterable, Optional

from ._source import client_of, client_options, named, place_of

# A shard is read in order from its beginning: the daemon reads ahead of it, up to 64 MiB.
_PIECE = 1 << 20


class Opener:
    """A handler for webdataset.gopen.gopen_schemes."""

    def __init__(self, *, region: Optional[str] = None, endpoint: Optional[str] = None,
                 **options: object) -> None:
        self._options = client_options(region, endpoint, options)

    def __call__(self, url: str, mode: str = "rb", bufsize: int = 0, **kwargs: Any) -> io.BufferedReader:
        if mode not in ("rb", "r"):
            raise ValueError(f"{url}: opened for {mode!r}, objects are only read")
        place, key = place_of(os.fspath(url))
        client = client_of(place.where, self._options)
        with named(place.prefix + key):
            return io.BufferedReader(client.open(key), max(bufsize, _PIECE))


def register(schemes: Iterable[str] = ("s3", "os2g"), *, region: Optional[str] = None,
             endpoint: Optional[str] = None, **options: object) -> None:
    """From now on webdataset opens URLs of these schemes through os2g. options: of os2g.Client."""
    # webdataset.gopen, the attribute, is a function
    gopen = importlib.import_module("webdataset.gopen")
    opener = Opener(region=region, endpoint=endpoint, **options)
    for scheme in schemes:
        gopen.gopen_schemes[scheme] = opener
