"""Each version is said in one place; what repeats it is checked here."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import kubeletpy
import kubeletpy_up
from kubeletpy.version import KUBERNETES, KUBERNETES_MINOR, VERSION
from tools.rulebook import tables

PACKAGE = Path(kubeletpy.__file__).parent
EMBEDDED = Path(kubeletpy_up.__file__).parent


def test_both_distributions_say_the_same() -> None:
    agent, embedded = (
        tomllib.loads((tables.ROOT / folder / "pyproject.toml").read_text())["project"]
        for folder in (".", "up")
    )
    assert agent["version"] == embedded["version"] == VERSION
    assert f"kubeletpy=={VERSION}" in embedded["dependencies"]
    assert agent["optional-dependencies"]["up"] == [f"kubeletpy-up=={VERSION}"]


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
        path.relative_to(package.parent).as_posix()
        for package in (PACKAGE, EMBEDDED)
        for path in package.rglob("*.py")
        if KUBERNETES_MINOR in (text := path.read_text())
        if any(KUBERNETES_MINOR in each for each in literals(text))
    }
    assert saying == {"kubeletpy/version.py"}
