"""The JSON types of values. Pure."""

from __future__ import annotations

from typing import Any


def json_type(value: Any) -> str:
    """``bool``, ``string``, ``number``, ``array`` or ``object``."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"
