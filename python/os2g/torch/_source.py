# SPDX-License-Identifier: Apache-2.0
"""Where a data set's objects are: a client's argument, and what its keys lack of the bucket's."""

import os
import stat
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

import os2g

SCHEMES = ("s3://", "os2g://")


class Place(NamedTuple):
    """where: of the client. bucket "": a directory or socket. prefix: of the client's keys, in the
    bucket."""

    where: str
    bucket: str
    prefix: str


class Listed(NamedTuple):
    key: str  # below the client
    size: Optional[int]  # None: not known


_clients: Dict[Tuple[Any, ...], os2g.Client] = {}


def client_of(where: str, options: Dict[str, object]) -> os2g.Client:
    """This process's client, and after a fork the child's; one for all that ask for the same."""
    name = (where, *sorted((k, repr(v)) for k, v in options.items()))
    found = _clients.get(name)
    if found is None or found.closed:
        found = _clients[name] = os2g.Client(where, **options)  # type: ignore[arg-type]
    return found


def client_options(
    region: Optional[str], endpoint: Optional[str], options: Dict[str, object]
) -> Dict[str, object]:
    """Of os2g.Client, from the names that other loaders have."""
    given = {"region": region, "endpoint_url": endpoint}
    return {**options, **{name: value for name, value in given.items() if value is not None}}


def split_uri(uri: str) -> Tuple[str, str]:
    """("s3://bucket/" or "", the rest)."""
    for scheme in SCHEMES:
        if uri.startswith(scheme):
            bucket, _, key = uri[len(scheme) :].partition("/")
            if not bucket:
                raise ValueError(f"{uri!r} names no bucket")
            return f"s3://{bucket}/", key
    if "://" in uri:
        raise ValueError(f"{uri!r}: objects are s3://BUCKET/KEY, or a path in a mount")
    return "", uri


def place_of(base: str, directory: str) -> Place:
    """directory: ends with "/" or is empty."""
    bucket = base[len("s3://") : -1]
    return Place(base + directory, bucket, directory if bucket else "")


def of_prefix(uri: str) -> Tuple[Place, str]:
    """The place, and how the names wanted there begin."""
    base, rest = split_uri(os.fspath(uri))
    if not base and _is_place(rest):
        return Place(rest, "", ""), ""
    cut = rest.rfind("/") + 1
    return place_of(base, rest[:cut]), rest[cut:]


def _is_place(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISSOCK(mode)


def of_objects(uris: Iterable[str]) -> Tuple[Place, List[Listed]]:
    """The directory that all have in common, and their names there."""
    split = [split_uri(os.fspath(uri)) for uri in uris]
    if not split:
        raise ValueError("no objects")
    bases = {base for base, _ in split}
    if len(bases) > 1:
        raise ValueError(f"objects of several buckets: {', '.join(sorted(bases))}")
    common = os.path.commonprefix([rest for _, rest in split])
    directory = common[: common.rfind("/") + 1]
    return place_of(bases.pop(), directory), [Listed(rest[len(directory) :], None) for _, rest in split]


class Objects:
    """A data set's objects in their order. Listed when they are first asked for; goes to other
    processes as what it is made of."""

    def __init__(
        self,
        place: Place,
        options: Dict[str, object],
        begins: str = "",
        listed: Optional[List[Listed]] = None,
    ) -> None:
        self.place = place
        self.options = options
        self._begins = begins
        self._listed = listed

    @property
    def client(self) -> os2g.Client:
        return client_of(self.place.where, self.options)

    @property
    def listed(self) -> List[Listed]:
        if self._listed is None:
            self._listed = [
                Listed(entry.name, entry.size)
                for entry in self.client.walk()
                if entry.name.startswith(self._begins)
            ]
        return self._listed

    def key(self, index: int) -> str:
        """In the bucket."""
        return self.place.prefix + self.listed[index].key

    def __len__(self) -> int:
        return len(self.listed)


def objects_from_prefix(
    uri: str, region: Optional[str], endpoint: Optional[str], options: Dict[str, object]
) -> Objects:
    place, begins = of_prefix(uri)
    return Objects(place, client_options(region, endpoint, options), begins)


def objects_from_uris(
    uris: Iterable[str], region: Optional[str], endpoint: Optional[str], options: Dict[str, object]
) -> Objects:
    if isinstance(uris, str):
        uris = [uris]
    place, listed = of_objects(uris)
    return Objects(place, client_options(region, endpoint, options), listed=listed)
