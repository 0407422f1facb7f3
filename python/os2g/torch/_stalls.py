# SPDX-License-Identifier: Apache-2.0
"""How long a loader kept its user waiting, and why."""

import time
from typing import Dict, List, NamedTuple, Optional

import os2g

DAEMON = "os2gd itself"
_ADVICE = ("The daemon was busy, or the way to it, with bytes that had come from the store: give it "
           "more CPU (threads), or look at what else runs there.")


class LoaderStalls(NamedTuple):
    """Of one pass; times are in seconds."""

    epoch: int  # the loader's
    under_way: bool
    batches: int
    seconds: float
    blocked: float  # somebody asked for a batch that was not there
    reader_itself: float  # between two batches: the step
    loader: float  # the rest: asking, checking, decode
    causes: Dict[str, float]  # of blocked; empty when the daemon does not tell
    leading: Optional[str]
    advice: Optional[str]
    objects: List[os2g.StalledObject]  # of the daemon's latest epoch with any


class Meter:
    """Of one pass. The daemon is asked when it begins and ends, and by report()."""

    def __init__(self, client: os2g.Client, epoch: int) -> None:
        self._client = client
        self._epoch = epoch
        self._before = self._ask()
        self._after: Optional[os2g.Stalls] = None
        self._begun = time.monotonic()
        self._left: Optional[float] = self._begun  # None: a batch is being asked for
        self._ended: Optional[float] = None
        self._outside = 0.0
        self.blocked = 0.0
        self.batches = 0

    def _ask(self) -> Optional[os2g.Stalls]:
        try:
            return self._client.stalls()
        except (OSError, ValueError, LookupError):  # or of another release, and says it otherwise
            return None

    def enter(self) -> None:
        """A batch is asked for."""
        if self._left is not None:
            self._outside += time.monotonic() - self._left
        self._left = None

    def leave(self) -> None:
        self._left = time.monotonic()

    def end(self, ask: bool = False) -> None:
        """ask: of what is broken off nobody waits for the daemon to tell why it was slow."""
        if self._ended is None:
            self._ended = time.monotonic()
            self._after = self._ask() if ask else None

    def _causes(self, now: Optional[os2g.Stalls]) -> Dict[str, float]:
        """blocked, put down to what fetches were waiting for at that time, this loader's and other
        ranks': as much of it as there were any waiting."""
        before = self._before
        if now is None or before is None:
            return {}
        if now.seconds < before.seconds:  # another worker, which counts from zero
            waited, causes = now.fetches.waited, dict(now.fetches.causes)
        else:
            waited = now.fetches.waited - before.fetches.waited
            causes = {name: value - before.fetches.causes.get(name, 0.0)
                      for name, value in now.fetches.causes.items()}
        summed = sum(causes.values())
        theirs = min(self.blocked, waited) if summed > 0 else 0.0
        shares = {name: theirs * value / summed if summed > 0 else 0.0
                  for name, value in causes.items()}
        return {**shares, DAEMON: self.blocked - theirs}

    def report(self) -> LoaderStalls:
        daemon = self._after if self._ended is not None else self._ask()
        now = time.monotonic() if self._ended is None else self._ended
        outside = self._outside + (max(0.0, now - self._left) if self._left is not None else 0.0)
        causes = self._causes(daemon)
        leading, advice = None, None
        objects: List[os2g.StalledObject] = []
        if daemon is not None and any(causes.values()):
            leading = max(causes, key=lambda name: causes[name])
            advice = _ADVICE if leading == DAEMON else daemon.advice.get(leading)
            objects = next((one.objects for one in reversed(daemon.epochs) if one.objects), [])
        return LoaderStalls(self._epoch, self._ended is None, self.batches, now - self._begun,
                            self.blocked, outside,
                            max(0.0, now - self._begun - self.blocked - outside), causes, leading,
                            advice, objects)
