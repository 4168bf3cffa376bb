"""containerd's own services beside the CRI: the content that pulls have stored, and exits of tasks.

They answer on the socket of the CRI. Other runtimes do not offer them: there, calls raise
Unimplemented. All answers are untrusted, so what is kept of them is bounded. Sources:
docs/reference/containerd-content-v1.json and containerd-events-v1.json.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import grpc.aio
from google.protobuf.message import DecodeError, Message

from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.text import scrub
from kubeletpy.remote import errors
from kubeletpy.remote.connection import GrpcChannel, listening_process, socket_path, stubs
from kubeletpy.remote.generated import api_pb2 as cri

_NAMESPACE = "k8s.io"
"""Where containerd's CRI keeps its images and tasks."""
_METADATA = (("containerd-namespace", _NAMESPACE),)
TIMEOUT = 5.0
"""Seconds that one call may take."""
_BUILTIN_SNAPSHOTTER = "io.containerd.snapshotter.v1."
MAX_BLOBS = 4096
"""Entries of a list that are kept."""


class StoredBlob(Struct, frozen=True):
    """A complete blob of the store."""

    digest: str
    size: int
    created_at: float = 0.0
    """Unix seconds by the runtime's clock."""
    has_children: bool = False
    """It refers to others, as manifests do."""
    diff_id: str = ""
    """Digest of a layer without compression; empty: it was never unpacked."""


class ContentStore(Protocol):
    """The store of one runtime, or a simulated one. Each call may raise CRIError."""

    async def ingests(self) -> Mapping[str, int]:
        """Return the bytes that have arrived, by the name of what is being stored."""
        ...

    async def blobs(self, filters: Sequence[str]) -> list[StoredBlob]:
        """Return the complete blobs that one of containerd's filters selects."""
        ...

    async def read(self, digest: str, most: int) -> bytes:
        """Return a blob. Raises ResourceExhausted if it is larger than ``most`` bytes."""
        ...

    async def head(self, digest: str, size: int) -> bytes:
        """Return the first bytes of a blob, also of one that arrives; b"" if unreadable."""
        ...

    async def has_files(self, chain: str) -> bool:
        """Return whether the files of a layer, on those below it, are on the disk: by chain ID."""
        ...

    async def written(self) -> int | None:
        """Return all bytes that the runtime has ever written, or None if that is not known."""
        ...


