"""The two conditions of a resize: when they change and whether that is reported (KEP-1287)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.resources.allocation import conditions
from kubeletpy.resources.allocation.conditions import ResizeConditions, from_status

NOW = 1_767_225_600.0
THEN, T_NOW = "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"


def condition(kind: str = "PodResizePending", **fields: Any) -> Any:
    return {"type": kind, "status": "True", **fields}


def test_conditions_from_a_status() -> None:
    waits, runs = condition(), condition("PodResizeInProgress")
    others = [condition("Ready")]
    assert from_status(None) == ResizeConditions()
    assert from_status(others) == ResizeConditions()
    assert from_status([runs, *others]) == ResizeConditions(None, runs)
    found = from_status([waits, runs, *others])
    assert found == ResizeConditions(waits, runs)
    assert found.listed() == [waits, runs]
    assert ResizeConditions(None, runs).listed() == [runs]


@pytest.mark.parametrize(
    ("pending", "deferred"),
    [
        (None, False),
        (condition(reason="Deferred"), True),
        (condition(reason="Infeasible"), False),
        (condition(), False),
    ],
)
def test_only_a_condition_with_reason_deferred_is_deferred(pending: Any, deferred: bool) -> None:
    assert ResizeConditions(pending).deferred is deferred


@pytest.mark.parametrize(
    ("before", "changes", "moved"),
    [
        (None, True, T_NOW),
        (condition(reason="Deferred", observedGeneration=2, lastTransitionTime=THEN), False, THEN),
        (condition(reason="Deferred", observedGeneration=1, lastTransitionTime=THEN), True, THEN),
        (condition(reason="Deferred", lastTransitionTime=THEN), True, THEN),
        (condition(reason="Deferred", observedGeneration=2), False, T_NOW),
        (
            condition(reason="Infeasible", observedGeneration=2, lastTransitionTime=THEN),
            True,
            T_NOW,
        ),
    ],
)
def test_pending(before: Any, changes: bool, moved: str) -> None:
    made, notified = conditions.pending(before, "Deferred", "why", 2, now=NOW)
    assert notified is changes
    assert made == condition(
        reason="Deferred",
        message="why",
        observedGeneration=2,
        lastProbeTime=T_NOW,
        lastTransitionTime=moved,
    )


def test_empty_fields_are_left_out() -> None:
    made, changes = conditions.pending(None, "", "", 0, now=NOW)
    assert made == condition(lastProbeTime=T_NOW, lastTransitionTime=T_NOW)
    assert changes
    same, changes = conditions.pending(condition(), "", "", 0, now=NOW)
    assert (same, changes) == (made, True)
    _, changes = conditions.pending(condition(reason=""), "", "", 0, now=NOW)
    assert not changes


RUNS = "PodResizeInProgress"


@pytest.mark.parametrize(
    ("before", "supplied", "kept", "reported"),
    [
        (None, ("", ""), False, ("", "", 2)),
        (None, ("Error", "m"), False, ("Error", "m", 2)),
        ({}, ("", ""), True, ("", "", 0)),
        ({"observedGeneration": 1}, ("", ""), True, ("", "", 1)),
        ({"observedGeneration": 1}, ("Error", "m"), False, ("Error", "m", 1)),
        ({"reason": "Error", "message": "m"}, ("", ""), True, ("Error", "m", 0)),
        ({"reason": "Error", "message": "m"}, ("Error", "m"), True, ("Error", "m", 0)),
        ({"reason": "Error", "message": "m"}, ("Error", "n"), False, ("Error", "n", 0)),
        ({"reason": "Error", "message": "m"}, ("Error", ""), False, ("Error", "", 0)),
        ({"reason": "Error", "message": "m"}, ("", "n"), False, ("", "n", 0)),
    ],
)
def test_in_progress(before: Any, supplied: tuple[str, str], kept: bool, reported: Any) -> None:
    old = None if before is None else condition(RUNS, lastTransitionTime=THEN, **before)
    made, changes = conditions.in_progress(old, *supplied, 2, now=NOW)
    assert changes is not kept
    assert (made is old) is kept
    found: Any = made
    assert (
        found.get("reason", ""),
        found.get("message", ""),
        found.get("observedGeneration", 0),
    ) == reported
    same_reason = old is not None and old.get("reason", "") == reported[0]
    assert found["lastTransitionTime"] == (THEN if same_reason else T_NOW)
