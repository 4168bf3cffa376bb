"""The three kinds of patches of the API, applied to plain JSON without changing it. Pure.

They are JSON patch (RFC 6902), JSON merge patch (RFC 7396) and Kubernetes' strategic merge patch. A
patch is hostile input: anything wrong with it raises one of the errors here. ``replace`` also sets
a value that does not exist, as in an API server.
"""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component


def apply_merge_patch(original: Any, patch: Any) -> Any:
    """Apply a patch, in which null removes a field; changes neither argument.

    Raises RecursionError if the patch is nested too deep.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(original) if isinstance(original, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply_merge_patch(merged.get(key), value)
    return merged


# Strategic merge patch: a JSON merge patch with keyed lists, by the API's schema.
# Source of the directives: Kubernetes' document "Strategic Merge Patch".

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


class _Merge(Component):
    """One merge by one set of definitions."""

    resolve: Resolve

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
            return self.maps(self.resolve(field), base, patch)
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
        item_schema = self.resolve(field.get("items", {}))
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

    desired, was = _places(map(identity, order)), _places(map(identity, original))
    named = sorted(
        (item for item in merged if identity(item) in desired),
        key=lambda item: desired[identity(item)],
    )
    others = deque(item for item in merged if identity(item) not in desired)
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


MAX_OPERATIONS = 10_000
"""The API server's own limit."""
MAX_COPIED = 3 << 20
"""Bytes of JSON that one patch's copies may create: copies of copies double each time."""
_REPORTED = 100


class TooLarge(MalformedPatch):
    """It has too many operations, or they copy too much."""


class DoesNotFit(MalformedPatch):
    """The object has not what an operation names, or is not what it tests for."""


def merge_patch(original: Any, patch: Any) -> Any:
    """Apply an RFC 7396 patch; null removes. Raises MalformedPatch if it is nested too deep."""
    try:
        return apply_merge_patch(original, patch)
    except RecursionError:
        raise _too_deep() from None


def json_patch(original: JSON, operations: Any) -> JSON:
    """Apply an RFC 6902 patch.

    Raises:
        MalformedPatch: it is not such a patch, or nested too deep.
        TooLarge: it has more than MAX_OPERATIONS, or copies more than MAX_COPIED.
        DoesNotFit: it does not fit the object; the message names the operation.
    """
    if not isinstance(operations, list):
        raise MalformedPatch("a JSON patch is a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise TooLarge(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}")
    try:
        document = _apply_all(copy.deepcopy(original), operations)
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(document, dict):
        raise DoesNotFit("the patched object is no object")
    return document


def _too_deep() -> MalformedPatch:
    return MalformedPatch("the patched object is nested too deep")


def _apply_all(document: Any, operations: list[Any]) -> Any:
    copied = 0
    for operation in operations:
        if not isinstance(operation, dict):
            raise MalformedPatch("an operation of a JSON patch is not an object")
        if not isinstance(operation.get("path"), str):
            raise DoesNotFit("an operation of a JSON patch has no path")
        if operation.get("op") == "copy":
            copied += len(json.dumps(_source(document, operation)))
            if copied > MAX_COPIED:
                raise TooLarge(
                    f"the copy operations of a JSON patch may make {MAX_COPIED} bytes at most"
                )
        document = _apply(document, operation)
    return document


def _source(document: Any, operation: JSON) -> Any:
    source = operation.get("from")
    if not isinstance(source, str):
        raise MalformedPatch(f"JSON patch operation {_reported(operation.get('op'))} needs from")
    return _find(document, _pointer(source))


def _apply(document: Any, operation: JSON) -> Any:
    op, path = operation.get("op"), _pointer(operation["path"])
    if op in ("add", "replace", "test") and "value" not in operation:
        raise MalformedPatch(f"JSON patch operation {op} needs a value")
    if op == "add":
        return _put(document, path, copy.deepcopy(operation["value"]), insert=True)
    if op == "replace":
        return _put(document, path, copy.deepcopy(operation["value"]), insert=False)
    if op == "remove":
        return _remove(document, path)
    if op == "test":
        if not _equal(_find(document, path), operation["value"]):
            raise DoesNotFit(f"{_reported(operation['path'])} is not what the patch tests for")
        return document
    if op == "copy":
        return _put(document, path, copy.deepcopy(_source(document, operation)), insert=True)
    if op == "move":
        value = _source(document, operation)
        return _put(_remove(document, _pointer(operation["from"])), path, value, insert=True)
    raise DoesNotFit(f"a JSON patch has no operation {_reported(op)}")


def _equal(one: Any, other: Any) -> bool:
    """Compare like RFC 6902, 4.6: to Python, true equals 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _pointer(text: str) -> list[str]:
    if text == "":
        return []
    if not text.startswith("/"):
        raise MalformedPatch(f"invalid JSON pointer {_reported(text)}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _index(part: str, length: int) -> int:
    # so long a number is none of an item; Python refuses to read one of thousands of digits
    if not (part.isascii() and part.isdecimal() and len(part) < 10 and int(part) < length):
        raise DoesNotFit(f"there is no item {_reported(part)}")
    return int(part)


def _find(document: Any, path: list[str]) -> Any:
    current = document
    for part in path:
        if isinstance(current, dict):
            if part not in current:
                raise DoesNotFit(f"there is no {_reported(part)} in {_place(path)}")
            current = current[part]
        elif isinstance(current, list):
            current = current[_index(part, len(current))]
        else:
            raise _no_container(path)
    return current


def _put(document: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    parent, last = _find(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value  # a Kubernetes API server also replaces what does not exist
    elif not isinstance(parent, list):
        raise _no_container(path)
    elif insert:
        parent.insert(len(parent) if last == "-" else _index(last, len(parent) + 1), value)
    else:
        parent[_index(last, len(parent))] = value
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise DoesNotFit("a JSON patch can't remove the whole object")
    _find(document, path)
    parent, last = _find(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        del parent[last]
    else:
        del parent[_index(last, len(parent))]
    return document


def _no_container(path: list[str]) -> DoesNotFit:
    return DoesNotFit(f"there is nothing in {_place(path)}: a part of it is no object and no list")


def _place(path: list[str]) -> str:
    return _reported("/" + "/".join(path))


def _reported(text: Any) -> str:
    """A client's text, which may be long."""
    found = str(text)
    return repr(found if len(found) <= _REPORTED else found[: _REPORTED - 1] + "…")
