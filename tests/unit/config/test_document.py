"""What a settings document must have whatever its fields are."""

from __future__ import annotations

import pytest
import yaml

from kubeletpy.config.decode import parse
from kubeletpy.config.fields import API_VERSION, KIND
from kubeletpy.config.problems import Report
from kubeletpy.config.yaml_depth import MAX_DEPTH, TooDeep, check_depth


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"kind: {KIND}", [("apiVersion", "is required")]),
        (f"apiVersion: {API_VERSION}", [("kind", "is required")]),
        (f"apiVersion: v1\nkind: {KIND}", [("apiVersion", f"must be {API_VERSION}")]),
        (f"apiVersion: {API_VERSION}\nkind: Pod", [("kind", f"must be {KIND}")]),
        (f"apiVersion: {API_VERSION}\nkind: {KIND}", []),
        ("[]", [("(document)", "must be an object")]),
    ],
)
def test_version_and_kind(text: str, said: list[tuple[str, str]]) -> None:
    report = Report()
    parse(text, report)
    assert [
        (problem.field, problem.allowed.partition(":")[0]) for problem in report.problems
    ] == said


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
def test_depth(loader: object) -> None:
    check_depth("[" * MAX_DEPTH + "]" * MAX_DEPTH, loader)
    check_depth("[" + "[]," * (MAX_DEPTH + 1) + "]", loader)
    with pytest.raises(TooDeep):
        check_depth("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), loader)
    assert MAX_DEPTH == 100
