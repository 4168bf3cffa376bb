"""Sets of fields, as managedFields record them (FieldsV1), and their members in an object.

A set is a nested dictionary. ``f:NAME`` is a field, ``k:{...}`` an item of a keyed list, ``v:...``
an item of a set, and ``.`` the object or item itself; ``{}`` is a leaf. Pure; never changes its
arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from kubeletpy_up.schema import definitions

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON

FieldSet = dict[str, Any]
Path = tuple[str, ...]

_MISSING = object()
_WHOLE = "."
"""Marker in a set of fields to remove: everything at this path."""
# Keys that the API defaults: an item that leaves one out means this value.
_KEY_DEFAULTS: dict[str, Any] = {"protocol": "TCP"}
_NEVER_OWNED = {"apiVersion", "kind"}
_NEVER_OWNED_META = {
    "name",
    "namespace",
    "generateName",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "selfLink",
    "managedFields",
}


def item_key(schema: JSON, item: Any) -> str | None:
    """The path element of a list's item: ``k:{...}`` or ``v:...``; None in an atomic list."""
    kind = schema.get("x-kubernetes-list-type")
    if kind == "map" and isinstance(item, dict):
        names = schema.get("x-kubernetes-list-map-keys") or []
        keys = {name: item.get(name, _KEY_DEFAULTS.get(name)) for name in sorted(names)}
        present = {name: value for name, value in keys.items() if value is not None}
        return "k:" + json.dumps(present, separators=(",", ":"), ensure_ascii=False)
    if kind == "set" and not isinstance(item, dict | list):
        return "v:" + json.dumps(item, separators=(",", ":"), ensure_ascii=False)
    return None


def child_schema(schema: JSON, key: str) -> JSON:
    """The (unresolved) schema of an object's field."""
    properties = schema.get("properties")
    if properties is not None:
        found: JSON = properties.get(key, {})
        return found
    extra = schema.get("additionalProperties", {})
    return extra if isinstance(extra, dict) else {}


def is_granular(schema: JSON, resolved: JSON, value: Any) -> bool:
    """Whether a value's parts are owned individually, not as a whole."""
    if isinstance(value, dict):
        atomic = "atomic" in (
            schema.get("x-kubernetes-map-type"),
            resolved.get("x-kubernetes-map-type"),
        )
        return bool(value) and not atomic
    if isinstance(value, list):
        return bool(value) and schema.get("x-kubernetes-list-type") in ("map", "set")
    return False


def of_object(definition_name: str | None, obj: JSON) -> FieldSet:
    """All fields of an object that a manager may own."""
    owned = {key: value for key, value in obj.items() if key not in _NEVER_OWNED}
    if "metadata" in owned:
        metadata = owned["metadata"] or {}
        kept = {key: value for key, value in metadata.items() if key not in _NEVER_OWNED_META}
        owned["metadata"] = kept
        if not kept:
            del owned["metadata"]
    return _of_map(definitions.definition(definition_name), owned)


def _of_map(schema: JSON, obj: JSON) -> FieldSet:
    return {f"f:{key}": _of_value(child_schema(schema, key), value) for key, value in obj.items()}


def _of_value(schema: JSON, value: Any) -> FieldSet:
    resolved = definitions.resolve(schema)
    if not is_granular(schema, resolved, value):
        return {}
    if isinstance(value, dict):
        return _of_map(resolved, value)
    found: FieldSet = {}
    for item in value:
        key = item_key(schema, item)
        if key is None:
            return {}
        if key.startswith("v:"):
            found[key] = {}
        else:
            found[key] = {".": {}, **_of_map(definitions.resolve(schema.get("items", {})), item)}
    return found


def duplicate(definition_name: str | None, obj: JSON) -> str:
    """The item that a list has twice, for a refusal; empty if none."""
    return _duplicate(definitions.definition(definition_name), obj, ())


def _duplicate(schema: JSON, value: Any, at: Path) -> str:
    resolved = definitions.resolve(schema)
    if isinstance(value, dict):
        pairs = ((child_schema(resolved, key), item, f"f:{key}") for key, item in value.items())
        found = (_duplicate(below, item, (*at, key)) for below, item, key in pairs)
    elif is_granular(schema, resolved, value):
        keys = [item_key(schema, item) or "" for item in value]
        seen: set[str] = set()
        for key in keys:
            if key in seen:
                return f"{text(at)}: duplicate entries for key {text((key,))}"
            seen.add(key)
        below = schema.get("items", {})
        found = (_duplicate(below, item, (*at, key)) for key, item in zip(keys, value, strict=True))
    else:
        return ""
    return next((each for each in found if each), "")


