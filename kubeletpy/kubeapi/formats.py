"""The encoding of objects in requests and answers: JSON, unless a client is given another format.

Must never put anything of a body into an error.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from kubeletpy.base.api import object_text
from kubeletpy.base.api.object_text import ObjectText
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.protocol import JSONPatch, Resource, WatchEvent

logger = logging.getLogger(__name__)

JSON_TYPE = "application/json"
UNREADABLE = (ValueError, RecursionError)
"""Exceptions that decoding untrusted bytes may raise."""
MAX_EVENT_BYTES = 32 * 1024 * 1024
MAX_BLANK_LINES = 1000
"""In a row in a watch: a kilobyte of gzip may hold a million of them."""
_EVENT_TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class WireFormat(Protocol):
    """How objects are written and read. The Content-Type has an answer's format."""

    def headers(self, resource: Resource) -> Mapping[str, str]:
        """Headers of a request for a resource, where they differ from those of JSON."""
        ...

    def encode(self, obj: JSON) -> tuple[bytes, str]:
        """A body, and its Content-Type."""
        ...

    async def decode(self, content_type: str, body: bytes) -> Any:
        """An answer. Raises one of UNREADABLE."""
        ...

    def events(self, content_type: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[WatchEvent]:
        """The events of a watch as they arrive.

        Raises:
            ApiError: for an ERROR event, and for garbage.
        """
        ...


class JsonFormat:
    """JSON, whatever the Content-Type is; a watch has one event a line."""

    def headers(self, resource: Resource) -> Mapping[str, str]:
        """None."""
        return {}

    def encode(self, obj: JSON | JSONPatch) -> tuple[bytes, str]:
        """Encode an object or a patch."""
        return _encode(obj).encode(), JSON_TYPE

    async def decode(self, content_type: str, body: bytes) -> Any:
        """Decode an object, without nulls."""
        return await decode_json(body)

    async def events(
        self, content_type: str, chunks: AsyncIterator[bytes]
    ) -> AsyncIterator[WatchEvent]:
        """Decode an event of a watch."""
        blank = 0
        async for line in _lines(chunks):
            if not line.strip():
                blank += 1
                if blank > MAX_BLANK_LINES:
                    raise no_event()
                continue
            blank = 0
            try:
                found = await decode_json(line)
                kind, obj = found["type"], found["object"]
            except (*UNREADABLE, TypeError, KeyError):
                raise no_event() from None
            if (event := event_of(kind, obj)) is not None:
                yield event


JSON_FORMAT = JsonFormat()


_objects = ObjectText()


async def decode_json(text: bytes) -> Any:
    """Decoded JSON without nulls; a large text is decoded in a thread. Raises one of UNREADABLE.

    See :mod:`.object_text` for what else is left out of single objects.
    """
    if len(text) <= object_text.MOST_TEXT:
        return _objects.decode(text)
    return await asyncio.to_thread(object_text.loads, text)


def event_of(kind: object, obj: object) -> WatchEvent | None:
    """A decoded event; None for one of an unknown type. Raises ApiError for an ERROR."""
    if kind == "ERROR":
        raise errors.from_status(0, obj)
    if kind not in _EVENT_TYPES or not isinstance(obj, dict):
        logger.warning("watch event ignored", extra={"type": str(kind)[:40]})
        return None
    return WatchEvent(str(kind), obj)


def no_event() -> errors.Unavailable:
    """The error for something that can't be read."""
    return errors.Unavailable("the watch gave something that is no event")


def too_large() -> errors.Unavailable:
    """The error for an event that is not read."""
    return errors.Unavailable(f"a watch event is larger than {MAX_EVENT_BYTES} bytes")


def ended_inside() -> errors.Unavailable:
    """Error raised when a watch ends in the middle of an event."""
    return errors.Unavailable("the watch ended inside an event")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in chunks:
        first, newline, after = chunk.partition(b"\n")
        rest += first
        if len(rest) > MAX_EVENT_BYTES:
            raise too_large()
        if not newline:
            continue
        yield bytes(rest)
        *whole, last = after.split(b"\n")
        for line in whole:
            yield line
        rest = bytearray(last)
    if rest.strip():
        raise ended_inside()
