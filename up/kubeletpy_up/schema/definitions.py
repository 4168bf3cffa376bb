"""The API's type definitions (OpenAPI v2, without prose), table columns and protobuf.

Read once on demand. Must never change what it returns: callers share the same dictionaries.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.wire.api_messages import Unfit
from kubeletpy.base.wire.api_objects import MEDIA_TYPE, ApiObjects, Malformed, message_name
from kubeletpy_up import cluster_kinds
from kubeletpy_up.data import load_json
from kubeletpy_up.errors import bad_request

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


# Protobuf: what clients send is read into JSON, and answers are written in it.
#
# kubectl's typed commands (``create configmap``, ``create token``, ``drain``, …) send nothing
# else; nodes' agents request it. Field numbers come from ``data/api-wire.json``. Empty fields are
# left out, as a client that writes JSON would: :mod:`.compile` fills in what the API always
# writes.

__all__ = ["MEDIA_TYPE", "WATCH", "decode", "encode", "event", "writes"]

WATCH = f"{MEDIA_TYPE};stream=watch"
"""The content type of a watch; before each event stands its length, in four bytes."""


@cache
def _objects() -> ApiObjects:
    return ApiObjects(load_json("api-wire.json"), zeros=False)


def decode(body: bytes) -> JSON:
    """Read a body of media type ``application/vnd.kubernetes.protobuf``.

    Raises:
        ApiError: 400, malformed, or of a kind that this server can't read as protobuf.
    """
    try:
        api_version, kind, raw = _objects().open(body)
        message = message_name(api_version, kind)
        if not _objects().has_message(message):
            raise bad_request(f"{kind or 'this kind'} in {api_version} can't be read as protobuf")
        return {"kind": kind, "apiVersion": api_version, **_objects().to_json(message, raw)}
    except Malformed:
        raise bad_request("couldn't read the request as Kubernetes protobuf") from None


def writes(api_version: str, kind: str) -> bool:
    """Whether objects of a kind can be written."""
    return _objects().has_message(message_name(api_version, kind))


def encode(obj: JSON) -> bytes | None:
    """An object or a list; None if a field would be lost."""
    try:
        return _objects().enclose(obj["apiVersion"], obj["kind"], obj)
    except (KeyError, Unfit):
        return None


def event(kind: str, obj: JSON) -> bytes:
    """An event of a watch. A watch has one form: fields without a number are left out.

    Raises:
        Unfit: a value of another type than its field.
    """
    whole = _objects().messages.message("WatchEvent")(type=kind)
    whole.object.raw = _objects().enclose(obj["apiVersion"], obj["kind"], obj, whole=False)
    data: bytes = whole.SerializeToString()
    return len(data).to_bytes(4, "big") + data
