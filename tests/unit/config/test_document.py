"""Requirements of any settings document, independent of its fields."""

from __future__ import annotations

import pytest
import yaml

from kubeletpy.config.decode import decode, parse, without_zeros
from kubeletpy.config.fields import API_VERSION, KIND
from kubeletpy.config.problems import MAX_DEPTH, ProblemReport, TooDeep, check_depth


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        (f"kind: {KIND}", [("apiVersion", "is required")]),
        (f"apiVersion: {API_VERSION}", [("kind", "is required")]),
        (f"apiVersion: v1\nkind: {KIND}", [("apiVersion", f"must be {API_VERSION}")]),
        (f"apiVersion: {API_VERSION}\nkind: Pod", [("kind", f"must be {KIND}")]),
        (f"apiVersion: {API_VERSION}\nkind: {KIND}", []),
        ("[]", [("(document)", "must be an object")]),
    ],
)
def test_version_and_kind(text: str, stated: list[tuple[str, str]]) -> None:
    report = ProblemReport()
    parse(text, report)
    assert [
        (problem.field, problem.allowed.partition(":")[0]) for problem in report.problems
    ] == stated


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
def test_depth(loader: object) -> None:
    check_depth("[" * MAX_DEPTH + "]" * MAX_DEPTH, loader)
    check_depth("[" + "[]," * (MAX_DEPTH + 1) + "]", loader)
    with pytest.raises(TooDeep):
        check_depth("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), loader)
    assert MAX_DEPTH == 100


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
@pytest.mark.parametrize(
    ("before", "opening"), [("", "["), ("a: ", "{"), ("- ", "{a: "), ("", "[{")]
)
@pytest.mark.parametrize("depth", [999, 1_001, 20_000])
def test_a_depth_that_the_loader_itself_refuses_is_reported_as_too_deep(
    loader: object, before: str, opening: str, depth: int
) -> None:
    with pytest.raises(TooDeep):
        check_depth(before + opening * depth, loader)


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
def test_other_errors_of_the_scanner_are_not_reported_as_depth(loader: object) -> None:
    with pytest.raises(yaml.YAMLError, match="end of stream"):
        check_depth('a: "' + "[" * 3_000, loader)


def test_a_zero_is_set_only_where_it_has_a_meaning() -> None:
    """It is set where absence means null, and where zero is the default: its type is checked."""
    zeros = {"port": 0, "syncFrequency": "0s", "hairpinMode": "", "maxPods": "0"}
    kept = {
        "healthzPort": 0,
        "readOnlyPort": "0",
        "imageMaximumGCAge": "0s",
        "staticPodPath": "",
        "rotateCertificates": False,
        "clusterDNS": [],
        "evictionHard": {},
    }
    assert without_zeros({**zeros, **kept, "registryBurst": 1}) == {**kept, "registryBurst": 1}


def test_invalid_values_are_reported_and_left_out() -> None:
    report = ProblemReport()
    supplied = {"port": 5, "maxPods": "x", "maxOpenFiles": -1, "podPidsLimit": 7}
    assert decode(supplied, report) == {"port": 5, "podPidsLimit": 7}
    assert [problem.field for problem in report.problems] == ["maxPods", "maxOpenFiles"]
