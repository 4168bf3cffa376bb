"""containerd's content store: what the pulls under way have stored so far.

It answers on the socket of the CRI. Other runtimes do not offer it: there, calls raise
Unimplemented. All answers are untrusted, so what is kept of them is bounded. Source:
docs/reference/containerd-content-v1.json.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import grpc.aio
from google.protobuf.message import DecodeError, Message

from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.text import scrub
from kubeletpy.remote import errors
from kubeletpy.remote.connection import GrpcChannel, stubs

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


class RemoteContent(Component):
    """The content store behind the connection to a runtime's image service."""

    connection: GrpcChannel

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


def _messages() -> Any:
    """Return the module of the messages, which is loaded when a pull is first measured."""
    from kubeletpy.remote.generated import content_pb2

    return content_pb2


def _parsed(method: str, kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise errors.InvalidResponse(method, "the answer is not what the call returns") from None
