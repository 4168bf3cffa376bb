"""Protobuf messages made from a table of field numbers, with JSON in them. Pure.

The API's own form has no generated code here: docs/reference/api-wire.json contains the number and
the kind of each field. Prefixes of a kind: ``*`` a pointer, ``[]`` a list, ``map `` a map of
strings. After ``^``, a message's fields are those of the object around it. After ``!``, JSON has a
plain value even if it is empty. Loads the protobuf library; must never put anything into its
process-wide pool.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kubeletpy.base.api.times import parse_microseconds, parse_time
from kubeletpy.base.structs import Component, Struct

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


OWN_FORM: Mapping[str, tuple[MessageField, ...]] = {
    "Quantity": (MessageField(1, "text", "string"),),
    "Time": (MessageField(1, "seconds", "int64"), MessageField(2, "nanos", "int64")),
    "MicroTime": (MessageField(1, "seconds", "int64"), MessageField(2, "nanos", "int64")),
    "IntOrString": (
        MessageField(1, "type", "int64"),
        MessageField(2, "number", "int64"),
        MessageField(3, "text", "string"),
    ),
    "Duration": (MessageField(1, "nanoseconds", "int64"),),
    "FieldsV1": (MessageField(1, "raw", "bytes"),),
    "RawExtension": (MessageField(1, "raw", "bytes"),),
    "ExtraValue": (MessageField(1, "items", "string", repeated=True),),
}
"""Messages that have another form in JSON."""

_PLAIN = {"string": str, "int": int, "bool": bool}


class Unfit(ValueError):
    """An object that can't be written as its message; the text names the field."""


Table = Mapping[str, Mapping[str, list[str]]]
"""Message -> its fields: number -> name in JSON, kind."""


def consisting_of(table: Table, roots: Iterable[str]) -> Table:
    """The messages of a table that some messages consist of, sorted by name."""
    found, left = set(), list(roots)
    while left:
        name = left.pop()
        if name in table and name not in found:
            found.add(name)
            left += [_bare(kind) for _, kind in table[name].values()]
    return {name: table[name] for name in sorted(found)}


class ApiMessages:
    """The messages of a table; ``group/Kind`` names one."""

    def __init__(
        self, table: Table, others: Mapping[str, tuple[MessageField, ...]] | None = None
    ) -> None:
        """``others``: messages besides those of the table, by name."""
        self.fields = {
            message: {int(number): (name, kind) for number, (name, kind) in fields.items()}
            for message, fields in table.items()
        }
        """Message -> number of a field -> its name in JSON, and its kind as the table has it."""
        self._classes = _classes(self.fields, others or {})
        self._writing: dict[str, dict[str, tuple[tuple[str, ...], str]]] = {}

    def message(self, name: str) -> Any:
        """The class of a message. Raises KeyError."""
        return self._classes[_class_name(name)]

    def encode(self, name: str, obj: Mapping[str, Any], *, whole: bool = False) -> bytes:
        """An object in the API's protobuf. Fields that the table does not have are left out.

        Args:
            whole: nothing may be left out but ``kind`` and ``apiVersion``.

        Raises:
            KeyError: there is no such message.
            Unfit: a value has another type than its field, or would be left out.
        """
        message = self.message(name)()
        if whole:
            obj = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
        _Filling(self._ways, whole).fill(name, message, obj)
        return bytes(message.SerializeToString())

    def _ways(self, name: str) -> dict[str, tuple[tuple[str, ...], str]]:
        """Name of a message's field in JSON -> the attributes that lead to it, and its kind."""
        known = self._writing.get(name)
        if known is None:
            known = self._writing[name] = {}
            for number, (key, kind) in self.fields[name].items():
                if kind.startswith("^"):
                    for inner, (path, what) in self._ways(kind[1:]).items():
                        known[inner] = ((f"f{number}", *path), what)
                else:
                    known[key] = ((f"f{number}",), kind.lstrip("!"))
        return known


