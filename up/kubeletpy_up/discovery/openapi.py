"""The OpenAPI documents that kubectl reads before it applies, edits or explains.

Version 2 as JSON and as protobuf (all that kubectl up to 1.23 requests), version 3 as one document
per group and version. Built when first requested; only the bytes are kept.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from kubeletpy.base.wire.api_messages import MessageField, message_classes
from kubeletpy_up import resources
from kubeletpy_up.data import load_json
from kubeletpy_up.discovery import groups as discovery
from kubeletpy_up.schema import definitions

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.resources import ResourceInfo, SubresourceInfo


# Descriptions for `kubectl explain`, in our own wording, from ``data/descriptions.json``.
# A field or kind without a text has no description.


@cache
def texts() -> dict[str, dict[str, str]]:
    """The text of each field (``""``: of the kind), by the definition's full name."""
    loaded: dict[str, dict[str, str]] = load_json("descriptions.json")
    return loaded


def described(name: str, definition: dict[str, Any]) -> dict[str, Any]:
    """A copy of a definition with its descriptions."""
    known = texts().get(name)
    if not known:
        return definition
    fields = {
        field: {"description": known[field], **schema} if field in known else schema
        for field, schema in definition.get("properties", {}).items()
    }
    own = {"description": known[""]} if "" in known else {}
    return {**own, **definition, "properties": fields}


# Operations, as kubectl uses them.
#
# kubectl finds the patch operation of a kind by ``x-kubernetes-group-version-kind``. From it, it
# reads the query parameters ``dryRun`` and ``fieldValidation`` and the patch types. ``explain``
# finds the kind of a resource by the path.

PATCH = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"
PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_JSON_TYPES = ("application/json",)
_V3_PARAMETER = ("name", "in", "required")
_WRITES = ("dryRun", "fieldManager", "fieldValidation")
_LISTS = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)
_DELETES = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_TYPES = {
    "allowWatchBookmarks": "boolean",
    "sendInitialEvents": "boolean",
    "watch": "boolean",
    "force": "boolean",
    "orphanDependents": "boolean",
    "limit": "integer",
    "timeoutSeconds": "integer",
    "gracePeriodSeconds": "integer",
}
_ACTIONS = {
    "get": ("get", "get", ()),
    "update": ("put", "put", _WRITES),
    "patch": ("patch", "patch", (*_WRITES, "force")),
    "delete": ("delete", "delete", _DELETES),
}


def kind_names(resource: ResourceInfo) -> set[str]:
    """Definitions that a resource's operations refer to: the kind, its list, its subresources'."""
    group, version = resource.group, resource.version
    kinds = [(group, version, resource.kind), (group, version, resource.kind + "List")]
    kinds += [
        _subresource_kind(resource, sub)
        for sub in resource.subresources
        if not resource.is_proxied(sub.name)
    ]
    names = {definitions.definition_name(*kind) for kind in kinds}
    return {name for name in names if name}


def _subresource_kind(resource: ResourceInfo, sub: SubresourceInfo) -> tuple[str, str, str]:
    if sub.version:
        return sub.group, sub.version, sub.kind
    return resource.group, resource.version, sub.kind


def _schema(kind: tuple[str, str, str]) -> JSON:
    name = definitions.definition_name(*kind)
    return {"$ref": f"#/definitions/{name}"} if name else {"type": "object"}


def _operation(
    action: str, kind: tuple[str, str, str], query: tuple[str, ...], body: JSON | None, answer: JSON
) -> JSON:
    parameters: list[JSON] = []
    if body is not None:
        parameters.append({"name": "body", "in": "body", "required": True, "schema": body})
    for name in query:
        form = {"name": name, "in": "query", "type": _TYPES.get(name, "string")}
        parameters.append({**form, "uniqueItems": True})
    group, version, name = kind
    return {
        "consumes": list(PATCH_TYPES if action == "patch" else _JSON_TYPES),
        "produces": list(_JSON_TYPES),
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "schema": answer}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": group, "kind": name, "version": version},
    }


def _path_parameters(*names: str) -> list[JSON]:
    return [
        {"name": name, "in": "path", "required": True, "type": "string", "uniqueItems": True}
        for name in names
    ]


def _item(kind: tuple[str, str, str], verbs: tuple[str, ...]) -> JSON:
    found: JSON = {}
    for verb in verbs:
        if verb not in _ACTIONS:
            continue
        method, action, query = _ACTIONS[verb]
        body: JSON | None = None
        if verb == "patch":
            body = {"$ref": f"#/definitions/{PATCH}"}
        elif verb == "update":
            body = _schema(kind)
        found[method] = _operation(action, kind, query, body, _schema(kind))
    return found


