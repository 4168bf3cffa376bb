"""The OpenAPI documents that kubectl reads before it applies, edits or explains.

Version 2 as JSON and as protobuf (all that kubectl up to 1.23 requests), version 3 as one document
per group and version. Built when first requested; only the bytes are kept.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from kubeletpy_up import resources
from kubeletpy_up.discovery import groups as discovery
from kubeletpy_up.discovery import openapi_paths, openapi_protobuf
from kubeletpy_up.discovery.descriptions import described
from kubeletpy_up.schema import definitions

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON

_V2_REF = "#/definitions/"
_V3_REF = "#/components/schemas/"
_TITLE = "Kubernetes"


def _bytes(document: JSON) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _v2_document() -> JSON:
    paths: JSON = {}
    for resource in resources.listed_resources():
        paths.update(openapi_paths.resource_paths(resource))
    return {
        "swagger": "2.0",
        "info": {"title": _TITLE, "version": discovery.GIT_VERSION},
        "paths": paths,
        "definitions": {
            **{name: described(name, each) for name, each in definitions.definitions().items()},
            openapi_paths.PATCH: {"type": "object"},
        },
    }


@cache
def v2_json() -> bytes:
    """The OpenAPI v2 document as JSON."""
    return _bytes(_v2_document())


@cache
def v2_protobuf() -> bytes:
    """The OpenAPI v2 document as the protobuf message ``openapi.v2.Document``."""
    return openapi_protobuf.encode_document(_v2_document())


def _group_version_paths() -> dict[str, tuple[str, str]]:
    return {
        f"apis/{group}/{version}" if group else f"api/{version}": (group, version)
        for group, version in resources.group_versions()
    }


@lru_cache(maxsize=2)
def v3_document(group_version_path: str) -> bytes | None:
    """The OpenAPI v3 document of ``api/v1`` or ``apis/GROUP/VERSION``; None if not served."""
    wanted = _group_version_paths().get(group_version_path)
    if wanted is None:
        return None
    paths: JSON = {}
    kinds: set[str] = set()
    for resource in resources.listed_resources():
        if (resource.group, resource.version) == wanted:
            paths.update(openapi_paths.to_v3(openapi_paths.resource_paths(resource)))
            kinds.update(openapi_paths.kind_names(resource))
    document = {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": discovery.GIT_VERSION},
        "paths": paths,
        "components": {"schemas": _v3_schemas(kinds)},
    }
    return _bytes(document).replace(_V2_REF.encode(), _V3_REF.encode())


def _v3_schemas(kinds: set[str]) -> JSON:
    """The named definitions and all that they refer to."""
    found: JSON = {openapi_paths.PATCH: {"type": "object"}}
    waiting = sorted(kinds)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = described(name, definitions.definition(name))
        waiting += _references(found[name])
    unions = {
        definitions.INT_OR_STRING: {
            "format": "int-or-string",
            "oneOf": [{"type": "integer"}, {"type": "string"}],
        },
        definitions.QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
    }
    return {**found, **{name: schema for name, schema in unions.items() if name in found}}


def _references(schema: JSON) -> list[str]:
    found: list[str] = []
    name = definitions.reference(schema)
    if name:
        found.append(name)
    for value in schema.values():
        if isinstance(value, dict):
            found += _references(value)
    return found


@cache
def v3_index() -> JSON:
    """The answer of /openapi/v3: where each document is; the hash lets clients cache it."""
    paths: JSON = {}
    for path in _group_version_paths():
        # Bypasses the cache: the index is requested often, most of the documents never.
        document = v3_document.__wrapped__(path) or b""
        digest = hashlib.sha256(document).hexdigest().upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}
