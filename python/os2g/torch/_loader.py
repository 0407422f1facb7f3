# SPDX-License-Identifier: Apache-2.0
"""DeviceLoader: whole batches, fetched into one region each, of the host's or a GPU's memory."""

import collections
import errno
import os
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from . import _order
from ._batch import Batch, Landing, Rooms
from ._dataset import MapDataset
from ._plan import Declared
from ._region import UNDER_WAY_MAX, Regions
from ._stalls import LoaderStalls, Meter

_STATE = 1  # version of state_dict


class DeviceLoader:
    """Batches of a MapDataset's objects, without worker processes: the daemon puts every object into
    the batch's memory, and this process's part is to ask for them.

        loader = DeviceLoader(MapDataset.from_prefix(uri), 64, device="cuda", shuffle=True)
        for epoch in range(90):
            loader.set_epoch(epoch)
            for batch in loader:
                step(batch.data, batch.offsets, batch.sizes, batch.keys)

    device: "cpu", or "cuda" with a number. pin_memory: page-locked memory of the host, for copies to
    a GPU. A copy with non_blocking=True may be on any stream, and outlive its batch: before the
    memory is used again or given back, all GPUs that the process uses are waited for, once in four
    batches, for which three more are kept. That holds for copies that are asked for while a tensor
    over the batch is left; who replays a CUDA graph that reads one keeps it.

    Order. shuffle, seed, num_replicas, rank (torch.distributed's unless given) and drop_last are
    those of DistributedSampler, and so is the order. Or sampler (indices), or batch_sampler (lists
    of them), which are this rank's. The rest of the epoch is declared to the daemon (plan=False:
    not; a number: bytes to fetch ahead).

    prefetch: batches under way while one is worked on (at most 31). The memory of a batch is used
    again when no tensor over it is left; where more than 16 batches are kept, the rest are copies.

    Samples. labels: one for each sample, or a function of its key. shape and dtype: of samples that
    all have the same, which batch.samples then is, (B, *shape) in place. decode: makes of each Batch
    what the loader yields. The data set's transform is not called.

    errors="raise": a batch with a missing or broken object raises OSError, its filename the key; the
    next one may be asked for still. "return": such samples have size 0 and are in batch.errors.
    No answer within the client's timeout (TimeoutError without a filename) and, where errors are
    raised, a daemon that has gone for good (ENOTCONN) say nothing of objects and take no batch out
    of the epoch: whoever asks for the next one gets that batch, and so does a pass that is resumed.
    They say why the daemon has gone and cannot be started again, as far as the client was told.

    state_dict() and load_state_dict() are those of StatefulDataLoader: an epoch is resumed behind
    the last batch that was yielded, also by another number of ranks (which is why position counts
    samples of all ranks). After an epoch's end the next pass is the next epoch."""

    def __init__(
        self,
        data: MapDataset,
        batch_size: int = 1,
        *,
        device: Union[str, torch.device] = "cpu",
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        num_replicas: Optional[int] = None,
        rank: Optional[int] = None,
        sampler: Optional[Iterable[int]] = None,
        batch_sampler: Optional[Iterable[Sequence[int]]] = None,
        prefetch: int = 2,
        plan: Union[bool, int] = True,
        labels: Union[None, Sequence[Any], Callable[[str], Any]] = None,
        shape: Optional[Sequence[int]] = None,
        dtype: torch.dtype = torch.uint8,
        decode: Optional[Callable[[Batch], Any]] = None,
        pin_memory: bool = False,
        errors: str = "raise",
    ) -> None:
        if batch_size < 1 or prefetch < 0:
            raise ValueError("batch_size is at least 1, prefetch at least 0")
        if errors not in ("raise", "return"):
            raise ValueError(f'errors is "raise" or "return", not {errors!r}')
        if not isinstance(data, MapDataset):
            raise TypeError(f"data is to be a MapDataset, not {type(data).__name__}; a part of one is "
                            "named by sampler (its indices)")
        if sampler is not None and batch_sampler is not None:
            raise ValueError("sampler and batch_sampler exclude each other")
        if (sampler is not None or batch_sampler is not None) and (
            shuffle or num_replicas is not None or rank is not None
        ):
            raise ValueError("a sampler excludes shuffle, num_replicas and rank")
        here = _order.rank_and_replicas()
        self.dataset = data
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.prefetch = prefetch
        self.rank = here[0] if rank is None else rank
        self.num_replicas = here[1] if num_replicas is None else num_replicas
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"rank {self.rank} of {self.num_replicas}")
        self.shuffle, self.seed = shuffle, seed
        self.device = _device(device)
        self._errors = errors
        self._plan_window = None if plan is False else 0 if plan is True else int(plan)
        self._labels = labels
        self._rooms = Rooms(data._objects, tuple(shape) if shape is not None else None, dtype)
        self._decode = decode
        self._pin = pin_memory
        self._regions: Optional[Regions] = None
        self._epoch = self._position = 0
        self._resumed = False
        self._current: Optional["_Epoch"] = None
        self._meter: Optional[Meter] = None

    # --- order ---

    @property
    def _order(self) -> _order.Order:
        return _order.Order(len(self.dataset), self.batch_size, self.num_replicas, self.rank,
                            self.shuffle, self.seed, self.drop_last)

    @property
    def _sampled(self) -> bool:
        return self.sampler is not None or self.batch_sampler is not None

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        if self.sampler is None:
            return self._order.batches()
        samples = len(self.sampler)  # type: ignore[arg-type]
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Before an epoch. The epoch that a loaded state is in the middle of goes on."""
        for sampler in (self.sampler, self.batch_sampler):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)  # type: ignore[union-attr]
        if epoch != self._epoch or not self._resumed:
            self._epoch, self._position, self._resumed = epoch, 0, False

    def _batches(self) -> Iterator[List[int]]:
        """Indices of what is left of the epoch. Of samplers position counts batches."""
        if not self._sampled:
            yield from _order.cut(self._order.mine(self._epoch, self._position), self.batch_size)
            return
        if self.batch_sampler is not None:
            lists: Iterator[List[int]] = iter([list(b) for b in self.batch_sampler])
        else:
            lists = _order.cut(list(self.sampler), self.batch_size)  # type: ignore[arg-type]
        for number, indices in enumerate(lists):
            if not indices:
                raise ValueError("batch_sampler gave an empty batch")
            whole = len(indices) == self.batch_size or self.batch_sampler is not None
            if number >= self._position and (whole or not self.drop_last):
                yield indices

    # --- passes ---

    @property
    def _under_way(self) -> int:
        """Batches, with the one that is asked for."""
        return min(self.prefetch + 1, UNDER_WAY_MAX)

    def __iter__(self) -> "_Epoch":
        if self._current is not None:
            self._current.end_by("another pass of the loader has begun")
        self._check_labels()
        if not self._resumed:
            self._position = 0
        self._resumed = False
        # memory is shared with a parent: a child takes its own
        if self._regions is None or self._regions.pid != os.getpid():
            self._regions = Regions(self.dataset.client, self.device, self._under_way + 1, self._pin)
        # before the plan is declared: what comes from now on is of this pass
        self._meter = Meter(self.dataset.client, self._epoch)
        self._current = _Epoch(self, list(self._batches()), self._meter)
        return self._current

    def _yielded(self, samples: int) -> None:
        self._position += 1 if self._sampled else samples * self.num_replicas

    def _finished(self) -> None:
        self._epoch += 1
        self._position = 0

    def _check_labels(self) -> None:
        if self._labels is None or callable(self._labels):
            return
        if len(self._labels) != len(self.dataset):
            raise ValueError(f"{len(self._labels)} labels for {len(self.dataset)} samples")

    def _label(self, index: int, key: str) -> Any:
        return self._labels(key) if callable(self._labels) else self._labels[index]  # type: ignore[index]

    def close(self) -> None:
        """Cancels what is under way and gives back memory that no tensor looks at."""
        if self._current is not None:
            self._current.end_by("the loader was closed")
        if self._regions is not None:
            self._regions.close()
        self._regions = None

    def stalls(self) -> Optional[LoaderStalls]:
        """How long the present pass, or the last one, kept its user waiting, and why; None before
        the first. Client.stalls() tells what the daemon knows: how long fetches were waiting, most
        of them long before their batch was asked for."""
        return self._meter.report() if self._meter is not None else None

    # --- state ---

    def _identity(self) -> Dict[str, Any]:
        return {"length": len(self.dataset), "shuffle": self.shuffle, "seed": self.seed}

    def state_dict(self) -> Dict[str, Any]:
        """Of the batches that have been yielded, not of those under way."""
        return {"version": _STATE, "epoch": self._epoch, "position": self._position,
                "sampled": self._sampled, **self._identity()}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """The next pass goes on from there. ValueError if it is of another order."""
        wanted = {"version": _STATE, "sampled": self._sampled, **self._identity()}
        differ = [f"{name} {state.get(name)!r}, here {value!r}" for name, value in wanted.items()
                  if state.get(name) != value]
        if differ:
            raise ValueError(f"the state is of another order: {'; '.join(differ)}")
        epoch, position = int(state["epoch"]), int(state["position"])
        if position < 0:
            raise ValueError(f"position {position}")
        self.set_epoch(epoch)
        self._position, self._resumed = position, True


def _device(device: Union[str, torch.device]) -> torch.device:
    device = torch.device(device)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"objects land on cpu or cuda, not on {device.type}")
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return device


class _Epoch:
    """One pass: batches under way, in their order."""

    def __init__(self, loader: DeviceLoader, batches: List[List[int]], meter: Meter) -> None:
        self._loader = loader
        self._meter = meter
        self._waiting: Deque[List[int]] = collections.deque(batches)
        self._under_way: Deque[Landing] = collections.deque()
        self._again: Optional[List[int]] = None  # before those under way
        self._open = True
        self._ended_by: Optional[str] = None
        self._plan = self._declare(batches)

    def _declare(self, batches: List[List[int]]) -> Optional[Declared]:
        if self._loader._plan_window is None or not batches:
            return None
        loader = self._loader
        listed = loader.dataset._objects.listed
        keys = (listed[index].key for indices in batches for index in indices)
        return Declared(lambda: loader.dataset.client, keys, self._window(batches))

    def _window(self, batches: List[List[int]]) -> int:
        """Not less than is under way: what lies far behind the furthest reader is dropped."""
        loader = self._loader
        if not loader._plan_window:
            return 0
        largest = max(batches[: loader._under_way + 1], key=len)
        room, _, _ = loader._rooms.laid_out(largest)
        return max(loader._plan_window, sum(room) * (loader._under_way + 1))

    def __iter__(self) -> "_Epoch":
        return self

    def _begin(self, until: int) -> None:
        loader = self._loader
        assert loader._regions is not None
        if self._again is not None:
            self._under_way.appendleft(Landing(loader._regions, loader._rooms, self._again))
            self._again = None
        while self._waiting and len(self._under_way) < until:
            self._under_way.append(Landing(loader._regions, loader._rooms, self._waiting[0]))
            self._waiting.popleft()

    def __next__(self) -> Any:
        self._meter.enter()
        try:
            return self._next()
        finally:
            self._meter.leave()

    def _next(self) -> Any:
        loader = self._loader
        if self._ended_by is not None:
            raise RuntimeError(f"{self._ended_by}, which ended this one before its last batch")
        if not self._open:
            raise StopIteration
        try:
            self._begin(loader._under_way)
            if self._plan is not None:
                self._plan.keep()
            batch = self._finish(self._under_way.popleft()) if self._under_way else None
        except OSError:
            raise
        except BaseException:
            self.close()
            raise
        if batch is None:
            self._meter.end(ask=True)
            self.close()
            loader._finished()
            raise StopIteration
        return batch if loader._decode is None else loader._decode(batch)

    def _finish(self, landing: Landing) -> Batch:
        loader = self._loader
        try:
            batch = landing.finish()
            errors = [one for one in batch.errors if one is not None]
            if loader._errors == "raise":
                for error in errors:
                    if error.errno == errno.ENOTCONN:
                        error.strerror = f"{error.strerror}{loader.dataset.client._why()}"
                        raise error
        except BaseException:
            self._again = landing.indices
            landing.cancel()
            raise
        finally:
            self._meter.blocked += landing.blocked
        self._meter.batches += 1
        loader._yielded(len(batch))
        if loader._errors == "raise" and errors:
            raise errors[0]
        if loader._labels is not None:
            batch.labels = [loader._label(i, key) for i, key in zip(batch.indices, batch.keys)]
        return batch

    def end_by(self, what: str) -> None:
        """To who goes on with it the end is no end of the epoch."""
        if self._open:
            self._ended_by = what
            self.close()

    def close(self) -> None:
        """Cancels what is under way."""
        self._open = False
        self._meter.end()
        self._waiting.clear()
        self._again = None
        while self._under_way:
            self._under_way.popleft().cancel()
        plan, self._plan = self._plan, None
        if plan is not None:
            plan.close()
