"""``$(NAME)`` references in environment values, commands and arguments.

Known names are replaced, unknown ones are left unchanged; ``$$`` is a dollar sign that starts no
reference. Linear in the text, and bounded: references to references can grow without limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

MAX_EXPANDED = 1 << 20
"""Characters; the kernel accepts 128 KiB for one argument or variable."""


MAX_TOTAL = 6 << 20
"""Characters of all words of a command; the kernel accepts no more arguments and variables."""


class ExpansionTooLong(ValueError):
    """The expanded text would be longer than the kernel passes to any process."""


def expand(text: str, lookup: Callable[[str], str | None]) -> str:
    """Replace the references in a text.

    Raises:
        ExpansionTooLong: the result is longer than MAX_EXPANDED.
    """
    parts: list[str] = []
    size = 0
    position = 0
    last_close = text.rfind(")")
    while True:
        dollar = text.find("$", position)
        if dollar < 0 or dollar + 1 >= len(text):
            parts.append(text[position:])
            break
        parts.append(text[position:dollar])
        following = text[dollar + 1]
        position = dollar + 2
        if following == "$":
            piece = "$"
        elif following == "(" and position <= last_close:
            close = text.index(")", position)
            value = lookup(text[position:close])
            piece = text[dollar : close + 1] if value is None else value
            position = close + 1
        else:
            piece = "$" + following
        parts.append(piece)
        size += len(piece)
        if size > MAX_EXPANDED:
            raise ExpansionTooLong(f"longer than {MAX_EXPANDED} characters after expansion")
    return "".join(parts)


def expand_all(texts: Iterable[str], variables: Mapping[str, str]) -> list[str]:
    """Expand a command or its arguments. Raises ExpansionTooLong."""
    words: list[str] = []
    left = MAX_TOTAL
    for text in texts:
        words.append(expand(text, variables.get))
        left -= len(words[-1])
        if left < 0:
            raise ExpansionTooLong(f"longer than {MAX_TOTAL} characters after expansion")
    return words
