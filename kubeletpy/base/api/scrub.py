"""Makes the output of runtimes, drivers and programs fit for logs, events and statuses. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_DETAILS = 4096
"""Longest foreign text that an error keeps, in characters; the rest is cut off."""

_URL_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")
_DIGEST = re.compile(r"@[A-Za-z][A-Za-z0-9+._-]*:[0-9A-Fa-f]{32,}$")
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


def first_line(error: Exception) -> str:
    """The first line of an error's message; its type for one without a message."""
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def image_user_info(image: str) -> str:
    """The user information in an image's name, as of a URL: ``user:word`` of ``user:word@host/a``.

    No registry takes credentials from a name; who writes one there means them to be secret.
    """
    name = _DIGEST.sub("", image)
    name = name.partition("://")[2] or name
    return name.rpartition("@")[0]


def shown_image(image: str) -> str:
    """An image's name for logs, events and errors: without user information."""
    found = image_user_info(image)
    return image.replace(f"{found}@", "[redacted]@", 1) if found else image