class _Filling(Component):
    """Puts one object into its message."""

    ways: Callable[[str], dict[str, tuple[tuple[str, ...], str]]]
    whole: bool

    def fill(self, name: str, message: Any, obj: Any) -> None:
        """Set the fields of a message from an object. Raises Unfit."""
        if not isinstance(obj, Mapping):
            raise Unfit(f"{name} is not an object")
        ways = self.ways(name)
        for key, value in obj.items():
            way = ways.get(key)
            if value is None:
                continue
            if way is None:
                if self.whole:
                    raise Unfit(f"{name.rpartition('/')[2]}.{key} is not known")
                continue
            (*around, attribute), kind = way
            inside = message
            for each in around:
                inside = getattr(inside, each)
            try:
                self._set(inside, attribute, kind, value)
            except (TypeError, ValueError, AttributeError) as error:
                what = error if isinstance(error, Unfit) else type(error).__name__
                raise Unfit(f"{name.rpartition('/')[2]}.{key}: {what}") from None

    def _set(self, message: Any, attribute: str, kind: str, value: Any) -> None:
        if kind.startswith("[]"):
            field = getattr(message, attribute)
            if kind[2:] in _PLAIN:
                field.extend(value)
            else:
                for each in value:
                    self._fill_one(kind[2:], field.add(), each)
        elif kind.startswith("map "):
            for key, each in value.items():
                self._set_one(getattr(message, attribute).add(key=key), "value", kind[4:], each)
        else:
            self._set_one(message, attribute, kind.lstrip("*"), value)

    def _set_one(self, message: Any, attribute: str, kind: str, value: Any) -> None:
        if kind in _PLAIN:
            if not isinstance(value, _PLAIN[kind]):
                raise Unfit(f"{type(value).__name__} instead of {kind}")
            setattr(message, attribute, value)
            return
        if kind == "bytes":
            setattr(message, attribute, _bytes(value))
            return
        inside = getattr(message, attribute)
        inside.SetInParent()
        self._fill_one(kind, inside, value)

    def _fill_one(self, kind: str, message: Any, value: Any) -> None:
        special = _SPECIAL.get(kind)
        if special is None:
            self.fill(kind, message, value)
        else:
            special(message, value)


def _classes(
    table: Mapping[str, Mapping[int, tuple[str, str]]],
    others: Mapping[str, tuple[MessageField, ...]],
) -> dict[str, Any]:
    messages: dict[str, tuple[MessageField, ...]] = {**OWN_FORM, **others}
    for message, fields in table.items():
        made = []
        for number, (_, kind) in fields.items():
            name = f"f{number}"
            bare = _bare(kind)
            inner = "int64" if bare == "int" else _class_name(bare)
            if kind.startswith("map "):
                entry = f"{_class_name(message)}_{number}"
                messages[entry] = (
                    MessageField(1, "key", "string"),
                    MessageField(2, "value", inner),
                )
                made.append(MessageField(number, name, entry, repeated=True))
            else:
                made.append(MessageField(number, name, inner, repeated=kind.startswith("[]")))
        messages[_class_name(message)] = tuple(made)
    return message_classes("kubernetes", messages)


def _bare(kind: str) -> str:
    """The message or scalar of a kind."""
    return kind.lstrip("*^!").removeprefix("[]").removeprefix("map ")


def _class_name(message: str) -> str:
    return re.sub(r"\W", "_", message)


def _quantity(message: Any, value: Any) -> None:
    message.text = str(value)


def _bytes(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise Unfit("no base64") from None


def _time(message: Any, value: Any) -> None:
    message.seconds = int(parse_time(value))


def _micro_time(message: Any, value: Any) -> None:
    message.seconds, micros = divmod(parse_microseconds(value), 1_000_000)
    message.nanos = micros * 1000


def _int_or_string(message: Any, value: Any) -> None:
    message.type = int(isinstance(value, str))
    if isinstance(value, str):
        message.text = value
    else:
        message.number = value


def _raw(message: Any, value: Any) -> None:
    message.raw = json.dumps(value, separators=(",", ":")).encode()


def _extra(message: Any, value: Any) -> None:
    message.items.extend(value)


_SPECIAL: dict[str, Callable[[Any, Any], None]] = {
    "Quantity": _quantity,
    "Time": _time,
    "MicroTime": _micro_time,
    "IntOrString": _int_or_string,
    "FieldsV1": _raw,
    "RawExtension": _raw,
    "ExtraValue": _extra,
}
