"""Every citation of docs/reference names an existing file and an existing section or row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.rulebook import tables
from tools.rulebook.citations import Citation, citations

FOLDERS = ("kubeletpy", "up", "tests", "bench", "tools", "docs")
OWN = (
    "tests/unit/test_citations.py",
    "tests/unit/test_differences.py",
    "tools/rulebook/__init__.py",
    "tools/rulebook/citations.py",
    "tools/rulebook/differences.py",
    "tools/rulebook/tables.py",
    "docs/reference/README.md",
)
"""Files that describe citations themselves."""


def texts() -> list[tuple[str, str]]:
    """Path below the root and text of every file that may cite."""
    root = tables.ROOT
    found = [root / "README.md", *root.glob("*.sh")]
    for folder in FOLDERS:
        for kind in ("*.py", "*.md", "*.toml"):
            found += (root / folder).rglob(kind)
    named = [(path.relative_to(root).as_posix(), path) for path in found]
    return [(name, path.read_text()) for name, path in sorted(named) if name not in OWN]


def test_every_citation_names_something() -> None:
    problems = [
        f"{name}:{each.line}: {each.text!r}: {each.problem}"
        for name, text in texts()
        for each in citations(text)
        if each.problem
    ]
    assert problems == []


def test_there_are_citations() -> None:
    assert sum(1 for _, text in texts() for _ in citations(text)) > 100


def test_every_file_is_in_the_index() -> None:
    index = (tables.REFERENCE / "README.md").read_text()
    missing = {name for name in tables.files() if name not in index and name != "README.md"}
    assert missing == set()


def test_no_two_sections_have_one_name() -> None:
    for path in Path(tables.REFERENCE).glob("*.md"):
        names = tables.HEADING.findall(path.read_text())
        assert sorted(names) == sorted(set(names)), path.name


BEHAVIOUR, CONSTANTS = "docs/reference/behaviour.md", "docs/reference/constants.csv"


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        (f'"""Source: {BEHAVIOUR}, c4; KEP-753."""', f"{BEHAVIOUR}, c4"),
        (f'"""So ({BEHAVIOUR}, c4, c5). More."""', f"{BEHAVIOUR}, c4, c5"),
        (f'"""{BEHAVIOUR},\n    c4."""', f"{BEHAVIOUR}, c4"),
        (f"# {CONSTANTS}: housekeeping\n# period\nX = 1", f"{CONSTANTS}: housekeeping period"),
        (f"X = 1  # {CONSTANTS}: pleg\nY = 2", f"{CONSTANTS}: pleg"),
        (f"`{CONSTANTS}: pleg`, they say", f"{CONSTANTS}: pleg"),
        (f'{CONSTANTS}: "evented: generic relist".', f'{CONSTANTS}: "evented: generic relist"'),
        ("all of docs/reference/flags.csv and more", "docs/reference/flags.csv"),
    ],
)
def test_it_is_read(text: str, cited: str) -> None:
    found = list(citations(text))
    assert [(each.text, each.problem) for each in found] == [(cited, "")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('"""Source: docs/reference, images."""', "names no file"),
        ("docs/reference/none.md, c4.", "there is no none.md"),
        (f"{BEHAVIOUR}.", "names no section"),
        (f"{BEHAVIOUR} says so", "names no section"),
        (f"{BEHAVIOUR}, c4, c99.", "behaviour.md has no 'c99'"),
        (f"{BEHAVIOUR}, c4 and c5.", "behaviour.md has no 'c4 and c5'"),
        (f"{BEHAVIOUR}: c4.", "does not follow the syntax"),
        (f"{CONSTANTS}: no such row.", "constants.csv has no 'no such row'"),
        (f"{CONSTANTS}, pleg.", "does not follow the syntax"),
        ("docs/reference/cri-v1.json: RuntimeService.Nothing.", "has no 'RuntimeService.Nothing'"),
    ],
)
def test_it_is_red(text: str, problem: str) -> None:
    found = list(citations(text))
    assert len(found) == 1
    assert isinstance(found[0], Citation)
    assert problem in found[0].problem
