"""Each version is said in one place; what repeats it is checked here."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import kubeletpy
from kubeletpy.version import KUBERNETES, KUBERNETES_MINOR, VERSION
from tools.rulebook import tables

PACKAGE = Path(kubeletpy.__file__).parent


def test_pyproject_says_the_same() -> None:
    text = (PACKAGE.parent / "pyproject.toml").read_text()
    assert tomllib.loads(text)["project"]["version"] == VERSION


def test_the_tables_are_of_this_kubernetes() -> None:
    version = tables.document("api-resources.json")["version"]
    assert f"{version['major']}.{version['minor']}" == KUBERNETES_MINOR
    assert KUBERNETES.startswith(f"{KUBERNETES_MINOR}.")
    for page in (*tables.REFERENCE.glob("behaviour*.md"), tables.REFERENCE / "README.md"):
        assert f" {KUBERNETES_MINOR}" in page.read_text().partition("\n")[0], page.name


def literals(source: str) -> list[str]:
    """The strings of a module that are not docstrings."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]


def test_no_other_module_says_which_kubernetes_this_is() -> None:
    saying = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if KUBERNETES_MINOR in (text := path.read_text())
        if any(KUBERNETES_MINOR in each for each in literals(text))
    }
    assert saying == {"version.py"}
