"""Node selectors: operators, terms, and what is malformed and so matches nothing."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.pod import matches

LABELS = {"zone": "a", "cores": "8", "empty": "", "signed": "+8", "text": "8x"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("term", "picked"),
    [
        ({}, False),
        (expression("zone", "In", "b", "a"), True),
        (expression("zone", "In", "b"), False),
        (expression("none", "In", "a"), False),
        (expression("zone", "NotIn", "b"), True),
        (expression("zone", "NotIn", "a"), False),
        (expression("none", "NotIn", "a"), True),
        (expression("none", "NotIn"), False),
        (expression("zone", "NotIn"), False),
        (expression("empty", "Exists"), True),
        (expression("none", "Exists"), False),
        (expression("zone", "Exists", "a"), False),
        (expression("none", "DoesNotExist"), True),
        (expression("zone", "DoesNotExist"), False),
        (expression("none", "DoesNotExist", "a"), False),
        (expression("cores", "Gt", "7"), True),
        (expression("cores", "Gt", "8"), False),
        (expression("cores", "Gt", "-9"), True),
        (expression("signed", "Gt", "7"), True),
        (expression("cores", "Lt", "9"), True),
        (expression("cores", "Lt", "8"), False),
        (expression("cores", "Lt", "9", "10"), False),
        (expression("cores", "Lt"), False),
        (expression("cores", "Gt", "x"), False),
        (expression("text", "Gt", "7"), False),
        (expression("none", "Gt", "7"), False),
        (expression("none", "Gt", "x"), False),
        (expression("zone", "Like", "a"), False),
        (field("metadata.name", "In", "n"), True),
        (field("metadata.name", "In", "m"), False),
        (field("metadata.name", "NotIn", "m"), True),
        (field("metadata.name", "NotIn", "n"), False),
        (field("metadata.name", "In", "n", "m"), False),
        (field("metadata.name", "Exists"), False),
        (field("metadata.name", "Gt", "7"), False),
        (field("zone", "NotIn", "b"), False),
        ({**expression("zone", "In", "a"), **field("metadata.name", "In", "n")}, True),
        ({**expression("zone", "In", "b"), **field("metadata.name", "In", "n")}, False),
        ({**expression("zone", "In", "a"), **field("metadata.name", "In", "m")}, False),
    ],
)
def test_a_term(term: Any, picked: bool) -> None:
    assert matches({"nodeSelectorTerms": [term]}, LABELS, "n") is picked


def test_a_number_as_name() -> None:
    name_above = {"nodeSelectorTerms": [field("metadata.name", "Gt", "7")]}
    assert not matches(name_above, LABELS, "8")


def test_one_term_is_enough() -> None:
    terms = [expression("zone", "In", "b"), expression("zone", "In", "a")]
    assert matches({"nodeSelectorTerms": terms}, LABELS, "n")
    assert not matches({"nodeSelectorTerms": []}, LABELS, "n")
