"""A null field is an absent field: Kubernetes' JSON decodes both to the zero value.

The API server writes null where a type has no ``omitempty``: each pod condition comes with
``"lastProbeTime": null``. Code that decodes an object removes the nulls at once, so that every key
has a value. Must touch fresh objects only: it changes them in place.
"""

from __future__ import annotations

from typing import Any

_NULL = b"null"
_UNREAD = frozenset({"managedFields"})
"""Long, without nulls, and never read here."""


def may_have_nulls(text: bytes) -> bool:
    """Whether JSON text can contain a null; most responses can skip the walk."""
    return _NULL in text


def drop_nulls(value: Any) -> None:
    """Remove all null-valued keys from a decoded value, at any depth; list items stay."""
    rest = [value]
    while rest:
        one = rest.pop()
        if type(one) is list:
            rest.extend(one)
        elif type(one) is dict:
            if None in one.values():
                for key in [key for key, item in one.items() if item is None]:
                    del one[key]
            rest.extend(
                item
                for key, item in one.items()
                if type(item) in (dict, list) and key not in _UNREAD
            )
