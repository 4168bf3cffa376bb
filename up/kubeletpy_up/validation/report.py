"""Collects what is wrong with an object, field by field, in the API's words."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from typing import Any

from kubeletpy.pods.shape import FieldProblem
from kubeletpy_up.errors import Cause

_UNSHOWN = object()


def quote(value: Any) -> str:
    """A value as shown in messages: strings quoted, objects as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Report:
    """A growing list of causes. Paths are like ``spec.containers[0].name``."""

    __slots__ = ("causes",)

    def __init__(self) -> None:
        self.causes: list[Cause] = []

    def _add(self, reason: str, path: str, parts: str, value: Any, detail: str) -> None:
        message = parts if value is _UNSHOWN else f"{parts}: {quote(value)}"
        if detail:
            message += f": {detail}"
        self.causes.append(Cause("FieldValue" + reason, path, message))

    def add(self, problem: FieldProblem) -> None:
        """A problem that a check shared with the agent has found."""
        reason = "FieldValue" + problem.reason
        self.causes.append(Cause(reason, problem.path, problem.message()))

    def required(self, path: str, detail: str = "") -> None:
        """The field must be there."""
        self._add("Required", path, "Required value", _UNSHOWN, detail)

    def invalid(self, path: str, value: Any, detail: str) -> None:
        """The value is malformed or out of bounds."""
        self._add("Invalid", path, "Invalid value", value, detail)

    def invalid_text(self, path: str, reported: str, detail: str) -> None:
        """The same, for a value that the server formats in its own way."""
        self.causes.append(Cause("FieldValueInvalid", path, f"Invalid value: {reported}: {detail}"))

    def all_invalid(self, path: str, value: Any, details: Iterable[str]) -> None:
        """One cause for each detail."""
        for detail in details:
            self.invalid(path, value, detail)

    def unsupported(self, path: str, value: Any, supported: Iterable[str]) -> None:
        """The value is not in the enumeration."""
        listed = ", ".join(quote(item) for item in supported)
        self._add("NotSupported", path, "Unsupported value", value, f"supported values: {listed}")

    def not_found(self, path: str, value: Any) -> None:
        """The value names something that isn't there."""
        self._add("NotFound", path, "Not found", value, "")

    def duplicate(self, path: str, value: Any) -> None:
        """The value must be unique and isn't."""
        self._add("Duplicate", path, "Duplicate value", value, "")

    def forbidden(self, path: str, detail: str) -> None:
        """The field may not be set, or not be changed, here."""
        self._add("Forbidden", path, "Forbidden", _UNSHOWN, detail)

    def too_long(self, path: str, limit: int) -> None:
        """More than ``limit`` bytes; the value itself is not shown."""
        detail = f"may not be more than {limit} bytes"
        self._add("TooLong", path, "Too long", _UNSHOWN, detail)

    def too_many(self, path: str, count: int, limit: int) -> None:
        """More than ``limit`` items."""
        self._add("TooMany", path, "Too many", count, f"must have at most {limit} items")

    def require(self, path: str, supplied: Mapping[str, Any], *keys: str, detail: str = "") -> None:
        """Check that fields of an object are there, and not empty."""
        for key in keys:
            if not supplied.get(key):
                self.required(f"{path}.{key}", detail)

    def well_formed(self, path: str, value: Any, rule: Callable[[Any], Iterable[str]]) -> None:
        """Check a required value by a rule of :mod:`kubeletpy_up.schema.formats`."""
        if value:
            self.all_invalid(path, value, rule(value))
        else:
            self.required(path)

    def at_most(self, path: str, supplied: Sized | None, limit: int) -> None:
        """Check the number of items."""
        if supplied is not None and len(supplied) > limit:
            self.too_many(path, len(supplied), limit)

    def supported(self, path: str, value: str | None, known: Collection[str]) -> None:
        """Check an enumeration value; one that is not there is shown as empty."""
        if value not in known:
            self.unsupported(path, value or "", known)

    def one_of(self, path: str, value: Any, supported: tuple[str, ...]) -> None:
        """Check a required enumeration value."""
        if value in (None, ""):
            self.required(path)
        elif value not in supported:
            self.unsupported(path, value, supported)
