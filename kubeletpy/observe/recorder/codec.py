"""Encodes the inputs of decisions as JSON and decodes them, by the types of their fields. Pure.

Fields that equal their default are left out. Pods and runtime statuses are large and occur again
and again: they are written once and referred to by number. A function (a status override) is
recorded by its presence only: the decoded one returns its argument.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from functools import lru_cache
from typing import Any

from msgspec import NODEFAULT, Struct, structs

from kubeletpy.pods.pod import MalformedPod, Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus

SHARED = (Pod, PodRuntimeStatus)
"""Types that are referred to by number."""
Refer = Callable[[Pod | PodRuntimeStatus], int]
"""Returns the number of a value of one of these types."""
REFERENCE = "#"
_PLAIN = (str, int, float, bool, type(None))
_MAPPINGS, _SEQUENCES = (dict, Mapping), (list, tuple, Sequence)
"""The abstract types last: their checks are slow."""
FUNCTION = {"function": True}


class BadRecording(ValueError):
    """Raised if the input is no recording, or not one that this version understands."""


def encode(value: object, refer: Refer) -> Any:
    """Return a value as JSON.

    Args:
        refer: the number of a value of one of the types in SHARED.

    Raises:
        TypeError: a type that no input of a decision has.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, SHARED):
        return {REFERENCE: refer(value)}
    if isinstance(value, Struct):
        return encode_fields(value, refer)
    if isinstance(value, _MAPPINGS):
        return {
            str(key): each if type(each) in _PLAIN else encode(each, refer)
            for key, each in value.items()
        }
    if isinstance(value, _SEQUENCES):
        return [encode(each, refer) for each in value]
    if isinstance(value, Set):
        return sorted(encode(each, refer) for each in value)
    if callable(value):
        return FUNCTION
    raise TypeError(f"{type(value).__name__} is no input of a decision")


def encode_fields(value: Struct, refer: Refer) -> dict[str, Any]:
    """Return a Struct as JSON, even one that would be referred to by number."""
    found = {}
    for name, default, is_json in _fields(type(value)):
        current = getattr(value, name)
        if current != default:
            found[name] = current if is_json else encode(current, refer)
    return found


@lru_cache(maxsize=200)
def _fields(kind: type[Struct]) -> tuple[tuple[str, Any, bool], ...]:
    """Return the name of each field, its default, and whether it has an object of the API."""
    return tuple(
        (
            each.name,
            each.default if each.default_factory is NODEFAULT else each.default_factory(),
            each.type == dict[str, Any],
        )
        for each in structs.fields(kind)
    )


def decode(kind: Any, value: Any, shared: Mapping[int, object]) -> Any:
    """Return the value of a type from its JSON; the opposite of :func:`encode`.

    Args:
        kind: the type, as an annotation gives it.
        value: JSON.
        shared: what the numbers refer to.

    Raises:
        BadRecording: the JSON does not describe a value of this type.
    """
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        (member,) = [each for each in typing.get_args(kind) if each is not type(None)]
        return None if value is None else decode(member, value, shared)
    if origin is Callable:
        return _unchanged
    if origin is not None:
        return _decode_many(origin, typing.get_args(kind), value, shared)
    if kind in SHARED:
        return _referred(kind, value, shared)
    if not isinstance(kind, type):
        return value  # Any
    if issubclass(kind, Enum):
        try:
            return kind(value)
        except (ValueError, TypeError) as error:
            raise BadRecording(str(error)) from error
    if issubclass(kind, Struct):
        return decode_fields(kind, value, shared)
    return _decode_plain(kind, value)


def _decode_plain(kind: type, value: Any) -> Any:
    """Return a value of a type that JSON has. The API's objects have no type at run time."""
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong_type(kind, value)
    elif kind in (str, int, bool, dict, list) and type(value) is not kind:
        raise _wrong_type(kind, value)
    return value


def _decode_many(origin: Any, arguments: Any, value: Any, shared: Mapping[int, object]) -> Any:
    if origin in (dict, Mapping):
        _require(value, dict)
        return {key: decode(arguments[1], each, shared) for key, each in value.items()}
    _require(value, list)
    found = [decode(arguments[0], each, shared) for each in value]
    try:
        return origin(found) if origin in (tuple, frozenset, set) else found
    except TypeError as error:
        raise BadRecording(str(error)) from error


def decode_fields(kind: Any, value: Any, shared: Mapping[int, object]) -> Any:
    """Return a Struct from its JSON. Fields that this version does not have are left out.

    Raises:
        BadRecording: a field is missing or has the wrong type.
    """
    _require(value, dict)
    hints = _hints(kind)
    known = {name: each for name, each in value.items() if name in hints}
    try:
        return kind(**{name: decode(hints[name], each, shared) for name, each in known.items()})
    except TypeError as error:
        raise BadRecording(f"{kind.__name__}: {error}") from error


@lru_cache(maxsize=200)
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {name: hints[name] for name in kind.__struct_fields__}


def decode_shared(name: str, value: Any) -> Pod | PodRuntimeStatus:
    """Return the value that a line with a number has.

    Raises:
        BadRecording: it is none of the types in SHARED.
    """
    if name == Pod.__name__:
        try:
            return Pod(value)
        except (MalformedPod, AttributeError, TypeError) as error:
            raise BadRecording(f"a pod of the recording: {error}") from error
    if name == PodRuntimeStatus.__name__:
        status: PodRuntimeStatus = decode_fields(PodRuntimeStatus, value, {})
        return status
    raise BadRecording(f"{name} is not known to this version")


def _referred(kind: type, value: Any, shared: Mapping[int, object]) -> object:
    number = value.get(REFERENCE) if isinstance(value, dict) else None
    found = shared.get(number) if isinstance(number, int) else None
    if not isinstance(found, kind):
        raise BadRecording(f"a {kind.__name__} is referred to that the recording does not have")
    return found


_KINDS = {
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def _require(value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise _wrong_type(kind, value)


def _wrong_type(kind: type, value: Any) -> BadRecording:
    found = type(value).__name__
    return BadRecording(f"{_KINDS[kind]} is expected where the recording has {found}")


def _unchanged(value: Any) -> Any:
    return value
