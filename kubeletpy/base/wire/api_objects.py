"""Whole Kubernetes objects in protobuf: the envelope, and messages read into JSON. Pure.

A body is ``k8s\\0`` and a ``runtime.Unknown``: apiVersion and kind, and the object's own message.
Fields that the table does not have are skipped, as protobuf intends. Hostile input: the library
bounds lengths and nesting, and a known field of another wire type is refused.

Go's JSON has more than was set (docs/reference/api-wire.json has them): plain values marked ``!``
are written even if they are empty, as is a nested object that is no pointer. A null is left out, as
:mod:`kubeletpy.base.api.object_text` does.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from kubeletpy.base.api import object_text
from kubeletpy.base.api.times import format_microseconds, format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.wire.api_messages import ApiMessages, MessageField, Table

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
AROUND: Mapping[str, tuple[MessageField, ...]] = {
    "Unknown": (
        MessageField(1, "about", "TypeMeta"),
        MessageField(2, "raw", "bytes"),
        MessageField(3, "encoding", "string"),
        MessageField(4, "media_type", "string"),
    ),
    "TypeMeta": (MessageField(1, "api_version", "string"), MessageField(2, "kind", "string")),
    "List": (
        MessageField(1, "metadata", "bytes"),
        MessageField(2, "items", "bytes", repeated=True),
    ),
    "WatchEvent": (MessageField(1, "type", "string"), MessageField(2, "object", "RawExtension")),
}
"""Messages around those of the table; a list is the same for all kinds."""
_ZEROS: Mapping[str, Any] = {"string": "", "int": 0, "bool": False}
_OWN_ZEROS: Mapping[str, Any] = {"Quantity": "0", "IntOrString": 0}
_IN_EVERY_GROUP = ("DeleteOptions", "Status")


class Malformed(ValueError):
    """The bytes are not a message of that type. The text never quotes the bytes."""


class Enclosed(NamedTuple):
    """The content of an envelope; ``raw`` is the object's own message."""

    api_version: str
    kind: str
    raw: bytes


def message_name(api_version: str, kind: str) -> str:
    """The table's name for a kind: ``core/Pod``, ``certificates.k8s.io/v1beta1/…``."""
    if kind in _IN_EVERY_GROUP:
        return f"meta/{kind}"
    group, _, version = api_version.rpartition("/")
    group = group or "core"
    return f"{group}/{kind}" if version == "v1" else f"{group}/{version}/{kind}"


_Read = Callable[[Any], Any] | None
"""Makes JSON of a value; None: it is JSON already."""


class _Way(NamedTuple):
    """How one field is read: ``empty``: whether an empty value is kept; ``inline``: its fields are
    those of the object around it."""

    key: str
    read: _Read
    empty: bool = False
    inline: bool = False


class _Message:
    """Reads one message: ``zeros`` and ``structs`` are there in any case."""

    def __init__(self) -> None:
        self.ways: dict[int, _Way] = {}
        self.zeros: JSON = {}
        self.structs: list[tuple[str, Callable[[], Any]]] = []

    def to_json(self, message: Any) -> JSON:
        """The message as JSON. Raises Malformed, ValueError, OverflowError, RecursionError."""
        found = self.zeros.copy()
        if UnknownFieldSet(message):
            _checked(message)
        ways = self.ways
        for field, supplied in message.ListFields():
            key, read, empty, inline = ways[field.number]
            value = supplied if read is None else read(supplied)
            if inline:
                found.update(value)
            elif value or (empty and value is not None):
                found[key] = value
        for key, made in self.structs:
            if key not in found:
                found[key] = made()
        return found


