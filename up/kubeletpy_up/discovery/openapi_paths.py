"""The operations of the OpenAPI documents, as kubectl uses them.

kubectl finds the patch operation of a kind by ``x-kubernetes-group-version-kind``. From it, it
reads the query parameters ``dryRun`` and ``fieldValidation`` and the patch types. ``explain`` finds
the kind of a resource by the path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeletpy_up.schema import definitions

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.resources import ResourceInfo, SubresourceInfo

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


def _v3_parameter(given: JSON) -> JSON:
    kept: JSON = {key: value for key, value in given.items() if key in _V3_PARAMETER}
    return {**kept, "schema": {"type": given["type"], "uniqueItems": True}}


def _v3_operation(given: JSON) -> JSON:
    found: dict[str, Any] = {
        key: value for key, value in given.items() if key.startswith("x-kubernetes")
    }
    body = next((p["schema"] for p in given["parameters"] if p["in"] == "body"), None)
    found["parameters"] = [_v3_parameter(p) for p in given["parameters"] if p["in"] != "body"]
    if body is not None:
        content = {media_type: {"schema": body} for media_type in given["consumes"]}
        found["requestBody"] = {"content": content, "required": True}
    answer = given["responses"]["200"]
    content = {media_type: {"schema": answer["schema"]} for media_type in given["produces"]}
    found["responses"] = {"200": {"description": answer["description"], "content": content}}
    return found
