"""Descriptions of kinds and fields for `kubectl explain`, in our own wording. Pure.

The texts are in ``data/descriptions.json``: for each definition by its full name, the text of each
field, and that of the kind itself under ``""``. A field or kind without a text has no description.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kubeletpy_up.data import load_json


@cache
def texts() -> dict[str, dict[str, str]]:
    """The text of each field (``""``: of the kind), by the definition's full name."""
    loaded: dict[str, dict[str, str]] = load_json("descriptions.json")
    return loaded


def described(name: str, definition: dict[str, Any]) -> dict[str, Any]:
    """A copy of a definition with its descriptions."""
    known = texts().get(name)
    if not known:
        return definition
    fields = {
        field: {"description": known[field], **schema} if field in known else schema
        for field, schema in definition.get("properties", {}).items()
    }
    own = {"description": known[""]} if "" in known else {}
    return {**own, **definition, "properties": fields}
