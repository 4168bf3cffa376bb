"""Policies of shared capacity: an API server's messages for bad ones (from a real server)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy_up.validation.report import Report
from kubeletpy_up.validation.request_policies import request_policy

BASE = {"default": "1Gi", "validRange": {"min": "1Gi"}}


def problems(policy: Any, *, shared: bool = True) -> list[str]:
    """Returns paths and messages about a policy of a capacity of 8Gi."""
    report = Report()
    capacity = {"value": "8Gi"} | ({} if policy is None else {"requestPolicy": policy})
    request_policy(report, capacity, "p", shared=shared)
    return [f"{each.field}: {each.message}" for each in report.causes]


@pytest.mark.parametrize(
    "policy",
    [
        None,
        {},
        {"default": "1Gi"},
        BASE,
        {"default": "3Gi", "validRange": {"min": "1Gi", "max": "7Gi", "step": "2Gi"}},
        {"default": "2Gi", "validValues": ["1Gi", "2Gi", "8Gi"]},
    ],
)
def test_good_ones(policy: Any) -> None:
    assert problems(policy) == []


CASES: list[tuple[Any, list[str]]] = [
    ({"validValues": ["1Gi"]}, ["p.default: Required value: required when validValues is defined"]),
    (
        {"validRange": {"min": "1Gi"}},
        ["p.default: Required value: required when validRange is defined"],
    ),
    (
        {"default": "1Gi", "validRange": {}},
        ["p.validRange.min: Required value: required when validRange is defined"],
    ),
    (
        {**BASE, "validValues": ["1Gi"]},
        [
            "p: Forbidden: exactly one policy can be specified, cannot specify "
            '"validValues" and "validRange" at the same time'
        ],
    ),
    (
        {"default": "3Gi", "validValues": ["1Gi", "9Gi"]},
        [
            'p.validValues[1]: Invalid value: "9Gi": option is larger than capacity value: 8Gi',
            'p.validValues: Invalid value: "3Gi": default value is not valid according to the '
            "requestPolicy",
        ],
    ),
    (
        {"default": "1Gi", "validValues": ["2Gi", "1Gi"]},
        ['p.validValues[1]: Invalid value: "1Gi": values must be sorted in ascending order'],
    ),
    (
        {"default": "1Gi", "validRange": {"min": "9Gi"}},
        [
            'p.validRange.min: Invalid value: "9Gi": min is larger than capacity value: 8Gi',
            'p.validRange.default: Invalid value: "1Gi": default is less than min: 9Gi',
        ],
    ),
    (
        {"default": "5Gi", "validRange": {"min": "3Gi", "max": "2Gi"}},
        [
            'p.validRange.max: Invalid value: "3Gi": min is larger than max: 2Gi',
            'p.validRange.default: Invalid value: "5Gi": default is more than max: 2Gi',
        ],
    ),
    (
        {"default": "1Gi", "validRange": {"min": "1Gi", "max": "9Gi"}},
        ['p.validRange.max: Invalid value: "9Gi": max is larger than capacity value: 8Gi'],
    ),
    (
        {"default": "2Gi", "validRange": {"min": "1Gi", "max": "6Gi", "step": "2Gi"}},
        [
            'p.validRange.step: Invalid value: "2Gi": value is not a multiple of a given step '
            "(2Gi) from (1Gi)",
            'p.validRange.step: Invalid value: "6Gi": value is not a multiple of a given step '
            "(2Gi) from (1Gi)",
        ],
    ),
    (
        {"default": "1Gi", "validRange": {"min": "1Gi", "step": "8Gi"}},
        [
            'p.validRange.step: Invalid value: "8Gi": one step 9Gi is larger than capacity '
            "value: 8Gi"
        ],
    ),
]


@pytest.mark.parametrize(("policy", "parts"), CASES)
def test_bad_ones(policy: Any, parts: list[str]) -> None:
    assert problems(policy) == parts


@pytest.mark.parametrize(
    "policy",
    [
        {"default": "1Gi", "validRange": {"min": "1Gi", "step": "0"}},
        {"default": "-1Gi"},
        {"default": "much"},
        {"default": "1", "validValues": ["1", "1"]},
        {"default": "1", "validValues": [str(each) for each in range(1, 12)]},
        {"default": "1", "validRange": {"min": "1", "max": "x"}},
    ],
)
def test_policies_that_would_break_the_allocation(policy: Any) -> None:
    assert len(problems(policy)) == 1


def test_only_shared_devices_have_policies() -> None:
    assert problems(BASE, shared=False) == ["p: Forbidden: allowMultipleAllocations must be true"]