def resource_paths(resource: ResourceInfo) -> JSON:
    """OpenAPI v2 path items of a resource and its subresources."""
    kind = (resource.group, resource.version, resource.kind)
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    base = f"{resource.api_path}{scope}/{resource.plural}"
    parameters = ("namespace",) if resource.namespaced else ()
    list_schema = _schema((resource.group, resource.version, resource.kind + "List"))
    collection: JSON = {"parameters": _path_parameters(*parameters)}
    if "list" in resource.verbs:
        collection["get"] = _operation("list", kind, _LISTS, None, list_schema)
    if "create" in resource.verbs:
        collection["post"] = _operation("post", kind, _WRITES, _schema(kind), _schema(kind))
    if "deletecollection" in resource.verbs:
        query = tuple(dict.fromkeys((*_LISTS, *_DELETES)))
        collection["delete"] = _operation("deletecollection", kind, query, None, list_schema)
    paths: JSON = {base: collection}
    item = _item(kind, resource.verbs)
    if item:
        item["parameters"] = _path_parameters("name", *parameters)
        paths[f"{base}/{{name}}"] = item
    for sub in resource.subresources:
        if resource.is_proxied(sub.name):
            continue
        sub_kind = _subresource_kind(resource, sub)
        sub_item = _item(sub_kind, sub.verbs)
        if "create" in sub.verbs:
            schema = _schema(sub_kind)
            sub_item["post"] = _operation("post", sub_kind, _WRITES, schema, schema)
        sub_item["parameters"] = _path_parameters("name", *parameters)
        paths[f"{base}/{{name}}/{sub.name}"] = sub_item
    return paths


def to_v3(paths: JSON) -> JSON:
    """The same path items as OpenAPI v3 writes them (references stay those of v2)."""
    return {path: _v3_item(item) for path, item in paths.items()}


def _v3_item(item: JSON) -> JSON:
    return {
        key: [_v3_parameter(one) for one in value] if key == "parameters" else _v3_operation(value)
        for key, value in item.items()
    }


def _v3_parameter(supplied: JSON) -> JSON:
    kept: JSON = {key: value for key, value in supplied.items() if key in _V3_PARAMETER}
    return {**kept, "schema": {"type": supplied["type"], "uniqueItems": True}}


def _v3_operation(supplied: JSON) -> JSON:
    found: dict[str, Any] = {
        key: value for key, value in supplied.items() if key.startswith("x-kubernetes")
    }
    body = next((p["schema"] for p in supplied["parameters"] if p["in"] == "body"), None)
    found["parameters"] = [_v3_parameter(p) for p in supplied["parameters"] if p["in"] != "body"]
    if body is not None:
        content = {media_type: {"schema": body} for media_type in supplied["consumes"]}
        found["requestBody"] = {"content": content, "required": True}
    answer = supplied["responses"]["200"]
    content = {media_type: {"schema": answer["schema"]} for media_type in supplied["produces"]}
    found["responses"] = {"200": {"description": answer["description"], "content": content}}
    return found


# Version 2 in protobuf. The messages' fields come from ``data/openapi-v2-document.json``.

_PACKAGE = "openapi.v2"
_UNUSED = "google.protobuf.Any"
"""A type of another file. Messages with such a field have an alternative field, which we write."""
_PARAMETER = ("required", "in", "name", "type")


@cache
def _classes() -> dict[str, Any]:
    loaded = load_json("openapi-v2-document.json")
    messages = {
        message["name"]: [
            MessageField(
                each["number"],
                each["name"],
                each["type"].removeprefix(f"{_PACKAGE}."),
                each.get("repeated", False),
            )
            for each in message["fields"]
            if each["type"] != _UNUSED
        ]
        for message in loaded["messages"]
    }
    return message_classes(_PACKAGE, messages)


def encode_document(document: JSON) -> bytes:
    """``openapi.v2.Document`` of an OpenAPI v2 document in its JSON form."""
    made: bytes = (
        _classes()["Document"](
            swagger=document["swagger"],
            info=document["info"],
            paths={"path": [_named(k, _path_item(v)) for k, v in document["paths"].items()]},
            definitions=_map(document["definitions"]),
        )
    ).SerializeToString()
    return made


def _named(name: str, value: JSON) -> JSON:
    return {"name": name, "value": value}


