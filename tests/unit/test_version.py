"""Each version is stated in one place: kubeletpy/base/version.py,
kubeletpy/base/kubernetes_version.py."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import kubeletpy
import kubeletpy_up
from kubeletpy.base.kubernetes_version import SUPPORTED
from kubeletpy.base.version import VERSION
from tools.rulebook import tables

PACKAGE = Path(kubeletpy.__file__).parent
EMBEDDED = Path(kubeletpy_up.__file__).parent


def test_no_project_file_contains_this_version() -> None:
    for folder in (".", "up"):
        path = tables.ROOT / folder / "pyproject.toml"
        assert "version" in tomllib.loads(path.read_text())["project"]["dynamic"]
        assert VERSION not in path.read_text()
    assert VERSION not in (tables.ROOT / "up" / "setup.py").read_text()


def test_the_newest_section_of_the_changelog_is_of_this_version() -> None:
    lines = (tables.ROOT / "CHANGELOG.md").read_text().splitlines()
    versions = [line for line in lines if line.startswith("## [")]
    assert re.fullmatch(rf"## \[{re.escape(VERSION)}\] - \d{{4}}-\d\d-\d\d", versions[0])


def test_the_tables_are_of_a_supported_kubernetes() -> None:
    version = tables.document("api-resources.json")["version"]
    of_tables = f"{version['major']}.{version['minor']}"
    assert of_tables in map(str, SUPPORTED)
    for page in (*tables.REFERENCE.glob("behaviour*.md"), tables.REFERENCE / "README.md"):
        assert f" {of_tables}" in page.read_text().partition("\n")[0], page.name


_MINOR = re.compile(rf"\b({'|'.join(re.escape(str(each)) for each in SUPPORTED)})\b")


def literals(source: str) -> list[str]:
    """The strings of a module that are not docstrings."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]


def test_no_other_module_contains_a_supported_kubernetes_version() -> None:
    saying = {
        path.relative_to(package.parent).as_posix()
        for package in (PACKAGE, EMBEDDED)
        for path in package.rglob("*.py")
        if "generated" not in path.parts and _MINOR.search(text := path.read_text())
        if any(_MINOR.search(each) for each in literals(text))
    }
    assert saying == set()
