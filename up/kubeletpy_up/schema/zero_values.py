"""Zeros and nulls: which fields the API always writes, and which it leaves out when they are empty.

An empty plain string, number or boolean is left out, unless the table has it as always
written. A pointer is written as given, even if it points to a zero value. A nested object
that is no pointer is always written, if need be as ``{}``; an unset time is ``null``. Pure.
Source: docs/reference/api-wire.json (``*`` is a pointer, ``!`` what is always written).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from kubeletpy_up.data import load_json

_PLAIN: dict[str, Any] = {"string": "", "int": 0, "bool": False}
_TIMES = ("Time", "MicroTime")
_NEVER_NULL = frozenset({"creationTimestamp"})


@dataclass(frozen=True, slots=True)
class ZeroValues:
    """The rules for one definition's fields.

    Attributes:
        left_out: plain fields that are not written when empty.
        written: field -> what is written when it has no value.
        structs: nested objects that are always written.
    """

    left_out: frozenset[str]
    written: dict[str, Any]
    structs: tuple[str, ...]


@cache
def _table() -> dict[str, dict[str, list[str]]]:
    loaded: dict[str, dict[str, list[str]]] = load_json("api-wire.json")
    return loaded


def _message(definition: str) -> str:
    """The wire table's name of a definition: ``core/Pod`` of ``io.k8s.api.core.v1.Pod``."""
    parts = definition.split(".")
    if definition.startswith("io.k8s.apimachinery.pkg.apis.meta."):
        return f"meta/{parts[-1]}"
    if not definition.startswith("io.k8s.api.") or parts[-2] != "v1":
        return ""
    group = parts[3]
    return f"{group if group in ('core', 'policy') else f'{group}.k8s.io'}/{parts[-1]}"


def of_fields(definition: str) -> ZeroValues:
    """The rules for a definition's fields; empty for one that the table doesn't have."""
    kinds = {key: kind for key, kind in _table().get(_message(definition), {}).values() if key}
    always = {key: _PLAIN[kind[1:]] for key, kind in kinds.items() if kind.startswith("!")}
    nulls = {key: None for key, kind in kinds.items() if kind in _TIMES and key not in _NEVER_NULL}
    return ZeroValues(
        frozenset(key for key, kind in kinds.items() if kind in _PLAIN),
        {**always, **nulls},
        tuple(
            key
            for key, kind in kinds.items()
            if "/" in kind and kind[0].isalpha() and not kind.startswith("map ")
        ),
    )
