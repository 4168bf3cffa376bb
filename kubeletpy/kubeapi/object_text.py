"""Decodes the text of objects, without what is not read and without decoding the same twice. Pure.

The API server keeps in ``metadata.managedFields`` which client set which field. Nobody here reads
it, and the server keeps its own when an object is sent without it. It is the larger part of a pod
with six containers, and is cut from the text.

A status write is answered with the object, and a watch sends the same object a moment later; the
next write changes the status, not the spec. So the values of ``spec`` and ``status`` are kept for a
while with their text. Objects are never changed in place: they may share values. Secrets have no
such fields.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from msgspec import DecodeError, Raw
from msgspec.json import Decoder, encode

from kubeletpy.base.api import nulls

LEAST, MOST = 512, 256 << 10
"""Bytes of the shortest text that is kept with its value, and of all that are kept."""
_split = Decoder(dict[str, Raw]).decode
"""The fields of an object, with the text of each value."""


class ObjectText:
    """Decodes objects; use it in one thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Any] = OrderedDict()
        """Text -> value; the ones that were not used for the longest time are dropped first."""
        self._held = 0

    def decode(self, text: bytes) -> Any:
        """The decoded object, or event of a watch, without nulls. Raises ValueError and
        RecursionError."""
        try:
            fields = _split(text)
            event = fields.pop("object", None)
            if event is None:
                return self._object(fields)
            return {**nulls.loads(encode(fields)), "object": self._object(_split(event))}
        except DecodeError:  # not of that form
            return nulls.loads(text)

    def _object(self, fields: dict[str, Raw]) -> Any:
        large = {name: bytes(fields.pop(name)) for name in ("spec", "status") if name in fields}
        if "metadata" in fields:
            metadata = _split(fields["metadata"])
            metadata.pop("managedFields", None)
            fields["metadata"] = Raw(encode(metadata))
        found = nulls.loads(encode(fields))
        for name, text in large.items():
            value = self._value(text)
            if value is not None:
                found[name] = value
        return found

    def _value(self, text: bytes) -> Any:
        if len(text) < LEAST:
            return nulls.loads(text)
        if (value := self._known.get(text)) is not None:
            self._known.move_to_end(text)
            return value
        value = self._known[text] = nulls.loads(text)
        self._held += len(text)
        while self._held > MOST:
            oldest, _ = self._known.popitem(last=False)
            self._held -= len(oldest)
        return value
