"""The walks of docs/architecture.md name existing files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROWS = re.findall(
    r"^\| (?!walk|---)(.*?) \| (.*) \|$", PAGE.partition("| walk |")[2].partition("## ")[0], re.M
)


@pytest.mark.parametrize(("walk", "files"), ROWS)
def test_files_of_a_walk(walk: str, files: str) -> None:
    package, found = "", []
    for name, colon in re.findall(r"`([a-z_/]+)`(:?)", re.sub(r"\(listeners[^)]*\)", "", files)):
        if colon:
            package = name
        else:
            found.append(name if (ROOT / f"kubeletpy/{name}.py").exists() else f"{package}{name}")
    assert len(found) > 5, walk
    assert [name for name in found if not (ROOT / f"kubeletpy/{name}.py").exists()] == []


def test_there_are_four_walks() -> None:
    assert len(ROWS) == 4
