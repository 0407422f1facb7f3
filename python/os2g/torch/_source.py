# SPDX-License-Identifier: Apache-2.0
"""Where a data set's objects are: a client's argument, and what its keys lack of the bucket's."""

import contextlib
import os
import stat
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import os2g

SCHEMES = ("s3://", "os2g://")


class Place(NamedTuple):
    """where: of the client. bucket "": a mount or socket. prefix: of the client's keys, in the
    bucket."""

    where: str
    bucket: str
    prefix: str


class Listed(NamedTuple):
    key: str  # below the client
    size: Optional[int]  # None: not known


@contextlib.contextmanager
def named(key: str) -> Iterator[None]:
    """Errors carry the key in the bucket, whatever the client calls it."""
    try:
        yield
    except OSError as error:
        error.filename = key
        raise


_clients: Dict[Tuple[Any, ...], os2g.Client] = {}


def _environment() -> List[Tuple[str, str]]:
    """What libos2g takes from it, too: which daemon, which store, whose rights."""
    return sorted((k, v) for k, v in os.environ.items() if k.startswith(("AWS_", "OS2G_")))


def client_of(where: str, options: Dict[str, object]) -> os2g.Client:
    """This process's client, and after a fork the child's; one for all that ask for the same."""
    name = (where, *sorted((k, repr(v)) for k, v in options.items()), *_environment())
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


def mount_of(directory: str) -> Optional[str]:
    """The directory at which the file system of directory, which is a real path, is mounted; None: it
    is none of os2g's."""
    while not os.path.ismount(directory):
        directory = os.path.dirname(directory)
    return directory if os.path.lexists(os.path.join(directory, ".os2g")) else None


def in_mount(directory: str) -> Tuple[str, str]:
    """(the mount that directory is in, what keys there begin with): a mount's client has the keys of
    all of it, whichever directory of it was named. What is in none stays as it was named: libos2g will
    say so of it."""
    real = os.path.realpath(directory)
    top = mount_of(real)
    if top is None:
        return os.path.abspath(directory), ""
    return top, "" if real == top else os.path.relpath(real, top) + "/"


def place_of(uri: str) -> Tuple[Place, str]:
    """Where an object is, and its key there; or how the keys of more of them begin."""
    base, rest = split_uri(uri)
    cut = rest.rfind("/") + 1
    directory, name = rest[:cut], rest[cut:]
    if base:
        return Place(base + directory, base[len("s3://") : -1], directory), name
    top, prefix = in_mount(directory)
    return Place(top, "", ""), prefix + name


def of_prefix(uri: str) -> Tuple[Place, str]:
    """The place, and how the names wanted there begin."""
    uri = os.fspath(uri)
    if not split_uri(uri)[0]:
        mode = _mode_of(uri)
        if stat.S_ISSOCK(mode):
            return Place(uri, "", ""), ""
        if stat.S_ISDIR(mode):
            uri = os.path.join(uri, "")
    return place_of(uri)


def _mode_of(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except OSError:
        return 0


def of_objects(uris: Iterable[str]) -> Tuple[Place, List[Listed]]:
    """The directory or mount that all are in, and their keys there."""
    split = [split_uri(os.fspath(uri)) for uri in uris]
    if not split:
        raise ValueError("no objects")
    bases = {base for base, _ in split}
    if len(bases) > 1:
        raise ValueError(f"objects of several buckets: {', '.join(sorted(bases))}")
    rests = [rest for _, rest in split]
    base = bases.pop()
    if not base:
        return _of_paths(rests)
    if "" in rests:
        raise ValueError(f"{base!r} names no object")
    # of a key that ends with "/", which is one like any other, something is left, too
    common = os.path.commonprefix([rest[:-1] for rest in rests])
    directory = common[: common.rfind("/") + 1]
    place, _ = place_of(base + directory)
    return place, [Listed(rest[len(directory) :], None) for rest in rests]


def _of_paths(paths: List[str]) -> Tuple[Place, List[Listed]]:
    split = [path.rpartition("/") for path in paths]
    known = {directory: in_mount(directory) for directory in {head + cut for head, cut, _ in split}}
    tops = {top for top, _ in known.values()}
    if len(tops) > 1:
        raise ValueError(f"objects that are not in one mount of os2g: {', '.join(sorted(tops))}")
    return Place(tops.pop(), "", ""), [Listed(known[head + cut][1] + name, None)
                                       for head, cut, name in split]


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
        self._client: Optional[os2g.Client] = None

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_client": None}  # it is of this process and its children

    @property
    def client(self) -> os2g.Client:
        if self._client is None or self._client.closed:
            self._client = client_of(self.place.where, self.options)
        return self._client

    @property
    def listed(self) -> List[Listed]:
        if self._listed is None:
            self._listed = [
                Listed(entry.name, entry.size)
                for entry in self.client.walk(self._begins.rpartition("/")[0])
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
