"""Finds citations of docs/reference in a text, and reports those that name nothing.

The syntax is that of docs/reference/README.md, "How to cite". Reads the tables, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tools.rulebook import tables

MENTION = re.compile(r"docs/reference\b")
PATH = re.compile(r"docs/reference/(?P<file>[\w.-]+\.(?:md|csv|json))")
ITEM = r"(?:\"[^\"]+\"|[^\s\",;:()`](?:[^\",;:()`]*?[^\s\",;:()`.])?)"
NAMED = re.compile(rf"(?P<sign>[,:]) (?P<items>{ITEM}(?:, {ITEM})*?)(?=[;:)`]|\.(?:\W|$)|\s*$)")
BREAK = re.compile(r"\n[ \t]*(?:#:? )?")
COMMENT = re.compile(r"[^\n]*(?:\n[ \t]*#[^\n]*)*")
LONGEST = 600
"""Maximum number of characters of a text that are read for one citation."""


@dataclass(frozen=True)
class Citation:
    """One citation, and what is wrong with it ("" if it resolves)."""

    line: int
    text: str
    problem: str


def _items(text: str) -> list[str]:
    return [item.strip('"') for item in re.findall(r'"[^"]+"|[^\s",][^",]*', text)]


def _judged(text: str) -> tuple[str, str]:
    """The citation at the start of the text, and what is wrong with it."""
    path = PATH.match(text)
    if path is None:
        return text.partition("\n")[0][:60], "names no file"
    file, rest = path["file"], text[path.end() :]
    if file == "README.md":
        return path[0], ""
    if file not in tables.files():
        return path[0], f"there is no {file}"
    page = file.endswith(".md")
    if not rest.startswith((", ", ": ")):
        return path[0], "names no section" if page else ""
    named = NAMED.match(rest)
    if named is None or named["sign"] != ("," if page else ":"):
        return text[:80], "does not follow the syntax"
    unknown = [item for item in _items(named["items"]) if item not in tables.keys(file)]
    problem = f"{file} has no {', '.join(map(repr, unknown))}" if unknown else ""
    return path[0] + named[0], problem


def citations(text: str) -> Iterator[Citation]:
    """Every mention of docs/reference in a text of Python, shell or Markdown."""
    for mention in MENTION.finditer(text):
        start = mention.start()
        rest = text[start : start + LONGEST].partition('"""')[0].partition("\n\n")[0]
        in_comment = "#" in text[text.rfind("\n", 0, start) + 1 : start]
        if in_comment and (comment := COMMENT.match(rest)):
            rest = comment[0]
        cited, problem = _judged(BREAK.sub(" ", rest))
        yield Citation(text.count("\n", 0, start) + 1, cited, problem)
