# SPDX-License-Identifier: Apache-2.0
"""The daemon's stall report: how long readers waited, on which objects and why."""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Optional

PATH = ".os2g/stalls"


class StalledObject(NamedTuple):
    key: str  # below the export
    waited: float  # seconds
    waits: int
    cause: str  # of most of it


class StallSums(NamedTuple):
    waits: int
    waited: float  # seconds in which at least one was waiting
    summed: float  # seconds of all of them
    causes: Dict[str, float]  # of summed, by what would have to be changed
    waited_for: Dict[str, float]  # of summed, by what was waited for


class StallEpoch(NamedTuple):
    """From the declaration of a plan to its end, or the time between two (epoch None)."""

    epoch: Optional[int]  # counted by the daemon, from 1
    begun: int  # seconds since 1970
    under_way: bool
    plans: int
    seconds: float
    waited: float  # in which at least one read or fetch was waiting
    reader_itself: float  # in which none was
    causes: Dict[str, float]
    leading: Optional[str]  # of the causes
    advice: Optional[str]
    reads: StallSums
    fetches: StallSums
    objects: List[StalledObject]  # waited for longest


class Stalls(NamedTuple):
    under_way: int  # reads and fetches not answered at the moment
    seconds: float  # since the daemon's worker began
    reads: StallSums  # in that time
    fetches: StallSums
    epochs: List[StallEpoch]  # the last 16, the present one last
    advice: Dict[str, str]  # for each cause


def _taken(kind: Any, given: Dict[str, Any], **more: Any) -> Any:
    """What a daemon of a later release tells beside is left out."""
    return kind(**{name: given[name] for name in kind._fields if name not in more}, **more)


def _epoch(given: Dict[str, Any]) -> StallEpoch:
    epoch: StallEpoch = _taken(
        StallEpoch, given, reads=_taken(StallSums, given["reads"]),
        fetches=_taken(StallSums, given["fetches"]),
        objects=[_taken(StalledObject, one) for one in given["objects"]])
    return epoch


def parse(text: bytes) -> Stalls:
    given = json.loads(text)
    totals = given["totals"]
    return Stalls(given["under_way"], totals["seconds"], _taken(StallSums, totals["reads"]),
                  _taken(StallSums, totals["fetches"]), [_epoch(one) for one in given["epochs"]],
                  given["advice"])
