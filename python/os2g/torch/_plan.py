# SPDX-License-Identifier: Apache-2.0
"""An order of reading that has been declared to the daemon."""

import os
import time
import warnings
from typing import Callable, Iterable, Optional

import os2g

_LOOK = 5.0  # seconds; a daemon that was started anew learns of the plan by it


class Declared:
    """A plan for as long as this lives. It only makes reading faster: where there is no daemon to
    be had, or it takes no (more) plans, a warning says so and everything else goes on."""

    def __init__(self, client: Callable[[], os2g.Client], keys: Iterable[str], window: int = 0) -> None:
        self._pid = os.getpid()
        self._plan: Optional[os2g.Plan] = None
        self._looked = time.monotonic()
        try:
            self._plan = client().plan(keys, window)
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        warnings.warn(f"no plan, objects are fetched when they are read: {error}", RuntimeWarning,
                      stacklevel=4)

    def extend(self, keys: Iterable[str]) -> None:
        if self._plan is not None:
            try:
                self._plan.extend(keys)
            except OSError as error:
                self._warn(error)
                self.close()

    def keep(self) -> None:
        """To be called now and then."""
        now = time.monotonic()
        if self._plan is None or now - self._looked < _LOOK:
            return
        self._looked = now
        try:
            self._plan.status()
        except OSError as error:
            self._warn(error)
            self.close()

    def close(self) -> None:
        plan, self._plan = self._plan, None
        if plan is not None and os.getpid() == self._pid:  # a child's is its parent's
            plan.close()
