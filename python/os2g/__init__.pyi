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

import collections.abc
import io
import os
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Sequence, Tuple, Union, overload

__version__: str

# A key below the client's prefix, taken literally (any bytes; str as os.fsencode has it), or a path
# below it, as in a mount.
Key = Union[str, bytes]
# Anything that bytes can land in: a Buffer, a writable object with the buffer protocol (bytearray,
# numpy array, CPU tensor's numpy()), or one with __cuda_array_interface__ whose memory is
# registered (Client.register). Host memory that is no Buffer costs one copy.
Target = Any

class Stat(NamedTuple):
    size: int
    mtime: int  # seconds since 1970
    directory: bool
    etag: str  # "" if not known

class Entry(NamedTuple):
    name: str  # Client.list: of the directory's child; Client.walk: the path below the client
    size: int
    mtime: int
    directory: bool

class Stats(NamedTuple):
    requests: int
    bytes: int
    errors: int
    bounced_bytes: int
    reconnects: int
    cuda_bytes: int
    way: str  # how bytes come: "shared memory", "guest BAR"
    release: str  # of the daemon

class Event(NamedTuple):
    kind: str  # "lost", "reconnected", "fallback"
    text: str  # a sentence for people
    time: float  # time.time() when it was noticed

class PlanStatus(NamedTuple):
    entries: int
    fetched: int
    used: int
    dropped: int
    missing: int
    bytes: int

