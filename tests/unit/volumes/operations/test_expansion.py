"""When a volume grows on this node, and the status of its claim (tables so2, so3)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.volumes.operations.plan import NOT_REQUIRED, Flow, failed, finished, flow
from tests.unit.volumes.claim_objects import spec

GIB = 1 << 30
SHARED = ("ReadWriteMany",)


def claim(states: Any = None, sizes: Any = None, has: str = "1Gi", **notes: str) -> dict[str, Any]:
    status: dict[str, Any] = {"capacity": {"storage": has}}
    if states is not None:
        status["allocatedResourceStatuses"] = {"storage": states} if states else {"other": "x"}
    if sizes is not None:
        status["allocatedResources"] = {"storage": sizes} if sizes else {"other": "x"}
    return {"metadata": {"annotations": notes}, "status": status}


@pytest.mark.parametrize(
    ("of", "modes", "expected"),
    [
        (None, (), (Flow.LEGACY, 2 * GIB)),
        (claim(), (), (Flow.LEGACY, 2 * GIB)),
        (claim("NodeResizePending"), (), (Flow.RECOVERY, 2 * GIB)),
        (claim("NodeResizePending", "3Gi"), (), (Flow.RECOVERY, 3 * GIB)),
        (claim("NodeResizeInProgress", "3Gi"), (), (Flow.RECOVERY, 3 * GIB)),
        (claim("NodeResizeInfeasible", "3Gi"), (), (Flow.WAIT, 3 * GIB)),
        (claim("ControllerResizeInProgress", "3Gi", has="3Gi"), (), (Flow.WAIT, 3 * GIB)),
        (claim(None, "3Gi"), (), (Flow.WAIT, 3 * GIB)),
        (claim(None, "3Gi", has="3Gi"), (), (Flow.NOTHING, 3 * GIB)),
        (claim(None, "3Gi", has="4Gi"), (), (Flow.NOTHING, 3 * GIB)),
        (claim("", "", has="2Gi"), (), (Flow.NOTHING, 2 * GIB)),
        (claim(None, "3Gi", has="3Gi"), SHARED, (Flow.EXPAND_ONLY, 3 * GIB)),
        (claim(None, "3Gi", has="3Gi", **{NOT_REQUIRED: ""}), SHARED, (Flow.NOTHING, 3 * GIB)),
        (claim(None, "3Gi", has="1Gi"), SHARED, (Flow.WAIT, 3 * GIB)),
    ],
)
def test_the_flow_and_size_of_an_expansion(of: Any, modes: Any, expected: Any) -> None:
    pv = {"spec": {"capacity": {"storage": "2Gi"}}}
    assert flow(spec(claim=of, pv=pv, access_modes=modes)) == expected


@pytest.mark.parametrize(
    ("of", "states"), [(claim(), None), (claim("NodeResizeInProgress"), {"storage": None})]
)
def test_a_claim_that_has_grown(of: Any, states: Any) -> None:
    patch = finished(of, "3Gi")["status"]
    assert patch["capacity"] == {"storage": "3Gi"}
    assert patch.get("allocatedResourceStatuses") == states
    assert {entry["$patch"] for entry in patch["conditions"]} == {"delete"}


@pytest.mark.parametrize("infeasible", [True, False])
def test_a_claim_that_could_not_grow(infeasible: bool) -> None:
    status = failed("why", "then", infeasible=infeasible)["status"]
    assert (status["conditions"][0]["type"], status["conditions"][0]["message"]) == (
        "NodeResizeError",
        "why",
    )
    states = {"storage": "NodeResizeInfeasible"} if infeasible else None
    assert status.get("allocatedResourceStatuses") == states
