"""The check of prose: how finds are counted, and when it fails."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tools import check_language
from tools.check_language import CannotBuild, chosen, lowered, main, package, problems
from tools.env.process import CommandError

ROOT = check_language.ROOT


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("README.md", "docs"),
        ("docs/runbooks/x.md", "docs"),
        ("kubeletpy/library/__init__.py", "kubeletpy/library"),
        ("kubeletpy/volumes/csi/objects.py", "kubeletpy/volumes"),
    ],
)
def test_files_count_with_their_package(path: str, name: str) -> None:
    assert package(Path(path)) == name


def test_more_finds_than_before_are_a_problem() -> None:
    counts = {
        ("docs", "Words"): 3,
        ("kubeletpy/base/api", "Words"): 1,
        ("kubeletpy/cli", "Words"): 2,
    }
    found = problems(counts, {("docs", "Words"): 2, ("kubeletpy/cli", "Words"): 2})
    assert [each.partition(":")[0] for each in found] == ["docs", "kubeletpy/base/api"]


def test_fewer_finds_are_a_problem_only_in_the_sample() -> None:
    baseline = {("docs", "Words"): 2, ("tools/vale", "Words"): 4}
    found = problems({("tools/vale", "Words"): 3}, baseline)
    assert [each.partition(":")[0] for each in found] == ["tools/vale/sample.py"]


def test_the_baseline_of_every_rule_has_its_sample() -> None:
    with (ROOT / check_language.BASELINE).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rules = {each.stem for each in (ROOT / "tools/vale/styles/kubeletpy").glob("*.yml")}
    assert {row["rule"] for row in rows if row["package"] == "tools/vale"} == rules


def test_the_baseline_only_shrinks_but_for_a_new_rule() -> None:
    counts = {("a", "New"): 7, ("a", "Old"): 3, ("b", "Old"): 1, ("c", "Old"): 1}
    baseline = {("a", "Old"): 2, ("b", "Old"): 5, ("d", "Old"): 1}
    assert lowered(counts, baseline) == "package,rule,finds\na,New,7\na,Old,2\nb,Old,1\n"


def test_finds_of_a_package_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = {"Check": "kubeletpy.Words", "Line": 3, "Message": '"told": report'}
    monkeypatch.setattr(check_language, "vale", lambda: Path("vale"))
    monkeypatch.setattr(
        check_language, "run", lambda *argv, **more: json.dumps({str(argv[-1]): [find]})
    )
    assert main(["README.md"]) == 1
    assert capsys.readouterr().out == 'README.md:3: "told": report\n'


@pytest.mark.parametrize(
    ("error", "ci", "code"),
    [
        (CannotBuild("go is not installed"), "", 0),
        (CannotBuild("go is not installed"), "true", 1),
        (CommandError("vale did not end within 600 s"), "", 1),
        (CommandError("go build failed"), "", 1),
    ],
)
def test_only_a_machine_without_go_may_pass_unchecked(
    error: CommandError,
    ci: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> Path:
        raise error

    monkeypatch.setattr(check_language, "vale", fail)
    monkeypatch.setenv("CI", ci)
    assert main([]) == code
    printed = capsys.readouterr()
    assert (printed.err if code else printed.out) == f"prose is not checked: {error}\n"


def test_packages_folders_and_files_can_be_chosen() -> None:
    pages = {each for each in chosen(["docs"]) if each.suffix == ".md"}
    assert {Path("README.md"), Path("docs/index.md")} < pages
    assert chosen(["docs/index.md"]) == [Path("docs/index.md")]
    assert {package(each) for each in chosen(["kubeletpy/status/", "up"])} == {
        *("docs", "kubeletpy/status", "up", "up/kubeletpy_up")
    }


@pytest.mark.parametrize("arguments", [["kubeletpy/no"], ["--wirte"], ["docs", "no"]])
def test_an_unknown_package_is_an_error(arguments: list[str]) -> None:
    assert main(arguments) == 2
