"""Lines, words and numbers of the text files of the kernel and of /etc. Pure.

Containers choose some of the names in such files (of links, cgroups, processes, directories), and
the kernel escapes no more in them than what separates fields and lines for itself. So a line ends
at a newline only and words are cut at blanks and tabs only: ``str.splitlines`` and ``str.split``
also cut at a vertical tab, a unit separator or U+2028.
"""

from __future__ import annotations

_DIGITS = 20
"""Of the largest number of 64 bits."""


def lines(text: str) -> list[str]:
    """The lines of a file, without an empty one behind the last newline."""
    found = text.split("\n")
    if not found[-1]:
        found.pop()
    return found


def words(line: str) -> list[str]:
    """What is between blanks and tabs."""
    return [word for word in line.replace("\t", " ").split(" ") if word]


def number(text: str | None) -> int | None:
    """A count in ASCII digits; None for anything else (``max``, a sign, other digits)."""
    stripped = (text or "").strip(" \t\n")
    if not (stripped.isascii() and stripped.isdigit()) or len(stripped) > _DIGITS:
        return None
    return int(stripped)
