"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386), on plain JSON without changing it.

Pure. A patch is hostile input: anything wrong with it yields a Status error.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from kubeletpy.api.types import JSON
from kubeletpy_up.errors import ApiError, bad_request
from kubeletpy_up.schema.json_types import json_type

_MAX_OPERATIONS = 10_000
_MAX_COPIED = 3 << 20
"""Bytes of JSON that one patch's copies may create: copies of copies double each time."""


def merge_patch(original: Any, patch: Any) -> Any:
    """Apply an RFC 7386 patch; null removes."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(original) if isinstance(original, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(original: JSON, operations: Any) -> JSON:
    """Apply an RFC 6902 patch.

    Raises:
        ApiError: 400 if it is not such a patch, 413 if it is too large or copies too much, 422 if
            it does not fit the object.
    """
    if not isinstance(operations, list):
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {json_type(operations)} into Go value "
            "of type []handlers.jsonPatchOp"
        )
    if len(operations) > _MAX_OPERATIONS:
        raise ApiError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}",
        )
    try:
        document = _apply_all(copy.deepcopy(original), operations)
    except RecursionError:
        raise bad_request("the patched object is nested too deep") from None
    if not isinstance(document, dict):
        raise _rejected()
    return document


def _apply_all(document: Any, operations: list[Any]) -> Any:
    copied = 0
    for operation in operations:
        if not isinstance(operation, dict):
            raise bad_request("an operation of a JSON patch is not an object")
        if not isinstance(operation.get("path"), str):
            raise _rejected()
        if operation.get("op") == "copy":
            copied += len(json.dumps(_source(document, operation)))
            if copied > _MAX_COPIED:
                raise ApiError(
                    413,
                    "RequestEntityTooLarge",
                    f"the copy operations of a JSON patch may make {_MAX_COPIED} bytes at most",
                )
        document = _apply(document, operation)
    return document


def _source(document: Any, operation: JSON) -> Any:
    source = operation.get("from")
    if not isinstance(source, str):
        raise bad_request(f"JSON patch operation {operation.get('op')} needs from")
    return _find(document, _pointer(source))


def _rejected() -> ApiError:
    return ApiError(
        422, "Invalid", "the server rejected our request due to an error in our request"
    )


def _apply(document: Any, operation: JSON) -> Any:
    op, path = operation.get("op"), _pointer(operation["path"])
    if op in ("add", "replace", "test") and "value" not in operation:
        raise bad_request(f"JSON patch operation {op} needs a value")
    if op == "add":
        return _add(document, path, copy.deepcopy(operation["value"]))
    if op == "replace":
        return _replace(document, path, copy.deepcopy(operation["value"]))
    if op == "remove":
        return _remove(document, path)
    if op == "test":
        if _find(document, path) != operation["value"]:
            raise _rejected()
        return document
    if op == "copy":
        return _add(document, path, copy.deepcopy(_source(document, operation)))
    if op == "move":
        value = _source(document, operation)
        return _add(_remove(document, _pointer(operation["from"])), path, value)
    raise _rejected()


def _pointer(text: str) -> list[str]:
    if text == "":
        return []
    if not text.startswith("/"):
        raise bad_request(f"invalid JSON pointer {text!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _index(part: str, length: int) -> int:
    if not part.isdecimal() or not 0 <= int(part) < length:
        raise _rejected()
    return int(part)


def _find(document: Any, path: list[str]) -> Any:
    current = document
    for part in path:
        if isinstance(current, dict):
            if part not in current:
                raise _rejected()
            current = current[part]
        elif isinstance(current, list):
            current = current[_index(part, len(current))]
        else:
            raise _rejected()
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
        raise _rejected()
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
        raise _rejected()
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise _rejected()
    parent, last = _find(document, path[:-1]), path[-1]
    _find(parent, [last])
    if isinstance(parent, dict):
        del parent[last]
    else:
        del parent[_index(last, len(parent))]
    return document
