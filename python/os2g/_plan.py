# SPDX-License-Identifier: Apache-2.0
"""A declared order of reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, List, NamedTuple, Union

from os2g import _core
from os2g._fetch import several

if TYPE_CHECKING:
    from os2g._client import Client


class PlanStatus(NamedTuple):
    entries: int
    fetched: int  # ahead of their readers
    used: int
    dropped: int  # unread
    missing: int
    bytes: int  # of fetched


class Plan:
    """Made by Client.plan; ends with close(), and with the process. The plan of the parent of this
    process is the parent's."""

    def __init__(self, client: Client, connection: _core.Connection,
                 keys: Iterable[Union[str, bytes]], window: int) -> None:
        self._client, self._connection, self._window = client, connection, window
        self._parts: List[_core.Plan] = [_core.Plan(connection, several(keys), window)]
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def extend(self, keys: Iterable[Union[str, bytes]]) -> None:
        """Further entries, behind those that there are: with a window of their own, so that the
        next epoch's first objects are there when this one ends."""
        self._check()
        self._parts.append(_core.Plan(self._connection, several(keys), self._window))

    def status(self) -> PlanStatus:
        """How far it is. A plan that was lost with the daemon is set again by this."""
        self._check()
        try:
            return PlanStatus(*map(sum, zip(*(part.status() for part in self._parts))))
        finally:
            self._client._notice()

    def close(self) -> None:
        self._closed = True
        while self._parts:
            self._parts.pop().close()

    def _check(self) -> None:
        if self._closed:
            raise ValueError("a plan that is closed")

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a plan does not pickle")
