"""A field that is null is a field that is absent: Kubernetes' JSON decodes both to the zero value.

The API server writes null where a type has no ``omitempty``: each pod condition comes with
``"lastProbeTime": null``. Whoever decodes an object takes the nulls out at once, so that a key that
is there has a value. Must touch fresh objects only: it changes them in place.
"""

from __future__ import annotations

from typing import Any

_NULL = b"null"
_UNREAD = frozenset({"managedFields"})
"""Long, without nulls, and read by nobody here."""


def may_have_nulls(text: bytes) -> bool:
    """Whether JSON text can hold a null at all; most answers are spared the walk."""
    return _NULL in text


def drop_nulls(value: Any) -> None:
    """Take all keys that are null out of a decoded value, at any depth; items of lists stay."""
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