def paths(fields: FieldSet, prefix: Path = ()) -> Iterator[Path]:
    """Every member: leaves, and ``.`` entries as the path of what contains them."""
    for key, below in fields.items():
        if key == ".":
            yield prefix
        elif below:
            yield from paths(below, (*prefix, key))
        else:
            yield (*prefix, key)


def from_paths(members: AbstractSet[Path]) -> FieldSet:
    """The set with these members."""
    root: FieldSet = {}

    def node(path: Path) -> FieldSet:
        at = root
        for key in path:
            at = at.setdefault(key, {})
        return at

    for path in sorted(members):
        node(path)
    for path in members:
        at = node(path)
        if path and (at or path[-1].startswith("k:")):
            at["."] = {}
    return root


def is_path(path: Path) -> bool:
    """Whether a path can exist in an object; clients may write anything into managedFields."""
    return all(map(_is_element, path))


def _is_element(element: str) -> bool:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return True
    try:
        found = json.loads(rest)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) if kind == "k" else kind == "v"


def is_item_key(path: Path) -> bool:
    """Whether a path names one of the key fields of a list's item."""
    if len(path) < 2 or not path[-2].startswith("k:"):
        return False
    return path[-1][2:] in json.loads(path[-2][2:])


def text(path: Path) -> str:
    """A path as messages show it: ``.spec.containers[name="a"].image``."""
    reported = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            reported += f".{rest}"
        elif kind == "k":
            pairs = json.loads(rest).items()
            listed = ",".join(f"{key}={json.dumps(value)}" for key, value in pairs)
            reported += f"[{listed}]"
        else:
            reported += f"[={rest}]"
    return reported


class Values:
    """An object's values by path; items of long lists are found without a scan."""

    def __init__(self, definition_name: str | None, obj: JSON) -> None:
        self._schema: JSON = definitions.definition(definition_name)
        self._object = obj
        self._lists: dict[int, dict[str | None, Any]] = {}

    def at(self, path: Path) -> Any:
        """The value at a path; a sentinel (see :func:`exists`) if there is none."""
        schema, value = self._schema, self._object
        for element in path:
            if element.startswith("f:"):
                if not isinstance(value, dict) or element[2:] not in value:
                    return _MISSING
                schema = child_schema(definitions.resolve(schema), element[2:])
                value = value[element[2:]]
            else:
                items = self._items(schema, value)
                if element not in items:
                    return _MISSING
                value = items[element]
                schema = schema.get("items", {})
        return value

    def _items(self, schema: JSON, value: Any) -> dict[str | None, Any]:
        found = self._lists.get(id(value))
        if found is None:
            found = self._lists[id(value)] = {}
            for item in value if isinstance(value, list) else ():
                found.setdefault(item_key(schema, item), item)
        return found


def exists(value: Any) -> bool:
    """Whether :class:`Values` has something there."""
    return value is not _MISSING


def remove(definition_name: str | None, obj: JSON, paths: Iterable[Path]) -> JSON:
    """The object without what is at some paths; parents left empty are removed too."""
    root: FieldSet = {}
    for path in paths:
        at = root
        for element in path:
            at = at.setdefault(element, {})
        at[_WHOLE] = {}
    return _remove(definitions.definition(definition_name), obj, root) or {}


def _remove(schema: JSON, value: Any, going: FieldSet) -> Any:
    if isinstance(value, dict):
        resolved = definitions.resolve(schema)
        left = {
            key: _left(child_schema(resolved, key), item, going.get(f"f:{key}"))
            for key, item in value.items()
        }
        return {key: item for key, item in left.items() if item is not _MISSING} or None
    if isinstance(value, list):
        below = schema.get("items", {})
        items = [_left(below, item, going.get(item_key(schema, item) or "")) for item in value]
        return [item for item in items if item is not _MISSING] or None
    return value


def _left(schema: JSON, value: Any, going: FieldSet | None) -> Any:
    if going is None:
        return value
    left = None if _WHOLE in going else _remove(schema, value, going)
    return _MISSING if left is None else left
