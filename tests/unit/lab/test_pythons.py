"""Python versions that the tests run under, and commands in a root file system."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tools import pythons
from tools.lab.recipe import SUITES

CLASSIFIER = "Programming Language :: Python :: "


@pytest.mark.parametrize(
    "parts, versions, rest",
    [
        (["3.13", "3.14"], ["3.13", "3.14"], ["tests/unit"]),
        (["3.14", "tests/sim", "-k", "seed"], ["3.14"], ["tests/sim", "-k", "seed"]),
        (["-x"], list(SUITES.values()), ["-x", "tests/unit"]),
    ],
    ids=str,
)
def test_versions_are_separated_from_arguments_of_pytest(
    parts: list[str], versions: list[str], rest: list[str]
) -> None:
    assert pythons.divide(parts) == (versions, rest)


def test_an_unknown_version_lists_the_known_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["pythons", "2.7"])
    assert pythons.main() == 2
    assert "no release of Debian has 2.7: 3.11 3.13 3.14" in capsys.readouterr().out


def test_the_tests_packages_are_installed_and_the_project_is_not() -> None:
    names = pythons.requirements()
    assert any(each.startswith("pytest-xdist") for each in names)
    assert not [each for each in names if each.startswith("kubeletpy")]


def test_a_command_runs_in_the_root_file_system(tmp_path: Path) -> None:
    command = pythons.enter_command(tmp_path / "root", "pip", "list")
    assert command[:2] == ["unshare", "--mount"]
    assert command[-3:] == [str(tmp_path / "root"), "pip", "list"]


def test_the_metadata_names_each_python_that_is_tried() -> None:
    project = tomllib.loads((pythons.CHECKOUT / "pyproject.toml").read_text())["project"]
    named = {each.removeprefix(CLASSIFIER) for each in project["classifiers"]}
    assert set(SUITES.values()) <= named
