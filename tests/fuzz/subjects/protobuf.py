"""Data that an API server sends to an agent that requests protobuf."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from kubeletpy.base.wire.api_messages import Unfit
from kubeletpy.base.wire.api_objects import MEDIA_TYPE, ApiObjects, Malformed
from kubeletpy.base.wire.api_table import load_table
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protobuf_format import ProtobufFormat
from tests.fuzz.target import pieces, target
from tests.protobuf import body, entry, field

_LOOP = asyncio.new_event_loop()
_OBJECTS = ApiObjects(load_table())
_FORMAT = ProtobufFormat(_OBJECTS)
_METADATA = field(1, field(1, "p") + field(8, field(1, 1700000000)) + field(11, entry("a", "b")))
_POD = body("v1", "Pod", _METADATA + field(2, field(2, field(1, "c") + field(2, "i"))))
_PARTS = (
    b"k8s\0",
    b"v1",
    b"PodList",
    b"\x0a\0",
    b"\x12\0",
    b"\x1a\0",
    b"\x0b",
    b"\x0c",
    b"\0\0\0\x05",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
)


def _frame(kind: str, obj: bytes) -> bytes:
    event = field(1, kind) + field(2, field(1, obj))
    return len(event).to_bytes(4, "big") + event


@target(
    Malformed,
    Unfit,
    RecursionError,
    seeds=(
        _POD,
        body("v1", "PodList", field(1, field(2, "7")) + field(2, _METADATA)),
        body("v1", "Secret", _METADATA + field(2, entry("k", b"\xff"))),
        body("v1", "Status", field(3, "no") + field(5, field(4, field(1, "x"))) + field(6, 404)),
        body("coordination.k8s.io/v1", "Lease", field(2, field(4, field(1, 5) + field(2, 6000)))),
    ),
    parts=_PARTS,
)
def api_objects(data: bytes) -> None:
    """An object that is read, written and read again stays the same."""
    found = _OBJECTS.decode(data)
    if "items" not in found:
        written = _OBJECTS.enclose(found["apiVersion"], found["kind"], found)
        again = _OBJECTS.decode(written)
        assert json.dumps(again, sort_keys=True) == json.dumps(found, sort_keys=True)


@target(seeds=(b"\0\0" + _frame("ADDED", _POD) + _frame("DELETED", _POD),), parts=_PARTS)
def protobuf_watch(data: bytes) -> None:
    """The same events come however they are cut into pieces, and nothing but ApiErrors."""

    async def events(parts: list[bytes]) -> tuple[list[Any], str]:
        async def chunks() -> AsyncIterator[bytes]:
            for part in parts:
                yield part

        found: list[Any] = []
        try:
            async for event in _FORMAT.events(f"{MEDIA_TYPE};stream=watch", chunks()):
                found.append(repr(event))
        except ApiError as error:
            return found, str(error)
        return found, ""

    parts = list(pieces(data))
    assert _LOOP.run_until_complete(events(parts)) == _LOOP.run_until_complete(
        events([b"".join(parts)])
    )
