"""JSON patch (RFC 6902) and JSON merge patch (RFC 7396), on plain JSON without changing it.

Pure. A patch is hostile input: anything wrong with it raises one of the errors here. ``replace``
also sets a value that does not exist, like in an API server.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from kubeletpy.base.api.merge_patch import apply_merge_patch
from kubeletpy.base.api.strategic_merge import MalformedPatch
from kubeletpy.base.api.types import JSON

MAX_OPERATIONS = 10_000
"""The API server's own limit."""
MAX_COPIED = 3 << 20
"""Bytes of JSON that one patch's copies may create: copies of copies double each time."""
_SHOWN = 100


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
        raise MalformedPatch(f"JSON patch operation {_shown(operation.get('op'))} needs from")
    return _find(document, _pointer(source))


def _apply(document: Any, operation: JSON) -> Any:
    op, path = operation.get("op"), _pointer(operation["path"])
    if op in ("add", "replace", "test") and "value" not in operation:
        raise MalformedPatch(f"JSON patch operation {op} needs a value")
    if op == "add":
        return _add(document, path, copy.deepcopy(operation["value"]))
    if op == "replace":
        return _replace(document, path, copy.deepcopy(operation["value"]))
    if op == "remove":
        return _remove(document, path)
    if op == "test":
        if not _equal(_find(document, path), operation["value"]):
            raise DoesNotFit(f"{_shown(operation['path'])} is not what the patch tests for")
        return document
    if op == "copy":
        return _add(document, path, copy.deepcopy(_source(document, operation)))
    if op == "move":
        value = _source(document, operation)
        return _add(_remove(document, _pointer(operation["from"])), path, value)
    raise DoesNotFit(f"a JSON patch has no operation {_shown(op)}")


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
        raise MalformedPatch(f"invalid JSON pointer {_shown(text)}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _index(part: str, length: int) -> int:
    # so long a number is none of an item; Python refuses to read one of thousands of digits
    if not (part.isascii() and part.isdecimal() and len(part) < 10 and int(part) < length):
        raise DoesNotFit(f"there is no item {_shown(part)}")
    return int(part)


def _find(document: Any, path: list[str]) -> Any:
    current = document
    for part in path:
        if isinstance(current, dict):
            if part not in current:
                raise DoesNotFit(f"there is no {_shown(part)} in {_place(path)}")
            current = current[part]
        elif isinstance(current, list):
            current = current[_index(part, len(current))]
        else:
            raise _no_container(path)
    return current


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _find(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(last, len(parent) + 1), value)
    else:
        raise _no_container(path)
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _find(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value  # a Kubernetes API server also replaces what does not exist
    elif isinstance(parent, list):
        parent[_index(last, len(parent))] = value
    else:
        raise _no_container(path)
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
    return _shown("/" + "/".join(path))


def _shown(text: Any) -> str:
    """A client's text, which may be long."""
    found = str(text)
    return repr(found if len(found) <= _SHOWN else found[: _SHOWN - 1] + "…")
