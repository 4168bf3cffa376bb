"""Whether an object has the shape that the API promises, before anything is read from it.

Typed clients reject malformed objects while decoding. We work on plain JSON, so this is our
decoding step, once for each object that arrives. From then on every field is absent or what
:mod:`kubeletpy.base.api.types` declares. Unknown fields pass: newer APIs have more. Must never judge a
value that can be read: that is validation, and the API's job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

from kubeletpy.base.api.pod_fields import KINDS, fields_of
from kubeletpy.base.api.quantity import parse as parse_quantity
from kubeletpy.base.api.times import parse_time
from kubeletpy.base.structs import Struct

_Check = Callable[[Any], str]
"""Empty when a value is valid, else the path from here and the problem: ``.spec.x: is not …``."""

_NAMES = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    float: "a number",
    dict: "an object",
    list: "a list",
}
_PLAIN: dict[str, type] = {"str": str, "int": int, "bool": bool, "float": float}
_UNCHECKED = frozenset({"managedFields"})
"""Long, and not read by anything here."""
_QUANTITIES = {"ResourceRequirements": ("limits", "requests"), "PodSpec": ("overhead",)}
_TIMES = {"ObjectMeta": ("creationTimestamp", "deletionTimestamp")}
"""Fields, by kind, that are more than plain strings."""
_MAX_NAME = 253
_PATH_FIELDS = ("name", "namespace", "uid")


def pod_problem(obj: object, checked: Collection[object] = ()) -> str:
    """The fault in the shape of a decoded pod; empty when there is none.

    ``checked``: values of its fields, or of its status' fields, that were found right before, the
    same objects.
    """
    unchecked = obj
    if checked and isinstance(obj, dict):
        known = {id(value) for value in checked}
        unchecked = _without(obj, known)
        if isinstance(unchecked.get("status"), dict):
            unchecked["status"] = _without(unchecked["status"], known)
    problem = _check_of("Pod")(unchecked)
    if problem:
        return problem.removeprefix(".").removeprefix(": ")
    assert isinstance(obj, dict), "checked above"
    metadata = obj.get("metadata") or {}
    for field in _PATH_FIELDS:
        # these become parts of paths on the node
        if not _fits_in_a_path(metadata.get(field) or "x"):
            return f"metadata.{field} can't be a part of a path"
    return ""


def _without(obj: Mapping[str, Any], known: Collection[int]) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if id(value) not in known}


def _fits_in_a_path(text: str) -> bool:
    return len(text) <= _MAX_NAME and text not in (".", "..") and not set(text) & {"/", "\0", "\n"}


@cache
def _check_of(kind: str) -> _Check:
    """``kind``: a type as :mod:`kubeletpy.base.api.pod_fields` has it."""
    if kind in KINDS:
        return _object_check(kind)
    if kind.startswith("list["):
        return _list_check(_check_of(kind[len("list[") : -1]))
    if kind.startswith("dict["):
        return _map_of(_check_of(kind.partition(", ")[2][:-1]))
    if kind == "JSON":
        return _map_of(_check_of("Any"))
    plain = [_PLAIN.get(each) for each in kind.split(" | ")]
    known = tuple(each for each in plain if each is not None)
    return _Plain(known) if len(known) == len(plain) else lambda value: ""


class _Plain(Struct, frozen=True):
    """The check of a value without parts."""

    kinds: tuple[type, ...]

    def __call__(self, value: Any) -> str:
        # type(), not isinstance: true is not a number
        if type(value) in self.kinds:
            return ""
        return f": is not {' or '.join(_NAMES[kind] for kind in self.kinds)}"


def _list_check(item: _Check) -> _Check:
    def check(value: Any) -> str:
        if type(value) is not list:
            return ": is not a list"
        for index, one in enumerate(value):
            if problem := item(one):
                return f"[{index}]{problem}"
        return ""

    return check


def _map_of(item: _Check) -> _Check:
    def check(value: Any) -> str:
        if type(value) is not dict:
            return ": is not an object"
        for key, one in value.items():
            if problem := item(one):
                return f"[{key!r:.80}]{problem}"
        return ""

    return check


def _object_check(kind: str) -> _Check:
    fields: dict[str, _Check] = {}
    plain: dict[str, tuple[type, ...]] = {}

    def check(value: Any) -> str:
        if type(value) is not dict:
            return ": is not an object"
        if not fields:  # most kinds never occur
            fields.update(_field_checks(kind))
            plain.update((n, c.kinds) for n, c in fields.items() if isinstance(c, _Plain))
        for key, one in value.items():
            # most values are plain and right: a call for each doubles a large pod's time
            if type(one) in plain.get(key, ()):
                continue
            field = fields.get(key)
            if field is not None and (problem := field(one)):
                return f".{key}{problem}"
        return ""

    return check


def _field_checks(kind: str) -> dict[str, _Check]:
    fields = fields_of(kind).items()
    checks = {name: _check_of(each) for name, each in fields if name not in _UNCHECKED}
    for name in _QUANTITIES.get(kind, ()):
        checks[name] = _map_of(_quantity)
    for name in _TIMES.get(kind, ()):
        checks[name] = _time
    return checks


def _quantity(value: Any) -> str:
    if type(value) in (int, float):  # as manifests may spell it: `cpu: 1`
        return ""
    return _readable(value, parse_quantity, "a quantity")


def _time(value: Any) -> str:
    return _readable(value, parse_time, "a time")


def _readable(value: Any, read: Callable[[str], object], what: str) -> str:
    if type(value) is not str:
        return f": is not {what}"
    try:
        read(value)
    except ValueError:
        return f": {value[:40]!r} is not {what}"
    return ""
