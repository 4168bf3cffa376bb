"""Patches that clients send: two JSON texts with a NUL between them, the object and the patch."""

from __future__ import annotations

import json
from typing import Any

from kubeletpy_up.errors import ApiError
from kubeletpy_up.patching.apply import json_patch, merge_patch, server_side_apply, strategic_merge
from kubeletpy_up.schema import definitions
from kubeletpy_up.schema.decode import decode_kind, parse_json
from tests.fuzz.target import JSON_WORDS, target

POD = json.dumps(
    {
        "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["x"]},
        "spec": {
            "containers": [{"name": "c", "env": [{"name": "A", "value": "b"}], "ports": []}],
            "tolerations": [{"key": "k"}],
        },
    }
).encode()
OPERATIONS = (
    b'[{"op":"add","path":"/metadata/labels/x~1y","value":1},{"op":"test","path":"/a","value":0}]',
    b'[{"op":"copy","from":"/spec","path":"/spec/a"},{"op":"move","from":"/a","path":"/b/-"}]',
    b'[{"op":"remove","path":"/spec/containers/0"},{"op":"replace","path":"","value":{}}]',
)
MERGES = (
    b'{"metadata":{"labels":null,"$deleteFromPrimitiveList/finalizers":["x"]}}',
    b'{"spec":{"containers":[{"name":"c","$patch":"delete"},{"$patch":"replace"}]}}',
    b'{"spec":{"$setElementOrder/containers":[{"name":"c"}],"$retainKeys":["a"]}}',
)
WORDS = (
    *JSON_WORDS,
    *(b"$patch", b"$retainKeys", b"$setElementOrder/", b"$deleteFromPrimitiveList/"),
    *(b'"op":', b'"path":"/', b'"from":"/', b'"value":', b'"name":', b"~0", b"~1", b"/-", b"spec"),
)
_NAME = definitions.definition_name("", "v1", "Pod")


def _two(data: bytes) -> tuple[Any, Any]:
    """The object is small enough for any server, and an object."""
    first, _, second = data.partition(b"\0")
    found = parse_json(first)
    return (found if isinstance(found, dict) else {}), parse_json(second)


@target(ApiError, seeds=tuple(POD + b"\0" + each for each in OPERATIONS), parts=WORDS)
def patch_json(data: bytes) -> None:
    """RFC 6902 and 7386; the object is left as it was."""
    document, patch = _two(data)
    before = json.dumps(document)
    try:
        json.dumps(merge_patch(document, patch))
        json.dumps(json_patch(document, patch))
    finally:
        assert json.dumps(document) == before


@target(ApiError, seeds=tuple(POD + b"\0" + each for each in MERGES), parts=WORDS)
def patch_strategic(data: bytes) -> None:
    """A strategic merge patch of any object; it is left as it was."""
    document, patch = _two(data)
    if not isinstance(patch, dict):
        return
    before = json.dumps(document)
    try:
        json.dumps(strategic_merge(_NAME, document, patch))
    finally:
        assert json.dumps(document) == before


@target(ApiError, seeds=(POD + b"\0" + POD, POD + b"\0" + MERGES[0]), parts=WORDS)
def patch_apply(data: bytes) -> None:
    """Server-side apply of what a client sent on what is stored."""
    document, patch = _two(data)
    live, _ = decode_kind("", "v1", "Pod", document)
    applied, _ = decode_kind("", "v1", "Pod", patch, whole=False)
    json.dumps(server_side_apply(_NAME, live, applied, "fuzz", bool(len(data) % 2), 1.0))
