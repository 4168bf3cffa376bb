"""Protobuf messages whose fields are given in a table: classes made at run time. Pure.

For formats whose field numbers are known but which have no generated code. Loads the protobuf
library; must never put anything into its process-wide pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kubeletpy.base.structs import Struct

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _FIELD.TYPE_BOOL,
    "bytes": _FIELD.TYPE_BYTES,
    "double": _FIELD.TYPE_DOUBLE,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "string": _FIELD.TYPE_STRING,
    "uint64": _FIELD.TYPE_UINT64,
}


class MessageField(Struct, frozen=True):
    """A field: ``kind`` is a protobuf scalar type, or a message of the same table."""

    number: int
    name: str
    kind: str
    repeated: bool = False


def message_classes(package: str, messages: Mapping[str, Iterable[MessageField]]) -> dict[str, Any]:
    """The classes of a package's messages by name.

    They follow edition 2023: singular fields track presence, repeated numbers are packed, and text
    that is not UTF-8 is an error.

    Raises:
        KeyError: a kind is neither a scalar nor in the table.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package)
    file.syntax, file.edition = "editions", descriptor_pb2.EDITION_2023
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for each in fields:
            made = message.field.add(name=each.name, number=each.number)
            made.label = _FIELD.LABEL_REPEATED if each.repeated else _FIELD.LABEL_OPTIONAL
            if each.kind in messages:
                made.type, made.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{each.kind}"
            else:
                made.type = _SCALARS[each.kind]
    pool = descriptor_pool.DescriptorPool()
    described = pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(described.message_types_by_name[name])
        for name in messages
    }