class Client:
    """A connection to the daemon that serves where: "s3://bucket/prefix/" (OS2G_SOCKET's daemon,
    one of this user's that serves it, or a private one that is started and ends with the last
    process that uses it), the path of an export's socket, or a directory in a mount of os2g's.

    depth: requests under way at a time (at most 1024). timeout: seconds that a call waits, and that
    the daemon may be away. start=False: never start a daemon. program: the os2gd to start. event:
    called with an Event by the thread whose call noticed it. options: of the export, for a daemon
    that is started, as os2g(1) has them: endpoint_url="http://…", region="…", memory="1G",
    no_sign_request=True."""

    def __init__(
        self,
        where: Union[str, "os.PathLike[str]"],
        *,
        depth: int = 256,
        timeout: float = 90.0,
        start: bool = True,
        program: Optional[str] = None,
        event: Optional[Callable[[Event], object]] = None,
        **options: object,
    ) -> None: ...
    @property
    def where(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    @property
    def events(self) -> Sequence[Event]:
        """The last 64."""
    def close(self) -> None:
        """Ends this client. Files, buffers and plans made from it go on until they are closed or
        gone, and the connection with them."""
    def __enter__(self) -> "Client": ...
    def __exit__(self, *exc: object) -> None: ...

    # --- files ---

    def open(self, path: Key) -> "File": ...
    def read(self, path: Key, offset: int = 0, size: int = -1) -> bytes:
        """open, read and close; size -1: up to the end."""
    def stat(self, path: Key) -> Stat: ...
    def list(self, path: Key = "") -> "list[Entry]":
        """A directory's names, in the byte order of keys."""
    def walk(self, path: Key = "") -> Iterator[Entry]:
        """All objects below a directory, in that order; names are paths below the client, which are
        keys for fetch()."""
    def read_into(
        self,
        file: "File",
        into: Target,
        offset: int = 0,
        *,
        file_offset: int = 0,
        size: Optional[int] = None,
    ) -> int:
        """Up to size bytes (None: what there is room for) of file from file_offset to into[offset:];
        how many, fewer only at the object's end."""
    def read_many(
        self,
        reads: Iterable[Tuple["File", int, int, int]],
        into: Target,
        *,
        depth: Optional[int] = None,
        errors: str = "raise",
    ) -> "Fetched":
        """Reads (file, file_offset, size, offset in into), many under way at a time."""

    # --- whole objects ---

    @overload
    def fetch(self, key: Key) -> bytes: ...
    @overload
    def fetch(
        self, key: Key, into: Target, offset: int = 0, *, size: Optional[int] = None
    ) -> Any:
        """Lands at into[offset:], where there is room for size bytes (None: up to its end).
        Returns into's part that the object fills: a memoryview, or a DeviceView for GPU memory.
        OSError(EFBIG), with .object_size, when it is larger."""
    def fetch_many(
        self,
        keys: Iterable[Key],
        into: Optional[Target] = None,
        *,
        offsets: Optional[Sequence[int]] = None,
        sizes: Optional[Sequence[int]] = None,
        align: int = 64,
        depth: Optional[int] = None,
        errors: str = "raise",
    ) -> "Fetched":
        """Whole objects, depth (None: the client's) under way at a time; returns when all are done.

        into None: a new host Buffer that all of them fit in. Else object i lands at offsets[i], with
        room for sizes[i] bytes; without offsets, rooms follow each other, each at a multiple of
        align; without sizes, all are equal parts of into. errors="raise": the first failure is
        raised, when nothing is under way any more; "return": they are in Fetched.errors."""
    def as_completed(
        self,
        keys: Iterable[Key],
        into: Optional[Target] = None,
        *,
        offsets: Optional[Sequence[int]] = None,
        sizes: Optional[Sequence[int]] = None,
        align: int = 64,
        depth: Optional[int] = None,
        errors: str = "raise",
    ) -> Iterator["Landed"]:
        """As fetch_many, each when it is there. An iterator that is closed cancels the rest."""

    # --- plans ---

    def plan(self, keys: Iterable[Key], window: int = 0) -> "Plan":
        """Declares the order in which this and other processes are going to read whole objects:
        they are fetched ahead in it, up to window bytes (0: half of the daemon's memory), each
        once. It ends with Plan.close(), and with the process."""

    # --- memory ---

    def buffer(self, size: int, memory: str = "host", device: int = 0) -> "Buffer":
        """Zeroed memory that bytes land in without a copy: "host", "cuda" (of GPU device, in the
        current context) or "bar" (in a guest)."""
    def register(self, obj: Any, *, fd: int = -1, offset: int = 0) -> "Buffer":
        """Memory that is there already, as a Buffer over the same bytes that keeps obj alive: of
        anything with __cuda_array_interface__ (a tensor on a GPU), or, with fd, a writable mmap of
        fd at offset."""
    def stats(self) -> Stats: ...

class File(io.RawIOBase):
    """An object version, opened: a change at the store is OSError(ESTALE), never a mixture. Reads
    at explicit offsets (pread, pread_into) leave the position alone and may run in many threads."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def etag(self) -> str: ...
    @property
    def mtime(self) -> int: ...
    @property
    def mode(self) -> str: ...  # "rb"
    @property
    def client(self) -> Client: ...
    def pread(self, size: int, offset: int) -> bytes: ...
    def pread_into(self, into: Target, offset: int) -> int: ...

class Buffer(collections.abc.Sized):
    """Memory that the daemon lands bytes in. Host memory has the buffer protocol
    (numpy.frombuffer, torch.frombuffer, memoryview); all has DLPack (torch.from_dlpack) and
    __array_interface__ or __cuda_array_interface__, as one row of uint8. It is freed when the last
    view of it has gone, and only then."""

    @property
    def memory(self) -> str: ...  # "host", "cuda", "bar"
    @property
    def device(self) -> int: ...
    @property
    def address(self) -> int: ...  # of the first byte; a device pointer for "cuda"
    @property
    def closed(self) -> bool: ...
    def __len__(self) -> int: ...
    def view(self, offset: int = 0, size: Optional[int] = None) -> Any:
        """A memoryview, or a DeviceView for "cuda"."""
    def __getitem__(self, item: slice) -> Any: ...  # as view
    def close(self) -> None:
        """Frees it as soon as nobody looks at it any more."""
    def __enter__(self) -> "Buffer": ...
    def __exit__(self, *exc: object) -> None: ...
    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> Tuple[int, int]: ...
    # __array_interface__ for "host" and "bar", __cuda_array_interface__ for "cuda"

class DeviceView:
    """A part of a Buffer in GPU memory; __dlpack__ and __cuda_array_interface__ as there."""

    @property
    def buffer(self) -> Buffer: ...
    @property
    def address(self) -> int: ...
    def __len__(self) -> int: ...
    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> Tuple[int, int]: ...
    @property
    def __cuda_array_interface__(self) -> "dict[str, Any]": ...

class Fetched(Sequence[Any]):
    """What has become of many objects; fetched[i] is the part of buffer that object i fills."""

    buffer: Target
    keys: Sequence[Key]
    offsets: Sequence[int]
    sizes: Sequence[int]  # bytes that have landed; 0 after an error
    errors: Sequence[Optional[OSError]]
    def __len__(self) -> int: ...
    def __getitem__(self, i: Any) -> Any: ...

class Landed(NamedTuple):
    index: int  # in keys
    key: Key
    buffer: Target
    offset: int
    size: int
    error: Optional[OSError]
    @property
    def data(self) -> Any: ...  # the part of buffer that it fills

class Plan:
    """A declared order of reading; see Client.plan."""

    def extend(self, keys: Iterable[Key]) -> None:
        """Further entries behind those that there are."""
    def status(self) -> PlanStatus: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> "Plan": ...
    def __exit__(self, *exc: object) -> None: ...
