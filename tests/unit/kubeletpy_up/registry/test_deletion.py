"""Finalizers that remain after a deletion, and whether the object is removed at once."""

from __future__ import annotations

import pytest

from kubeletpy_up.registry import deletion
from kubeletpy_up.requests import DeleteOptions


@pytest.mark.parametrize(
    ("finalizers", "propagation", "left"),
    [
        ([], "", []),
        (["x/y"], "", ["x/y"]),
        (["orphan"], "", ["orphan"]),
        ([], "Background", []),
        (["orphan", "x/y"], "Background", ["x/y"]),
        ([], "Orphan", ["orphan"]),
        (["orphan"], "Orphan", ["orphan"]),
        (["foregroundDeletion"], "Orphan", ["orphan"]),
        (["x/y"], "Foreground", ["x/y", "foregroundDeletion"]),
    ],
)
def test_finalizers_by_policy(finalizers: list[str], propagation: str, left: list[str]) -> None:
    obj = {"metadata": {"name": "a", "finalizers": finalizers}}
    assert deletion.finalizers_for(obj, propagation) == left
    decision = deletion.decide("configmaps", obj, DeleteOptions(propagation=propagation), 0.0)
    assert decision.remove == (not left)
    if left:
        assert decision.object["metadata"]["finalizers"] == left


def test_a_second_deletion_may_remove_an_owner() -> None:
    meta = {"name": "a", "finalizers": ["foregroundDeletion"]}
    going = {"metadata": {**meta, "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert deletion.decide("configmaps", going, DeleteOptions(propagation="Background"), 0.0).remove
    again = deletion.decide("configmaps", going, DeleteOptions(propagation="Foreground"), 0.0)
    assert again == deletion.Decision(False, going)
