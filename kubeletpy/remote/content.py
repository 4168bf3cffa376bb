"""containerd's content store: what the pulls under way have stored so far.

It answers on the socket of the CRI. Other runtimes do not offer it: there, calls raise
Unimplemented. All answers are untrusted, so what is kept of them is bounded. Source:
docs/reference/containerd-content-v1.json.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
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

_NAMESPACE = (("containerd-namespace", "k8s.io"),)
"""Where containerd's CRI keeps its images."""
TIMEOUT = 5.0
"""Seconds that one call may take."""
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
    unpacked: bool = False
    """It is a layer whose files are on the disk."""


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

    async def written(self) -> int | None:
        """Return all bytes that the runtime has ever written, or None if that is not known."""
        ...


class RemoteContent(Component):
    """The content store behind the connection to a runtime's image service."""

    connection: GrpcChannel
    file_systems: Callable[[], Awaitable[cri.ImageFsInfoResponse]]
    """Returns where the runtime keeps its images."""

    def __post_init__(self) -> None:
        self._folder: Path | None = None

    @cached_property
    def _stubs(self) -> dict[str, Any]:
        described = _messages().DESCRIPTOR.services_by_name["Content"]
        return stubs(self.connection.channel, described)

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
                    "containerd.io/uncompressed" in each.labels,
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
        if self._folder is None:
            found = (await self.file_systems()).image_filesystems
            snapshots = Path(found[0].fs_id.mountpoint) if found else Path("/")
            self._folder = snapshots.parent / "io.containerd.content.v1.content"
        return await asyncio.to_thread(_read_head, self._folder, digest, size)

    async def written(self) -> int | None:
        """See ContentStore. Without the right to read it in /proc it is not known."""
        return await asyncio.to_thread(_written, socket_path(self.connection.endpoint))

    async def _answers(self, method: str, request: Message) -> AsyncIterator[bytes]:
        """Yield the answers of a call, also the only one of a unary call."""
        call: Any = self._stubs[method](request, timeout=TIMEOUT, metadata=_NAMESPACE)
        try:
            if method == "ListStatuses":
                yield await call
                return
            async for data in call:
                yield data
        except grpc.aio.AioRpcError as error:
            code = errors.Code[error.code().name]
            raise errors.error_for(code, method, scrub(error.details() or "")) from None
        except asyncio.CancelledError:
            if self.connection.closed:
                raise errors.Cancelled(method, "the connection was closed") from None
            raise
        finally:
            call.cancel()


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


def _parsed(method: str, kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise errors.InvalidResponse(method, "the answer is not what the call returns") from None
