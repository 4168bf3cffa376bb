"""Removes ``metadata.managedFields`` from the text of an object, before it is decoded. Pure.

The API server keeps there which client set which field. Nobody here reads it, and the server keeps
its own when an object is sent without it. It is the larger part of a pod with six containers.
"""

from __future__ import annotations

from msgspec import DecodeError, Raw
from msgspec.json import Decoder, encode

FIELD = "managedFields"
_QUOTED = f'"{FIELD}"'.encode()
_fields = Decoder(dict[str, Raw]).decode
"""The fields of an object, with the text of each value."""


def without_managed_fields(text: bytes) -> bytes:
    """The text of an object, or of an event of a watch, without who set its fields.

    A list stays as it is, and so does what is no object.
    """
    if _QUOTED not in text:
        return text
    try:
        fields = _fields(text)
        if "object" not in fields:
            return _cut(fields)
        fields["object"] = Raw(_cut(_fields(fields["object"])))
        return encode(fields)
    except DecodeError:
        return text


def _cut(fields: dict[str, Raw]) -> bytes:
    if "metadata" in fields:
        metadata = _fields(fields["metadata"])
        metadata.pop(FIELD, None)
        fields["metadata"] = Raw(encode(metadata))
    return encode(fields)
