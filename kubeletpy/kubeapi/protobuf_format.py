"""Objects in Kubernetes' protobuf, for ``contentType: application/vnd.kubernetes.protobuf``.

Loaded only when a configuration requests it: to read a pod takes several times as long as to read
its JSON, which is done in C. An object that the table of messages can't express is sent as JSON,
and a server may answer JSON to everything. Must never put anything of a body into an error.

Source: docs/reference/config.csv: contentType; docs/reference/api-wire.json.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from kubeletpy.base.api.types import JSON
from kubeletpy.base.wire.api_messages import Unfit
from kubeletpy.base.wire.api_objects import MEDIA_TYPE, ApiObjects, message_name
from kubeletpy.base.wire.api_table import load_table
from kubeletpy.kubeapi import client
from kubeletpy.kubeapi.client import JSON_FORMAT, JSON_TYPE, event_of
from kubeletpy.kubeapi.protocol import Resource, WatchEvent
from kubeletpy.kubeapi.transport import WITHOUT_MANAGED_FIELDS

LARGE = 64 << 10
"""Bytes from which on a body is read on a thread: 64 KiB of pods take about 10 ms."""
_LENGTH = 4
_ACCEPT = MappingProxyType(
    {"Accept": ",".join(each + WITHOUT_MANAGED_FIELDS for each in (MEDIA_TYPE, JSON_TYPE))}
)
T = TypeVar("T")


class ProtobufFormat:
    """Kubernetes' protobuf; JSON where the other side or an object has no protobuf."""

    def __init__(self, objects: ApiObjects | None = None) -> None:
        """``objects``: those of another table than the agent's own, which takes 20 ms to load."""
        self._objects = objects or ApiObjects(load_table())

    def headers(self, resource: Resource) -> Mapping[str, str]:
        """Protobuf is requested where the table has the resource's kind."""
        known = self._objects.has_message(message_name(resource.api_version, resource.kind))
        return _ACCEPT if known else {}

    def encode(self, obj: JSON) -> tuple[bytes, str]:
        """Encode an object: JSON for one that protobuf would not carry completely."""
        try:
            return self._objects.enclose(obj["apiVersion"], obj["kind"], obj), MEDIA_TYPE
        except (KeyError, Unfit):
            return JSON_FORMAT.encode(obj)

    async def decode(self, content_type: str, body: bytes) -> Any:
        """Decode an object from protobuf, or from JSON if the server has sent that."""
        if not _is_protobuf(content_type):
            return await JSON_FORMAT.decode(content_type, body)
        return await _decode_off_loop(self._objects.decode, body)

    async def events(
        self, content_type: str, chunks: AsyncIterator[bytes]
    ) -> AsyncIterator[WatchEvent]:
        """Decode the events of a watch; before each event stands its length, in four bytes."""
        if not _is_protobuf(content_type):
            async for event in JSON_FORMAT.events(content_type, chunks):
                yield event
            return
        async for frame in _frames(chunks):
            try:
                kind, obj = await _decode_off_loop(self._objects.event, frame)
            except client.UNREADABLE:
                raise client.no_event() from None
            if (found := event_of(kind, obj)) is not None:
                yield found


def _is_protobuf(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == MEDIA_TYPE


async def _decode_off_loop(read: Callable[[bytes], T], body: bytes) -> T:
    return read(body) if len(body) < LARGE else await asyncio.to_thread(read, body)


async def _frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        at = 0
        while len(rest) - at >= _LENGTH:
            begin = at + _LENGTH
            size = int.from_bytes(rest[at:begin], "big")
            if size > client.MAX_EVENT_BYTES:
                raise client.too_large()
            if len(rest) - begin < size:
                break
            at = begin + size
            yield bytes(rest[begin:at])
        del rest[:at]
    if rest:
        raise client.ended_inside()
