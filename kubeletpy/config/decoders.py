"""From a decoded YAML or JSON value to a setting: one function per type of field. Pure.

A decoder reports what is wrong and returns None; it never raises and never guesses (a quoted number
is not a number). Types as the KubeletConfiguration schema has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from kubeletpy.base.api import quantity
from kubeletpy.base.api.times import parse_duration
from kubeletpy.base.text import nearest, snake_case
from kubeletpy.config.problems import ProblemReport

Decoder = Callable[[object, str, ProblemReport], Any]
"""Takes the value, its path and where to report; gives the setting, or None after reporting."""

_INT32 = 2**31 - 1
_INT64 = 2**63 - 1


def _instance_of(kind: type, allowed: str) -> Decoder:
    def decode(value: object, at: str, report: ProblemReport) -> Any:
        if isinstance(value, kind):
            return value
        report.add(at, value, allowed)
        return None

    return decode


boolean = _instance_of(bool, "must be true or false")
string = _instance_of(str, "must be a string (quote it)")


def _integer(low: int, high: int) -> Decoder:
    def decode(value: object, at: str, report: ProblemReport) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        report.add(at, value, f"must be a whole number from {low} to {high}")
        return None

    return decode


int32 = _integer(-_INT32 - 1, _INT32)
int64 = _integer(-_INT64 - 1, _INT64)
uint32 = _integer(0, _INT32)


def number(value: object, at: str, report: ProblemReport) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    report.add(at, value, "must be a number")
    return None


def duration(value: object, at: str, report: ProblemReport) -> float | None:
    """A Go duration, in seconds."""
    with suppress(ValueError):
        if isinstance(value, str):
            return parse_duration(value)
    report.add(at, value, "must be a duration such as 10s, 1m30s or 100ms")
    return None


def duration_or_nanoseconds(value: object, at: str, report: ProblemReport) -> float | None:
    """``logging.flushFrequency``: a duration, or a plain number of nanoseconds."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value / 1e9
    return duration(value, at, report)


def size(value: object, at: str, report: ProblemReport) -> int | None:
    """A quantity, in bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    with suppress(ValueError):
        if isinstance(value, str):
            return quantity.value(value)
    report.add(at, value, "must be a quantity such as 10Mi")
    return None


def list_of(item: Decoder) -> Decoder:
    def decode(value: object, at: str, report: ProblemReport) -> tuple[Any, ...] | None:
        if not isinstance(value, list):
            report.add(at, value, "must be a list")
            return None
        return tuple(item(each, f"{at}[{index}]", report) for index, each in enumerate(value))

    return decode


def map_of(item: Decoder, keys: tuple[str, ...] = ()) -> Decoder:
    """A map; ``keys``, if given, are the only ones allowed."""

    def decode(value: object, at: str, report: ProblemReport) -> Mapping[str, Any] | None:
        if not isinstance(value, dict):
            report.add(at, value, "must be a map")
            return None
        found: dict[str, Any] = {}
        for key, each in value.items():
            if not isinstance(key, str) or (keys and key not in keys):
                allowed = ", ".join(keys) if keys else "strings"
                report.add(f"{at}.{key}", each, f"unknown key; allowed: {allowed}")
            else:
                found[key] = item(each, f"{at}.{key}", report)
        return MappingProxyType(found)

    return decode


def struct_of(make: Callable[..., Any], fields: Mapping[str, tuple[Decoder, Any]]) -> Decoder:
    """An object of a list: field name -> (decoder, default).

    The argument of ``make`` is the attribute of that name. A default of ``...`` means the field is
    required; one that is :func:`unset` has no argument.
    """

    def decode(value: object, at: str, report: ProblemReport) -> Any:
        if not isinstance(value, dict):
            report.add(at, value, "must be an object")
            return None
        before = len(report.problems)
        for name in value:
            if name not in fields:
                report.drop(f"{at}.{name}", value[name], unknown(str(name), fields))
        arguments = {}
        for name, (decoder, default) in fields.items():
            if value.get(name) is not None:
                arguments[snake_case(name)] = decoder(value[name], f"{at}.{name}", report)
            elif default is ...:
                report.add(f"{at}.{name}", None, "is required", missing=True)
            elif decoder is not unset:
                arguments[snake_case(name)] = default
        return make(**arguments) if len(report.problems) == before else None

    return decode


def unset(value: object, at: str, report: ProblemReport) -> None:
    """A field that is set elsewhere, and must not be set here."""
    report.add(at, value, "must not be set")


def unknown(name: str, known: Mapping[str, Any] | list[str]) -> str:
    """The error message for a field that does not exist."""
    names = {each.lower(): each for each in known}
    near = nearest(name.lower(), names)
    return "no such field" + (f"; did you mean {names[near]}?" if near else "")


def quantity_text(value: object, at: str, report: ProblemReport) -> str | None:
    """A quantity of at least zero, kept as text."""
    if _is_amount(value, lambda amount: amount >= 0, lambda share: False):
        return str(value)
    report.add(at, value, "must be a quantity >=0, as text")
    return None


def threshold(value: object, at: str, report: ProblemReport) -> str | None:
    """An eviction threshold: a quantity above zero or a percentage from 0% to 100%."""
    if _is_amount(value, lambda amount: amount > 0, lambda share: 0 <= share <= 100):
        return str(value)
    report.add(at, value, "must be a quantity above 0 or a percentage from 0% to 100%, as text")
    return None


def reclaim(value: object, at: str, report: ProblemReport) -> str | None:
    """An eviction reclaim: a quantity of at least zero or a percentage above zero."""
    if _is_amount(value, lambda amount: amount >= 0, lambda share: 0 < share < float("inf")):
        return str(value)
    report.add(at, value, "must be a quantity of at least 0 or a percentage above 0%, as text")
    return None


def _is_amount(
    value: object, allowed: Callable[[Decimal], bool], allowed_share: Callable[[float], bool]
) -> bool:
    """Whether it is a text with an allowed quantity or percentage."""
    if not isinstance(value, str):
        return False
    try:
        if value.endswith("%"):
            return allowed_share(float(value[:-1]))
        return allowed(quantity.parse(value))
    except ValueError:
        return False


def grace(value: object, at: str, report: ProblemReport) -> float | None:
    """A duration of at least zero, in seconds."""
    seconds = duration(value, at, report)
    if seconds is not None and seconds < 0:
        report.add(at, value, "must not be negative")
        return None
    return seconds


def percent(value: object, at: str, report: ProblemReport) -> str | None:
    """``qosReserved``: a whole percentage from 0% to 100%."""
    if isinstance(value, str) and re.fullmatch(r"([0-9]{1,2}|100)%", value):
        return value
    report.add(at, value, "must be a whole percentage from 0% to 100%, as text")
    return None
