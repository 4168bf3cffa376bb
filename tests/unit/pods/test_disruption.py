"""The condition of a pod that the node ends (KEP-3329)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.pod import with_disruption

READY = {"type": "Ready", "status": "True"}
EARLIER = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
OURS = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "TerminationByKubelet",
    "message": "the node shuts down",
    "lastTransitionTime": "1970-01-01T00:01:00Z",
}


@pytest.mark.parametrize(
    ("status", "generation", "conditions"),
    [
        ({}, 0, [OURS]),
        ({"conditions": [READY]}, 3, [READY, {**OURS, "observedGeneration": 3}]),
        ({"conditions": [EARLIER, READY]}, 0, [READY, OURS]),
    ],
)
def test_it_joins_the_others(status: Any, generation: int, conditions: list[Any]) -> None:
    assert with_disruption(status, "the node shuts down", 60.0, generation) == conditions


def test_no_generation_by_default() -> None:
    assert with_disruption({}, "the node shuts down", 60.0) == [OURS]