class ApiObjects:
    """Reads and writes objects of the messages of a table."""

    def __init__(self, table: Table, *, zeros: bool = True) -> None:
        """``zeros``: with all that Go's JSON has; else what is empty is left out."""
        self.messages = ApiMessages(table, AROUND)
        self._zeros = zeros
        self._known: dict[str, _Message] = {}

    def has_message(self, name: str) -> bool:
        """Whether the table has a message."""
        return name in self.messages.fields

    def open(self, body: bytes) -> Enclosed:
        """Take an object out of its envelope. Raises Malformed."""
        if not body.startswith(MAGIC):
            raise Malformed("no Kubernetes protobuf")
        found = self._parsed("Unknown", body[len(MAGIC) :])
        if found.encoding or found.media_type not in ("", MEDIA_TYPE):
            raise Malformed("an object in another encoding")
        return Enclosed(found.about.api_version, found.about.kind, found.raw)

    def enclose(
        self, api_version: str, kind: str, obj: Mapping[str, Any], *, whole: bool = True
    ) -> bytes:
        """An object or a list with its envelope.

        Args:
            whole: no field may be left out.

        Raises:
            KeyError: the table doesn't have its kind.
            Unfit: it has a field of another type, or that would be left out.
        """
        name, item = (message_name(api_version, each) for each in (kind, kind.removesuffix("List")))
        if item != name and self.has_message(item):
            parts = self.messages.message("List")(
                metadata=self.messages.encode("meta/ListMeta", obj["metadata"], whole=whole),
                items=[self.messages.encode(item, each, whole=whole) for each in obj["items"]],
            )
            raw = parts.SerializeToString()
        else:
            raw = self.messages.encode(name, obj, whole=whole)
        envelope = self.messages.message("Unknown")(raw=raw)
        envelope.about.api_version, envelope.about.kind = api_version, kind
        return MAGIC + bytes(envelope.SerializeToString())

    def to_json(self, name: str, raw: bytes) -> JSON:
        """A message as JSON. Raises Malformed, and KeyError if the table doesn't have it."""
        self.messages.message(name)
        try:
            return self._message(name).to_json(self._parsed(name, raw))
        except Malformed:
            raise
        except (ValueError, OverflowError, OSError, RecursionError):
            raise Malformed("a value that no such message has") from None

    def items(self, name: str, raw: bytes) -> list[JSON]:
        """The items of a list's own message. Raises Malformed, and KeyError as ``to_json``."""
        return self._items(name, self._parsed("List", raw))

    def decode(self, body: bytes) -> JSON:
        """An object or a list in its envelope, as JSON has it. Raises Malformed."""
        api_version, kind, raw = self.open(body)
        name, item = (message_name(api_version, each) for each in (kind, kind.removesuffix("List")))
        if self.has_message(name):
            found = self.to_json(name, raw)
        elif self.has_message(item):
            parts = self._parsed("List", raw)
            found = {
                "metadata": self.to_json("meta/ListMeta", parts.metadata),
                "items": self._items(item, parts),
            }
        else:
            raise Malformed("a kind that is not in the table")
        return {"kind": kind, "apiVersion": api_version, **found}

    def event(self, frame: bytes) -> tuple[str, JSON]:
        """Type and object of a frame of a watch. Raises Malformed."""
        found = self._parsed("WatchEvent", frame)
        return found.type, self.decode(_checked(found.object).raw)

    def _items(self, name: str, parts: Any) -> list[JSON]:
        return [self.to_json(name, each) for each in parts.items]

    def _parsed(self, name: str, raw: bytes) -> Any:
        try:
            return _checked(self.messages.message(name).FromString(raw))
        except DecodeError:
            raise Malformed("not a message of its kind") from None

    def _message(self, name: str) -> _Message:
        """How a message is read; worked out when it is first needed."""
        known = self._known.get(name)
        if known is None:
            made = _Message()
            for number, (key, kind) in self.messages.fields[name].items():
                self._add(made, number, key, kind)
            # whole when others see it: threads read, too
            known = self._known.setdefault(name, made)
        return known

    def _add(self, made: _Message, number: int, key: str, kind: str) -> None:
        bare = kind.lstrip("!")
        made.ways[number] = self._way(key, bare)
        if not self._zeros:
            return
        if kind.startswith("!"):
            made.zeros[key] = _ZEROS[bare]
        elif bare in _OWN_ZEROS:
            made.zeros[key] = _OWN_ZEROS[bare]
        elif bare.startswith("^"):
            inner = self._message(bare[1:])
            made.zeros.update(inner.zeros)
            made.structs.extend(inner.structs)
        elif bare in self.messages.fields:
            made.structs.append((key, self._maker(bare)))

    def _maker(self, name: str) -> Callable[[], JSON]:
        return lambda: self._message(name).to_json(self.messages.message(name)())

    def _way(self, key: str, kind: str) -> _Way:
        if kind.startswith("^"):
            return _Way(key, self._reader(kind[1:]), inline=True)
        if kind.startswith("*"):
            return _Way(key, self._reader(kind[1:]), empty=True)
        if kind.startswith("[]"):
            return _Way(key, _of_list(self._reader(kind[2:])))
        if kind.startswith("map "):
            return _Way(key, _of_map(self._reader(kind[4:])))
        # what is no pointer is written by Go even if it is unset: for it, empty means absent
        special = self._zeros and kind not in (*_ZEROS, "bytes")
        return _Way(key, self._reader(kind), empty=special)

    def _reader(self, kind: str) -> _Read:
        if kind in _ZEROS:
            return None
        return _SPECIAL.get(kind) or self._message(kind).to_json


def _of_list(read: _Read) -> Callable[[Any], Any]:
    return list if read is None else lambda items: [read(each) for each in items]


def _of_map(read: _Read) -> Callable[[Any], Any]:
    if read is None:
        return lambda entries: {_checked(each).key: each.value for each in entries}
    return lambda entries: {_checked(each).key: read(each.value) for each in entries}


def _checked(message: Any) -> Any:
    """A message none of whose known fields came with another wire type.

    The library treats such fields as unknown.
    """
    unknown = UnknownFieldSet(message)
    if unknown:
        known = message.DESCRIPTOR.fields_by_number
        if any(unknown[at].field_number in known for at in range(len(unknown))):
            raise Malformed("a field of another type")
    return message


_second = lru_cache(maxsize=1024)(format_time)
"""A pod has few different times, and each is written in several places."""


def _time(message: Any) -> str | None:
    return _second(message.seconds) if _checked(message).ListFields() else None


def _micro_time(message: Any) -> str | None:
    if not _checked(message).ListFields():
        return None
    return format_microseconds(message.seconds * 1_000_000 + message.nanos // 1000)


def _json(message: Any) -> Any:
    raw = _checked(message).raw
    return object_text.loads(raw) if raw else None


_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "Quantity": lambda message: _checked(message).text or "0",
    "Time": _time,
    "MicroTime": _micro_time,
    "IntOrString": lambda each: each.text if _checked(each).type == 1 else each.number,
    "FieldsV1": _json,
    "RawExtension": _json,
    "ExtraValue": lambda message: list(_checked(message).items),
    "bytes": lambda value: base64.b64encode(value).decode(),
}
