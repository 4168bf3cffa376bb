"""The version is said in one place and repeated in pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

from kubeletpy.version import VERSION


def test_pyproject_says_the_same() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert tomllib.loads(text)["project"]["version"] == VERSION
