"""Limits on the size of one object, in whatever form it is sent."""

from __future__ import annotations

from typing import Any

from kubeletpy_up.errors import ApiError

BODY_LIMIT = 3 << 20
"""Maximum size of a request's body, in bytes."""
MAX_VALUES = 300_000
"""Maximum number of values in one body or patched object: each costs some microseconds. The
largest pods that fit into a body (forty thousand mounts) have half as many.
"""


LARGE = 16 << 10
"""Size in bytes above which a thread handles a body, an object or a list."""


def check_count(count: int) -> None:
    """Refuse as many values if that is more than MAX_VALUES. Raises ApiError 413."""
    if count > MAX_VALUES:
        message = f"Request entity too large: limit is {MAX_VALUES} values"
        raise ApiError(413, "RequestEntityTooLarge", message)


def check_values(sent: Any) -> None:
    """Refuse an object with more values than MAX_VALUES. Raises ApiError 413."""
    waiting, seen = [sent], 0
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            seen += len(value)
            check_count(seen)
            waiting.extend(value.values() if isinstance(value, dict) else value)
