"""How much one object may hold, however it came."""

from __future__ import annotations

from typing import Any

from kubeletpy_up.errors import ApiError

BODY_LIMIT = 3 << 20
"""Most bytes of a request's body."""
MAX_VALUES = 300_000
"""Most values within one body or patched object: each costs some microseconds,
whatever it is. The largest pods that fit into a body (forty thousand mounts) have half as many.
"""


LARGE = 16 << 10
"""Bytes from which the work for a body, an object or a list is done beside the event loop."""


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
