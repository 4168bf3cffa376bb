"""Makes the output of runtimes, drivers and programs fit for logs, events and statuses. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_DETAILS = 4096
"""Longest foreign text that an error keeps, in characters; the rest is cut off."""

_URL_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """A text that is safe to show: no secrets, no URL credentials, no control characters.

    ``secrets`` are strings that must not appear (empty ones are ignored). Newlines and tabs stay.
    The result has at most MAX_DETAILS characters.
    """
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "[redacted]")
    text = _CONTROL.sub("", _URL_USERINFO.sub("", text))
    return text if len(text) <= MAX_DETAILS else text[: MAX_DETAILS - 1] + "…"
