# SPDX-License-Identifier: Apache-2.0
"""Objects of a bucket, landed in this process's memory, host's or GPU's, by an os2gd that does the
talking to the store.

    import os2g

    with os2g.Client("s3://bucket/train/") as client:
        data = client.fetch("img/0001.jpg")                  # bytes
        batch = client.fetch_many(keys)                      # one region; batch[i] is a memoryview

Any object may be used by any thread at any time; calls that wait release the GIL, and end at once
with KeyboardInterrupt on Ctrl-C. After fork() the child goes on using clients, files and host
buffers; a client pickles as its arguments. Failures are OSError, of the right subclass, with the
key or path as filename.
"""

from os2g import _core
from os2g._buffer import Buffer, DeviceView
from os2g._client import Client, Entry, Event, Stat, Stats
from os2g._fetch import Fetched, Landed
from os2g._file import File
from os2g._plan import Plan, PlanStatus
from os2g._stalls import StalledObject, StallEpoch, Stalls, StallSums

__version__ = _core.version
__all__ = [
    "Buffer",
    "Client",
    "DeviceView",
    "Entry",
    "Event",
    "Fetched",
    "File",
    "Landed",
    "Plan",
    "PlanStatus",
    "StallEpoch",
    "StallSums",
    "StalledObject",
    "Stalls",
    "Stat",
    "Stats",
]