def _map(schemas: JSON) -> JSON:
    found = [_named(name, _protobuf_schema(schema)) for name, schema in schemas.items()]
    return {"additional_properties": found}


def _any(value: Any) -> JSON:
    return {"yaml": json.dumps(value, separators=(",", ":")) + "\n"}


def _extensions(supplied: JSON) -> list[JSON]:
    return [_named(key, _any(value)) for key, value in supplied.items() if key.startswith("x-")]


def _protobuf_schema(supplied: JSON) -> JSON:
    found: JSON = {"vendor_extension": _extensions(supplied)}
    for key, name in (("$ref", "_ref"), ("format", "format"), ("required", "required")):
        if key in supplied:
            found[name] = supplied[key]
    if "enum" in supplied:
        found["enum"] = [_any(value) for value in supplied["enum"]]
    if "type" in supplied:
        found["type"] = {"value": [supplied["type"]]}
    if "items" in supplied:
        found["items"] = {"schema": [_protobuf_schema(supplied["items"])]}
    if "properties" in supplied:
        found["properties"] = _map(supplied["properties"])
    if "additionalProperties" in supplied:
        found["additional_properties"] = {
            "schema": _protobuf_schema(supplied["additionalProperties"])
        }
    return found


def _parameter(supplied: JSON) -> JSON:
    if supplied["in"] == "body":
        body = {key: supplied[key] for key in ("name", "in", "required")}
        return {
            "parameter": {
                "body_parameter": {**body, "schema": _protobuf_schema(supplied["schema"])}
            }
        }
    plain: JSON = {"unique_items": True}
    plain.update((key, value) for key, value in supplied.items() if key in _PARAMETER)
    kind = f"{supplied['in']}_parameter_sub_schema"
    return {"parameter": {"non_body_parameter": {kind: plain}}}


def _protobuf_operation(supplied: JSON) -> JSON:
    responses = [
        _named(
            code,
            {
                "response": {
                    "description": response["description"],
                    "schema": {"schema": _protobuf_schema(response["schema"])},
                }
            },
        )
        for code, response in supplied["responses"].items()
    ]
    return {
        "consumes": supplied["consumes"],
        "produces": supplied["produces"],
        "parameters": [_parameter(parameter) for parameter in supplied["parameters"]],
        "responses": {"response_code": responses},
        "vendor_extension": _extensions(supplied),
    }


def _path_item(supplied: JSON) -> JSON:
    return {
        key: [_parameter(one) for one in value]
        if key == "parameters"
        else _protobuf_operation(value)
        for key, value in supplied.items()
    }


_V2_REF = "#/definitions/"
_V3_REF = "#/components/schemas/"
_TITLE = "Kubernetes"


def _bytes(document: JSON) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _v2_document() -> JSON:
    paths: JSON = {}
    for resource in resources.listed_resources():
        paths.update(resource_paths(resource))
    return {
        "swagger": "2.0",
        "info": {"title": _TITLE, "version": discovery.GIT_VERSION},
        "paths": paths,
        "definitions": {
            **{name: described(name, each) for name, each in definitions.definitions().items()},
            PATCH: {"type": "object"},
        },
    }


@cache
def v2_json() -> bytes:
    """The OpenAPI v2 document as JSON."""
    return _bytes(_v2_document())


@cache
def v2_protobuf() -> bytes:
    """The OpenAPI v2 document as the protobuf message ``openapi.v2.Document``."""
    return encode_document(_v2_document())


def _group_version_paths() -> dict[str, tuple[str, str]]:
    return {
        f"apis/{group}/{version}" if group else f"api/{version}": (group, version)
        for group, version in resources.group_versions()
    }


@lru_cache(maxsize=2)
def v3_document(group_version_path: str) -> bytes | None:
    """The OpenAPI v3 document of ``api/v1`` or ``apis/GROUP/VERSION``; None if not served."""
    desired = _group_version_paths().get(group_version_path)
    if desired is None:
        return None
    paths: JSON = {}
    kinds: set[str] = set()
    for resource in resources.listed_resources():
        if (resource.group, resource.version) == desired:
            paths.update(to_v3(resource_paths(resource)))
            kinds.update(kind_names(resource))
    document = {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": discovery.GIT_VERSION},
        "paths": paths,
        "components": {"schemas": _v3_schemas(kinds)},
    }
    return _bytes(document).replace(_V2_REF.encode(), _V3_REF.encode())


def _v3_schemas(kinds: set[str]) -> JSON:
    """The named definitions and all that they refer to."""
    found: JSON = {PATCH: {"type": "object"}}
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
