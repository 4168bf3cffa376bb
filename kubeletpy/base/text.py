"""Untrusted text: made fit for logs, events and statuses, and split without surprises. Pure.

Runtimes, drivers and programs choose what the first part handles. The second reads the text files
of the kernel and of /etc. Apart, because every wing uses it, and it imports nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_DETAILS = 4096
"""Longest foreign text that an error keeps, in characters; the rest is cut off."""

_URL_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")
_DIGEST = re.compile(r"@[A-Za-z][A-Za-z0-9+._-]*:[0-9A-Fa-f]{32,}$")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def snake_case(name: str) -> str:
    """The Python name of a document's field: ``clusterDNS`` is ``cluster_dns``."""
    for word, plain in (("IPTables", "Iptables"), ("CPUs", "Cpus"), ("APIQPS", "ApiQPS")):
        name = name.replace(word, plain)
    return _PARTS.sub("_", name).lower()


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


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the known name that is most like a wrong one, or "" if none is like it.

    ``cutoff``: how alike they must be, from 0 (not at all) to 1 (equal).
    """
    from difflib import get_close_matches  # a start without mistakes does without its 80 kB

    return next(iter(get_close_matches(name, list(known), 1, cutoff)), "")


def image_user_info(image: str) -> str:
    """The user information in an image's name, as of a URL: ``user:word`` of ``user:word@host/a``.

    No registry takes credentials from a name; who writes one there means them to be secret.
    """
    name = _DIGEST.sub("", image)
    name = name.partition("://")[2] or name
    return name.rpartition("@")[0]


def reported_image(image: str) -> str:
    """An image's name for logs, events and errors: without user information."""
    found = image_user_info(image)
    return image.replace(f"{found}@", "[redacted]@", 1) if found else image


# Text files of the kernel. Containers choose some of the names in them (links, cgroups, processes,
# directories), and the kernel escapes only its own separators. So lines end only at a newline, and
# words only at blanks and tabs: ``str.split`` also splits at a vertical tab or U+2028.

_MAX_DIGITS = 20
"""Digits of the largest 64-bit number."""


def lines(text: str) -> list[str]:
    """The lines of a file, without an empty one after the last newline."""
    found = text.split("\n")
    if not found[-1]:
        found.pop()
    return found


def tokens(line: str) -> list[str]:
    """The words of a line, separated by blanks and tabs."""
    return [word for word in line.replace("\t", " ").split(" ") if word]


def sizes(text: str) -> dict[str, int]:
    """/proc/meminfo or /proc/PID/status: name -> bytes, for the lines in kB."""
    found: dict[str, int] = {}
    for line in lines(text):
        parts = tokens(line)
        size = number(parts[1]) if len(parts) == 3 and parts[2] == "kB" else None
        if size is not None:
            found[parts[0].rstrip(":")] = size * 1024
    return found


def number(text: str | None) -> int | None:
    """A count in ASCII digits; None for anything else (``max``, a sign, other digits)."""
    stripped = (text or "").strip(" \t\n")
    if not (stripped.isascii() and stripped.isdigit()) or len(stripped) > _MAX_DIGITS:
        return None
    return int(stripped)