class RemoteContent(Component):
    """The content store behind the connection to a runtime's image service."""

    connection: GrpcChannel
    file_systems: Callable[[], Awaitable[cri.ImageFsInfoResponse]]
    """Returns where the runtime keeps its images."""

    def __post_init__(self) -> None:
        self._images: Path | None = None

    @cached_property
    def _stubs(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for messages, name in ((_messages(), "Content"), (_snapshots(), "Snapshots")):
            described = messages.DESCRIPTOR.services_by_name[name]
            found |= stubs(self.connection.channel, described)
        return found

    async def ingests(self) -> Mapping[str, int]:
        """See ContentStore."""
        found: dict[str, int] = {}
        async for data in self._answers("ListStatuses", _messages().ListStatusesRequest()):
            answer = _parsed("ListStatuses", _messages().ListStatusesResponse, data)
            found = {each.ref: each.offset for each in answer.statuses[:MAX_BLOBS]}
        return found

    async def blobs(self, filters: Sequence[str]) -> list[StoredBlob]:
        """See ContentStore."""
        found: list[StoredBlob] = []
        async for data in self._answers("List", _messages().ListContentRequest(filters=filters)):
            answer = _parsed("List", _messages().ListContentResponse, data)
            found += [
                StoredBlob(
                    each.digest,
                    each.size,
                    each.created_at.seconds + each.created_at.nanos / 1e9,
                    any(label.startswith("containerd.io/gc.ref.content") for label in each.labels),
                    each.labels.get("containerd.io/uncompressed", ""),
                )
                for each in answer.info
            ]
            if len(found) >= MAX_BLOBS:
                break
        return found

    async def read(self, digest: str, most: int) -> bytes:
        """See ContentStore."""
        request, blob = _messages().ReadContentRequest(digest=digest), b""
        async for data in self._answers("Read", request):
            blob += _parsed("Read", _messages().ReadContentResponse, data).data
            if len(blob) > most:
                raise errors.ResourceExhausted("Read", f"the blob is larger than {most} bytes")
        return blob

    async def head(self, digest: str, size: int) -> bytes:
        """See ContentStore. The service serves complete blobs only, so that files are read."""
        folder = (await self._folder()).parent / "io.containerd.content.v1.content"
        return await asyncio.to_thread(_read_head, folder, digest, size)

    async def has_files(self, chain: str) -> bool:
        """See ContentStore. With a snapshotter of another process it is assumed."""
        _, builtin, name = (await self._folder()).name.partition(_BUILTIN_SNAPSHOTTER)
        if not builtin:
            return True
        request = _snapshots().StatSnapshotRequest(snapshotter=name, key=chain)
        with contextlib.suppress(errors.NotFound):
            return [_ async for _ in self._answers("Stat", request)] != []
        return False

    async def _folder(self) -> Path:
        """Return the directory of the snapshotter that the runtime uses."""
        if self._images is None:
            found = (await self.file_systems()).image_filesystems
            self._images = Path(found[0].fs_id.mountpoint) if found else Path("/")
        return self._images

    async def written(self) -> int | None:
        """See ContentStore. Without the right to read it in /proc it is not known."""
        return await asyncio.to_thread(_written, socket_path(self.connection.endpoint))

    async def _answers(self, method: str, request: Message) -> AsyncIterator[bytes]:
        """Yield the answers of a call, also the only one of a unary call."""
        call: Any = self._stubs[method](request, timeout=TIMEOUT, metadata=_METADATA)
        with _call_errors(method, self.connection, call):
            if method in ("ListStatuses", "Stat"):
                yield await call
                return
            async for data in call:
                yield data


def _read_head(folder: Path, digest: str, size: int) -> bytes:
    """Return the first bytes of a blob's file, of an ingest's if the blob is not complete."""
    with contextlib.suppress(OSError):
        return _read(folder / "blobs" / digest.replace(":", "/"), size)
    with contextlib.suppress(OSError, ValueError):
        for ref in islice(folder.glob("ingest/*/ref"), MAX_BLOBS):
            if ref.read_text().endswith(f"-{digest}"):
                return _read(ref.with_name("data"), size)
    return b""


def _read(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def _written(path: str) -> int | None:
    """Return what the process behind a socket has written."""
    with contextlib.suppress(OSError):
        found = Path(f"/proc/{listening_process(path)}/io").read_text()
        if match := re.search(r"^wchar: (\d+)$", found, re.MULTILINE):
            return int(match[1])
    return None


def _messages() -> Any:
    """Return the module of the messages, which is loaded when a pull is first measured."""
    from kubeletpy.remote.generated import content_pb2

    return content_pb2


def _snapshots() -> Any:
    from kubeletpy.remote.generated import snapshots_pb2

    return snapshots_pb2


# Exits of tasks

_EXIT_TOPIC = "/tasks/exit"
_EXIT_FILTER = f'namespace=={_NAMESPACE},topic=="{_EXIT_TOPIC}"'
_EXIT_TYPE = "containerd.events.TaskExit"
_TASK_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,127}", re.ASCII)


async def task_exits(connection: GrpcChannel) -> AsyncIterator[str]:
    """See :data:`~kubeletpy.remote.protocol.TaskExits`."""
    # most runtimes report exits by the CRI and never load this
    from kubeletpy.remote.generated import task_events_pb2 as messages

    subscribe = stubs(connection.channel, messages.DESCRIPTOR.services_by_name["Events"])
    request = messages.SubscribeRequest(filters=[_EXIT_FILTER])
    call: Any = subscribe["Subscribe"](request, metadata=_METADATA)
    with _call_errors("Subscribe", connection, call):
        async for data in call:
            if exited := ended_task(data):
                yield exited


def ended_task(data: bytes) -> str:
    """Return the id of the container whose main process has ended, or "" for any other event."""
    from kubeletpy.remote.generated import task_events_pb2 as messages

    try:
        envelope = messages.Envelope.FromString(data)
        if (envelope.namespace, envelope.topic) != (_NAMESPACE, _EXIT_TOPIC):
            return ""
        if envelope.event.type_url.rpartition("/")[2] != _EXIT_TYPE:
            return ""
        task = messages.TaskExit.FromString(envelope.event.value)
    except DecodeError:
        return ""
    is_main = task.id == task.container_id and _TASK_ID.fullmatch(task.id) is not None
    return task.id if is_main else ""


# Calls


@contextlib.contextmanager
def _call_errors(method: str, connection: GrpcChannel, call: Any) -> Iterator[None]:
    """Raise the errors of a call as CRIError, and cancel it at the end."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        code = errors.Code[error.code().name]
        raise errors.error_for(code, method, scrub(error.details() or "")) from None
    except asyncio.CancelledError:
        if connection.closed:
            raise errors.Cancelled(method, "the connection was closed") from None
        raise
    finally:
        call.cancel()


def _parsed(method: str, kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise errors.InvalidResponse(method, "the answer is not what the call returns") from None
