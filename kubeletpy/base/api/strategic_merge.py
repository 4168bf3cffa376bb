"""Strategic merge patch: a JSON merge patch with keyed lists.

The keys and strategies are those of the API's schema; the directives are ``$patch``,
``$retainKeys``, ``$setElementOrder/FIELD`` and ``$deleteFromPrimitiveList/FIELD`` (Kubernetes'
document "Strategic Merge Patch"). Pure: returns new objects, never changes its arguments.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from kubeletpy.base.api.types import JSON

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_MISSING = object()


Resolve = Callable[[JSON], JSON]
"""The definition that a field's schema refers to, or the schema itself."""


class MalformedPatch(ValueError):
    """The patch can't be applied to any object."""


class NoMergeKey(MalformedPatch):
    """An item of a keyed list lacks its key."""


def strategic_merge(
    schema: JSON, original: JSON, patch: JSON, *, resolve: Resolve = lambda schema: schema
) -> JSON:
    """Apply a strategic merge patch.

    Args:
        schema: the object's OpenAPI schema; with an empty one maps merge and lists are replaced.
        original: the object to patch.
        patch: the parsed patch.
        resolve: follows references of the schema.

    Raises:
        MalformedPatch: a directive is malformed, an item lacks its key, or it is nested too deep.
    """
    try:
        return _Merge(resolve).maps(schema, original, patch)
    except RecursionError:
        raise MalformedPatch("the patch is nested too deep") from None


def _field_schema(schema: JSON, key: str) -> JSON:
    properties = schema.get("properties")
    found: JSON = properties.get(key, {}) if properties else schema.get("additionalProperties", {})
    return found if isinstance(found, dict) else {}


class _Merge:
    """One merge by one set of definitions."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    def maps(self, schema: JSON, original: JSON, patch: JSON) -> JSON:
        directive = patch.get(_DIRECTIVE)
        if directive == "replace":
            return {key: value for key, value in patch.items() if key != _DIRECTIVE}
        if directive == "delete":
            return {}
        if directive not in (None, "merge"):
            raise MalformedPatch(f"unknown patch type: {directive!r}")
        merged = dict(original)
        if _RETAIN in patch:
            retained = set(_string_list(patch[_RETAIN], _RETAIN))
            merged = {key: value for key, value in merged.items() if key in retained}
        orders: dict[str, list[Any]] = {}
        for key, value in patch.items():
            if key.startswith(_DELETE):
                _delete_from_list(merged, key.removeprefix(_DELETE), value)
            elif key.startswith(_ORDER):
                if not isinstance(value, list):
                    raise MalformedPatch(f"invalid patch format of {key}")
                orders[key.removeprefix(_ORDER)] = value
        for key, value in patch.items():
            if key in (_DIRECTIVE, _RETAIN) or key.startswith((_DELETE, _ORDER)):
                continue
            field = _field_schema(schema, key)
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = self._value(field, merged.get(key, _MISSING), value, orders.get(key))
        for key, order in orders.items():
            if key not in patch and isinstance(merged.get(key), list):
                merge_key = _field_schema(schema, key).get("x-kubernetes-patch-merge-key")
                merged[key] = _ordered(merged[key], merged[key], order, merge_key)
        return merged

    def _value(self, field: JSON, original: Any, patch: Any, order: list[Any] | None) -> Any:
        if isinstance(patch, dict):
            base = original if isinstance(original, dict) else {}
            return self.maps(self._resolve(field), base, patch)
        if isinstance(patch, list) and "merge" in field.get(
            "x-kubernetes-patch-strategy", ""
        ).split(","):
            base_list = original if isinstance(original, list) else []
            return self._list(field, base_list, patch, order)
        return patch

    def _list(
        self, field: JSON, original: list[Any], patch: list[Any], order: list[Any] | None
    ) -> Any:
        merge_key = field.get("x-kubernetes-patch-merge-key")
        if merge_key is None:
            known = {_identity(item) for item in original}
            merged: list[Any] = [
                *original,
                *(item for item in _unique(patch) if _identity(item) not in known),
            ]
            return _ordered(merged, original, _unique(patch) if order is None else order, None)
        item_schema = self._resolve(field.get("items", {}))
        replaced = any(
            isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" for item in patch
        )
        updates, deleted = _changes_of_list(patch, merge_key)
        merged = []
        places: dict[str, int] = {}
        for kept in [] if replaced else original:
            key = _identity(kept.get(merge_key)) if isinstance(kept, dict) else ""
            if key not in deleted:
                places.setdefault(key, len(merged))
                merged.append(kept)
        for item in updates:
            update = {key: value for key, value in item.items() if key != _DIRECTIVE}
            index = len(merged)
            if not replaced:  # a list that replaces another may have a key twice
                index = places.setdefault(_identity(item[merge_key]), index)
            if index == len(merged):
                merged.append(self.maps(item_schema, {}, update))
            elif item.get(_DIRECTIVE) == "replace":
                merged[index] = update
            else:
                merged[index] = self.maps(item_schema, merged[index], update)
        if order is None and not replaced:
            order = [item[merge_key] for item in updates]
        return merged if order is None else _ordered(merged, original, order, merge_key)


def _changes_of_list(patch: list[Any], merge_key: str) -> tuple[list[JSON], set[str]]:
    """The items to merge, and the keys (see _identity) of those to delete."""
    updates: list[JSON] = []
    deleted: set[str] = set()
    for item in patch:
        if not isinstance(item, dict):
            raise MalformedPatch("cannot use a primitive in a list of objects with a merge key")
        directive = item.get(_DIRECTIVE)
        if directive == "replace" and len(item) == 1:
            continue
        if merge_key not in item:
            raise NoMergeKey(f"map: {item} does not contain declared merge key: {merge_key}")
        if directive == "delete":
            deleted.add(_identity(item[merge_key]))
        else:
            updates.append(item)
    return updates, deleted


def _identity(value: Any) -> str:
    """A text that is the same for equal values only: it saves comparing lists pair by pair."""
    return f'"{value}' if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _unique(items: Iterable[Any]) -> list[Any]:
    return list({_identity(item): item for item in items}.values())


def _string_list(value: Any, what: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise MalformedPatch(f"invalid patch format of {what}")
    return value


def _delete_from_list(merged: JSON, key: str, values: Any) -> None:
    if not isinstance(values, list):
        raise MalformedPatch(f"invalid patch format of {_DELETE}{key}")
    current = merged.get(key)
    if isinstance(current, list):
        unwanted = {_identity(value) for value in values}
        merged[key] = [item for item in current if _identity(item) not in unwanted]


def _ordered(
    merged: list[Any], original: list[Any], order: list[Any], merge_key: str | None
) -> list[Any]:
    """Sort by the patch's order; server-only items keep their place among the others."""

    def identity(item: Any) -> str:
        return _identity(item.get(merge_key) if merge_key and isinstance(item, dict) else item)

    wanted, was = _places(map(identity, order)), _places(map(identity, original))
    named = sorted(
        (item for item in merged if identity(item) in wanted),
        key=lambda item: wanted[identity(item)],
    )
    others = deque(item for item in merged if identity(item) not in wanted)
    result: list[Any] = []
    for item in named:
        place = was.get(identity(item), -1)
        # A server-only item comes before the first named one that followed it.
        while others and was.get(identity(others[0]), len(was)) < place:
            result.append(others.popleft())
        result.append(item)
    return [*result, *others]


def _places(keys: Iterable[str]) -> dict[str, int]:
    """Where each key first occurs."""
    found: dict[str, int] = {}
    for index, key in enumerate(keys):
        found.setdefault(key, index)
    return found
