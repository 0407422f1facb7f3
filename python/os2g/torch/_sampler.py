# SPDX-License-Identifier: Apache-2.0
"""PlanSampler: any sampler, whose order is declared to the daemon before it is read."""

import functools
import itertools
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch.utils.data

import os2g

from ._dataset import MapDataset
from ._plan import Declared
from ._source import client_of, in_mount, mount_of

# Indices that are drawn at a time: what an endless sampler is asked for ahead.
_AHEAD = 1 << 20

Named = Tuple[Callable[[], os2g.Client], Callable[[int], str]]


def _base_of(path: str) -> Tuple[str, str, str]:
    """(the mount that path is in, a directory as paths name it, its key prefix). Whatever the paths
    have below that directory, they have in the mount: links lead into a mount, and none is in it."""
    named = os.path.dirname(os.path.abspath(path))
    real = os.path.realpath(named)
    top = mount_of(real)
    if top is None:
        return named, os.path.join(named, ""), ""
    while real != top and os.path.realpath(os.path.dirname(named)) == os.path.dirname(real):
        named, real = os.path.dirname(named), os.path.dirname(real)
    return top, os.path.join(named, ""), in_mount(real)[1]


def _named_paths(paths: Sequence[Any]) -> Named:
    if not paths:
        raise ValueError("no paths")
    top, base, prefix = _base_of(os.fspath(paths[0]))

    @functools.lru_cache(maxsize=1 << 16)
    def prefix_of(directory: str) -> str:
        return in_mount(directory)[1]

    def key(index: int) -> str:
        path = os.fspath(paths[index])
        if path.startswith(base) and "/." not in path and "//" not in path:
            return prefix + path[len(base):]  # a million keys a second
        directory, name = os.path.split(path)
        return prefix_of(directory) + name

    return lambda: client_of(top, {}), key


def _named(data: Any) -> Named:
    """How to get a client, and its key of a sample."""
    if isinstance(data, MapDataset):
        objects = data._objects
        return lambda: objects.client, lambda index: objects.listed[index].key
    if isinstance(data, torch.utils.data.Subset):
        client, key = _named(data.dataset)
        chosen = data.indices
        return client, lambda index: key(chosen[index])
    if hasattr(data, "samples"):  # torchvision's folders of files: (path, class)
        return _named_paths([sample[0] for sample in data.samples])
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _named_paths(data)
    raise TypeError(f"{type(data).__name__} does not say which object is which sample")


def _flat(item: Any) -> Iterable[int]:
    return item if isinstance(item, (list, tuple)) else (item,)


class PlanSampler(torch.utils.data.Sampler):
    """Gives what sampler gives (indices, or lists of them for batch_sampler=), and declares it: the
    daemon fetches the objects in this order, ahead of whichever worker is going to read them.

        sampler = PlanSampler(DistributedSampler(dataset), dataset)
        loader = DataLoader(dataset, sampler=sampler, num_workers=8)

    data: a MapDataset; a data set with .samples as torchvision's folders have, or a list of paths,
    all in one mount of os2g's; a Subset of these. window: bytes to fetch ahead; 0: what readers turn
    out to need. Of many ranks each declares its own share."""

    def __init__(self, sampler: Iterable[Any], data: Any, *, window: int = 0) -> None:
        self.sampler = sampler
        self._client, self._key = _named(data)
        self._window = window
        self._skip = 0
        self._state: Any = None
        self._current: Optional["_Order"] = None

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        # the order before is over, mostly: its readers are done when the next one is asked for. Who
        # goes on with it nevertheless (zip(loader, loader)) does so without a plan
        self.close()
        self._state = self._inner_state()
        skip, self._skip = self._skip, 0
        self._current = _Order(self, iter(self.sampler), skip)
        return self._current

    def _inner_state(self) -> Any:
        state = getattr(self.sampler, "state_dict", None)
        return state() if state else None

    def close(self) -> None:
        """Ends the plan, as the next order and this object's end do."""
        if self._current is not None:
            self._current.close()

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)  # type: ignore[attr-defined]

    def state_dict(self) -> Dict[str, Any]:
        """Where the order is. The sampler's own state is that before it: it was drawn ahead of what
        has been given."""
        if self._current is None:
            return {"given": self._skip, "sampler": self._inner_state()}
        return {"given": self._current.given, "sampler": self._state}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """The next order goes on behind what had been given, which is not declared again. The
        sampler must give the same: seeded alike, at the same epoch."""
        if state["sampler"] is not None:
            self.sampler.load_state_dict(state["sampler"])  # type: ignore[attr-defined]
        self._skip = int(state["given"])


class _Order:
    """One pass through a sampler."""

    def __init__(self, owner: PlanSampler, items: Iterator[Any], skip: int) -> None:
        self._owner = owner
        self._items = items
        self._drawn: List[Any] = []
        self._at = 0
        self._plan: Optional[Declared] = None
        self._declares = True
        self.given = sum(1 for _ in itertools.islice(items, skip))

    def _draw(self) -> bool:
        self._at, self._drawn = 0, list(itertools.islice(self._items, _AHEAD))
        return bool(self._drawn)

    def _keys(self) -> Iterator[str]:
        return (self._owner._key(int(index)) for item in self._drawn for index in _flat(item))

    def _declare(self) -> None:
        if not self._declares:
            return
        if self._plan is None:
            self._plan = Declared(self._owner._client, self._keys(), self._owner._window)
        else:
            self._plan.extend(self._keys())

    def __iter__(self) -> "_Order":
        return self

    def __next__(self) -> Any:
        if self._at == len(self._drawn):
            if not self._draw():
                raise StopIteration
            self._declare()
        elif self._plan is not None:
            self._plan.keep()
        self._at += 1
        self.given += 1
        return self._drawn[self._at - 1]

    def close(self) -> None:
        # not at the last item: workers have yet to read what was given
        plan, self._plan = self._plan, None
        self._declares = False
        if plan is not None:
            plan.close()
