"""The API's type definitions (OpenAPI v2, without prose) and table columns, read once on demand.

Must never change what it returns: callers share the same dictionaries.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kubeletpy_up import cluster_kinds
from kubeletpy_up.data import load_json

Definition = dict[str, Any]

QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.Time"
MICRO_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
FIELDS_V1 = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"
_REF = "#/definitions/"
_GVK = "x-kubernetes-group-version-kind"


@cache
def definitions() -> dict[str, Definition]:
    """All definitions by their full name (``io.k8s.api.core.v1.Pod``).

    A file beside that of the agent's own types has the types that only the API serves.
    """
    loaded: dict[str, Definition] = load_json("api-schema.json")
    more = load_json("api-schema-more.json")
    return {**loaded, **more, **cluster_kinds.definitions()}


@cache
def _by_kind() -> dict[tuple[str, str, str], str]:
    return {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, definition in definitions().items()
        for gvk in definition.get(_GVK, ())
    }


def definition_name(group: str, version: str, kind: str) -> str | None:
    """Full name of a kind's definition, or None for a kind without one."""
    return _by_kind().get((group, version, kind))


def reference(schema: Definition) -> str | None:
    """Name of the definition that a schema refers to, or None."""
    ref = schema.get("$ref")
    return ref.removeprefix(_REF) if ref else None


def resolve(schema: Definition | None) -> Definition:
    """Follow a reference; an unknown type is ``{}``."""
    if not schema:
        return {}
    name = reference(schema)
    return definitions().get(name, {}) if name else schema


def definition(name: str | None) -> Definition:
    """The definition of that name, ``{}`` for None or an unknown one."""
    return definitions().get(name, {}) if name else {}
