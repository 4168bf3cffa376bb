"""Values that configuration fields accept: types, bounds, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.config import decoders as d
from kubeletpy.config import rules as r
from kubeletpy.config.problems import ProblemReport

BAD = object()
"""The value is refused."""
STRINGS = d.map_of(d.string)
KEYED = d.map_of(d.string, ("a", "b"))
STRUCT = d.struct_of(lambda **supplied: supplied, {"one": (d.int32, ...), "two": (d.string, "z")})

ROWS: list[tuple[d.Decoder, object, object]] = [
    (d.int32, 2**31 - 1, 2**31 - 1),
    (d.int32, 2**31, BAD),
    (d.int32, -(2**31), -(2**31)),
    (d.int32, -(2**31) - 1, BAD),
    (d.int32, True, BAD),
    (d.int32, 1.0, BAD),
    (d.int32, "1", BAD),
    (d.int64, 2**63 - 1, 2**63 - 1),
    (d.int64, 2**63, BAD),
    (d.int64, -(2**63), -(2**63)),
    (d.int64, -(2**63) - 1, BAD),
    (d.uint32, 0, 0),
    (d.uint32, -1, BAD),
    (d.uint32, 2**31 - 1, 2**31 - 1),
    (d.uint32, 2**31, BAD),
    (d.number, 1, 1.0),
    (d.number, 0.5, 0.5),
    (d.number, True, BAD),
    (d.number, "1", BAD),
    (d.string, "", ""),
    (d.string, 1, BAD),
    (d.duration, "1m", 60.0),
    (d.duration, "1x", BAD),
    (d.duration, 60, BAD),
    (d.duration_or_nanoseconds, 1500000000, 1.5),
    (d.duration_or_nanoseconds, "2s", 2.0),
    (d.duration_or_nanoseconds, True, BAD),
    (d.duration_or_nanoseconds, 1.5, BAD),
    (d.size, 5, 5),
    (d.size, "1Ki", 1024),
    (d.size, True, BAD),
    (d.size, "x", BAD),
    (d.size, 1.5, BAD),
    (d.list_of(d.int32), [1, 2], (1, 2)),
    (d.list_of(d.int32), [1, "2"], BAD),
    (d.list_of(d.int32), "12", BAD),
    (STRINGS, {"x": "y"}, {"x": "y"}),
    (STRINGS, {"x": 1}, BAD),
    (STRINGS, {1: "x"}, BAD),
    (STRINGS, ["x"], BAD),
    (KEYED, {"a": "y"}, {"a": "y"}),
    (KEYED, {"c": "y"}, BAD),
    (KEYED, {1: "y"}, BAD),
    (STRUCT, {"one": 1}, {"one": 1, "two": "z"}),
    (STRUCT, {"one": 1, "two": "x"}, {"one": 1, "two": "x"}),
    (STRUCT, {"one": 1, "two": None}, {"one": 1, "two": "z"}),
    (STRUCT, {"two": "x"}, BAD),
    (STRUCT, {"one": "x"}, BAD),
    (STRUCT, {"one": 1, "three": 3}, {"one": 1, "two": "z"}),
    (STRUCT, [], BAD),
    (d.quantity_text, "1Gi", "1Gi"),
    (d.quantity_text, "0", "0"),
    (d.quantity_text, "-1", BAD),
    (d.quantity_text, "x", BAD),
    (d.quantity_text, 1, BAD),
    (d.threshold, "1Gi", "1Gi"),
    (d.threshold, "0.5", "0.5"),
    (d.threshold, "0", BAD),
    (d.threshold, "0%", "0%"),
    (d.threshold, "100%", "100%"),
    (d.threshold, "100.5%", BAD),
    (d.threshold, "-0.5%", BAD),
    (d.threshold, "x%", BAD),
    (d.threshold, "x", BAD),
    (d.threshold, 5, BAD),
    (d.reclaim, "0", "0"),
    (d.reclaim, "-1", BAD),
    (d.reclaim, "0.5%", "0.5%"),
    (d.reclaim, "500%", "500%"),
    (d.reclaim, "0%", BAD),
    (d.reclaim, "-1%", BAD),
    (d.reclaim, "inf%", BAD),
    (d.reclaim, "nan%", BAD),
    (d.reclaim, 0, BAD),
    (d.grace, "0s", 0.0),
    (d.grace, "500ms", 0.5),
    (d.grace, "-1ms", BAD),
    (d.grace, "x", BAD),
    (d.percent, "0%", "0%"),
    (d.percent, "100%", "100%"),
    (d.percent, "0.5%", BAD),
    (d.percent, "101%", BAD),
    (d.percent, "-0.5%", BAD),
    (d.percent, "50", BAD),
    (d.percent, "x%", BAD),
    (d.percent, 50, BAD),
]


@pytest.mark.parametrize(("decode", "value", "expected"), ROWS)
def test_values_that_a_field_accepts(decode: d.Decoder, value: object, expected: object) -> None:
    report = ProblemReport()
    found = decode(value, "x", report)
    assert bool(report.problems) is (expected is BAD)
    if expected is not BAD:
        assert found == expected


def test_a_problem_names_its_field_once() -> None:
    report = ProblemReport()
    d.grace("x", "g", report)
    d.list_of(d.string)(["a", 1], "l", report)
    KEYED({"c": 1}, "m", report)
    STRUCT({"on": 1, "one": 1}, "s", report)
    assert [problem.field for problem in report.problems] == ["g", "l[1]", "m.c"]
    assert "allowed: a, b" in str(report.problems[2])
    assert [problem.field for problem in report.lenient] == ["s.on"]
    assert "did you mean one?" in str(report.lenient[0])
    STRINGS({1: "x"}, "k", report)
    assert "allowed: strings" in str(report.problems[-1])


@pytest.mark.parametrize(
    ("rule", "fine", "bad"),
    [
        (r.between(1, 3), (1, 2, 3), (0, 4)),
        (r.at_least(2), (2, 3), (1,)),
        (r.above(2), (3,), (1, 2)),
        (r.seconds_between(1, 3), (1, 2, 3), (0.5, 3.5)),
        (r.seconds_at_least(2), (2, 3), (1,)),
        (r.one_of("", "a"), ("", "a"), ("b",)),
        (r.ip_address, ("::1", "10.0.0.1"), ("x", "10.0.0.256")),
        (r.not_empty, ("a",), ("",)),
        (r.must_be_false, (False,), (True,)),
    ],
)
def test_a_rule_holds_up_to_its_bounds(rule: Any, fine: Any, bad: Any) -> None:
    assert [rule(value) for value in fine] == [""] * len(fine)
    assert all(rule(value) for value in bad)
