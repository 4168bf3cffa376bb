"""Lines, words and numbers in the text files of the kernel and of /etc. Pure.

Containers choose some of the names in such files (of links, cgroups, processes, directories), and
the kernel escapes only its own field and line separators in them. So lines end only at a newline
and words only at blanks and tabs: ``str.splitlines`` and ``str.split`` also split at a vertical
tab, a unit separator or U+2028.
"""

from __future__ import annotations

_DIGITS = 20
"""Digits of the largest 64-bit number."""


def lines(text: str) -> list[str]:
    """The lines of a file, without an empty one after the last newline."""
    found = text.split("\n")
    if not found[-1]:
        found.pop()
    return found


def words(line: str) -> list[str]:
    """The words of a line, separated by blanks and tabs."""
    return [word for word in line.replace("\t", " ").split(" ") if word]


def sizes(text: str) -> dict[str, int]:
    """/proc/meminfo or /proc/PID/status: name -> bytes, for the lines in kB."""
    found: dict[str, int] = {}
    for line in lines(text):
        parts = words(line)
        size = number(parts[1]) if len(parts) == 3 and parts[2] == "kB" else None
        if size is not None:
            found[parts[0].rstrip(":")] = size * 1024
    return found


def number(text: str | None) -> int | None:
    """A count in ASCII digits; None for anything else (``max``, a sign, other digits)."""
    stripped = (text or "").strip(" \t\n")
    if not (stripped.isascii() and stripped.isdigit()) or len(stripped) > _DIGITS:
        return None
    return int(stripped)
