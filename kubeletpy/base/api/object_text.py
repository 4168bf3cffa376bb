"""Decodes the text of objects: compact, without nulls, and the same part only once. Pure.

The API server keeps in ``metadata.managedFields`` which client set which field. Nobody here reads
it, and the server keeps its own when an object is sent without it. It is the larger part of a pod
with six containers, and is cut from the text.

A status write is answered with the object, and a watch sends the same object a moment later; the
next write changes the status, not the spec. So the values of ``spec`` and ``status`` are kept for a
while with their text. Objects are never changed in place: they may share values. Secrets have no
such fields.

Objects are kept for as long as their pods run, and repeat the same strings. They share one copy of
each, which halves the memory of a pod.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

from msgspec import DecodeError, Raw
from msgspec.json import Decoder, encode

# A null field is an absent field: Kubernetes' JSON decodes both to the zero value. The API server
# writes null where a type has no ``omitempty``: each pod condition has ``"lastProbeTime": null``.

MOST_SHARED = 2048
"""Strings that are known to be repeated; with more of them all are learned anew."""
LONGEST_SHARED = 64
"""Characters of a value; the API bounds those of keys."""
MOST_TEXT = 128 << 10
"""Bytes; longer text is decoded faster instead, as others wait for it."""
_REPEATED = frozenset(
    [
        "apiVersion",
        "creationTimestamp",
        "dnsPolicy",
        "hostIP",
        "image",
        "imageID",
        "imagePullPolicy",
        "ip",
        "kind",
        "lastTransitionTime",
        "mountPath",
        "namespace",
        "nodeName",
        "phase",
        "qosClass",
        "reason",
        "restartPolicy",
        "schedulerName",
        "serviceAccount",
        "serviceAccountName",
        "startTime",
        "startedAt",
        "status",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "type",
    ]
)
"""Fields with few different values. Others are not shared: what a secret holds must not be known
for longer than the secret."""
_shared: dict[str, str] = {}


def loads(text: bytes) -> Any:
    """Decode JSON text without keys whose value is null, at any depth; list items stay.

    Raises ValueError for what is no JSON and RecursionError for what is nested too deeply.
    """
    # an object's keys go as soon as it is decoded: a walk afterwards takes five times as long
    if len(text) > MOST_TEXT:
        # also without nulls: with a hook the interpreter lets other threads run in between
        return json.loads(text, object_hook=_without_nulls)
    try:
        return json.loads(text, object_hook=_in_shared_parts)
    finally:
        if len(_shared) > MOST_SHARED:
            _shared.clear()


def _without_nulls(decoded: dict[str, Any]) -> dict[str, Any]:
    if None in decoded.values():
        return {key: value for key, value in decoded.items() if value is not None}
    return decoded


def _in_shared_parts(decoded: dict[str, Any]) -> dict[str, Any]:
    share = _shared.setdefault
    return {
        share(key, key): share(value, value)
        if key in _REPEATED and type(value) is str and len(value) <= LONGEST_SHARED
        else value
        for key, value in decoded.items()
        if value is not None
    }


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
            return {**loads(encode(fields)), "object": self._object(_split(event))}
        except DecodeError:  # not of that form
            return loads(text)

    def _object(self, fields: dict[str, Raw]) -> Any:
        large = {name: bytes(fields.pop(name)) for name in ("spec", "status") if name in fields}
        if "metadata" in fields:
            metadata = _split(fields["metadata"])
            metadata.pop("managedFields", None)
            fields["metadata"] = Raw(encode(metadata))
        found = loads(encode(fields))
        for name, text in large.items():
            value = self._value(text)
            if value is not None:
                found[name] = value
        return found

    def _value(self, text: bytes) -> Any:
        if len(text) < LEAST:
            return loads(text)
        if (value := self._known.get(text)) is not None:
            self._known.move_to_end(text)
            return value
        value = self._known[text] = loads(text)
        self._held += len(text)
        while self._held > MOST:
            oldest, _ = self._known.popitem(last=False)
            self._held -= len(oldest)
        return value
