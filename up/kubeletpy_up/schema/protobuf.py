"""Objects that clients send as Kubernetes protobuf, read into JSON.

kubectl's typed commands (``create configmap``, ``create token``, ``drain``, …) send nothing else.
Field numbers come from ``data/api-wire.json``. Fields that the table does not know are skipped, as
protobuf intends. Hostile input: the library bounds lengths and nesting.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from kubeletpy.api.times import format_micro_time, format_time
from kubeletpy.api.types import JSON
from kubeletpy.wire.api_messages import ApiMessages
from kubeletpy.wire.messages import Field
from kubeletpy_up.data import load_json
from kubeletpy_up.errors import bad_request

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_ENVELOPE, _ABOUT = "Unknown", "TypeMeta"
_AROUND = {
    _ENVELOPE: (Field(1, "about", _ABOUT), Field(2, "raw", "bytes")),
    _ABOUT: (Field(1, "api_version", "string"), Field(2, "kind", "string")),
}
"""Messages that wrap the object."""


class _Malformed(Exception):
    """The bytes are not a message of that type."""


@cache
def _messages() -> ApiMessages:
    return ApiMessages(load_json("api-wire.json"), _AROUND)


def decode(body: bytes) -> JSON:
    """Read a body of media type ``application/vnd.kubernetes.protobuf``.

    Raises:
        ApiError: 400, malformed, or of a kind that this server can't read as protobuf.
    """
    try:
        if not body.startswith(_MAGIC):
            raise _Malformed
        envelope = _messages().message(_ENVELOPE).FromString(body[len(_MAGIC) :])
        kind, api_version = envelope.about.kind, envelope.about.api_version
        group = api_version.rpartition("/")[0] or "core"
        message = "meta/DeleteOptions" if kind == "DeleteOptions" else f"{group}/{kind}"
        if message not in _messages().fields:
            raise bad_request(f"{kind or 'this kind'} in {api_version} can't be read as protobuf")
        found = _messages().message(message).FromString(envelope.raw)
        return {"kind": kind, "apiVersion": api_version, **_object(message, found)}
    except (_Malformed, DecodeError, ValueError, OverflowError, RecursionError):
        raise bad_request("couldn't read the request as Kubernetes protobuf") from None


def _checked(message: Any) -> Any:
    """A message none of whose known fields came with another wire type.

    The library treats such fields as unknown.
    """
    known = message.DESCRIPTOR.fields_by_number
    unknown = UnknownFieldSet(message)
    if any(unknown[at].field_number in known for at in range(len(unknown))):
        raise _Malformed
    return message


def _object(name: str, message: Any) -> JSON:
    known = _messages().fields[name]
    found: JSON = {}
    for field, value in _checked(message).ListFields():
        key, kind = known[field.number]
        if kind.startswith("^"):
            found.update(_object(kind[1:], value))
        elif kind.startswith("[]"):
            found[key] = [_value(kind[2:], each) for each in value]
        elif kind.startswith("map "):
            found[key] = {each.key: _value(kind[4:], _checked(each).value) for each in value}
        elif kind.startswith("*"):
            found[key] = _value(kind[1:], value)
        else:
            plain = _value(kind, value)
            # Go writes a field that is no pointer even if it is unset: empty means absent.
            if plain not in ("", 0, False, None, {}):
                found[key] = plain
    return found


def _value(kind: str, value: Any) -> Any:
    if kind in ("string", "int", "bool"):
        return value
    if kind == "bytes":
        return base64.b64encode(value).decode()
    special = _SPECIAL.get(kind)
    return special(_checked(value)) if special is not None else _object(kind, value)


def _time(message: Any, *, micro: bool = False) -> str | None:
    if not message.ListFields():
        return None
    if micro:
        return format_micro_time(message.seconds + message.nanos / 1e9)
    return format_time(message.seconds)


_SPECIAL: dict[str, Any] = {
    "Quantity": lambda message: message.text if message.HasField("text") else "0",
    "Time": _time,
    "MicroTime": lambda message: _time(message, micro=True),
    "IntOrString": lambda message: message.text if message.type == 1 else message.number,
    "Duration": lambda message: f"{message.nanoseconds}ns",
    "FieldsV1": lambda message: json.loads(message.raw if message.HasField("raw") else "{}"),
    "RawExtension": lambda message: json.loads(message.raw if message.HasField("raw") else "null"),
    "ExtraValue": lambda message: list(message.items),
}
