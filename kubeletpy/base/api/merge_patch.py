"""JSON merge patch (RFC 7396) on plain JSON. Pure."""

from __future__ import annotations

from typing import Any


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
