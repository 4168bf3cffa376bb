"""Whether the first status of a node waits."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.node.build import NodeHealth, first_status

SILENT = NodeHealth(runtime_error="not asked", unanswered=("not asked",))
BOTH = NodeHealth(
    runtime_error="not asked", storage_error="no CSINode", unanswered=("not asked", "no CSINode")
)


@pytest.mark.parametrize(
    ("ready", "health", "waited", "period", "wait", "why"),
    [
        ("True", SILENT, 0, 10, 10, "not answered yet: not asked"),
        ("True", BOTH, 4, 10, 6, "not answered yet: not asked"),
        ("True", SILENT, 9.9, 10, 0.1, "not answered yet: not asked"),
        ("True", SILENT, 10, 10, 0, "waited for 10.0 s: not asked"),
        ("True", SILENT, 0, 300, 30, "not answered yet: not asked"),
        ("True", SILENT, 30, 300, 0, "waited for 30.0 s: not asked"),
        ("True", NodeHealth(), 0, 10, 0, "everything has answered"),
        ("True", NodeHealth(runtime_error="down"), 0, 10, 0, "known: down"),
        (
            "True",
            NodeHealth(network_error="no network", storage_error="-", unanswered=("-",)),
            0,
            10,
            0,
            "known: no network",
        ),
        (
            "True",
            NodeHealth(shutting_down=True, storage_error="-", unanswered=("-",)),
            0,
            10,
            0,
            "known: node is shutting down",
        ),
        ("False", SILENT, 0, 10, 0, "the API does not show the node as Ready"),
        ("Unknown", SILENT, 0, 10, 0, "the API does not show the node as Ready"),
        (None, SILENT, 0, 10, 0, "the API does not show the node as Ready"),
    ],
)
def test_it_waits_only_for_components_without_an_answer(
    ready: str | None, health: NodeHealth, waited: float, *, period: float, wait: float, why: str
) -> None:
    conditions: Any = [] if ready is None else [{"type": "Ready", "status": ready}]
    found = first_status({"conditions": conditions}, health, waited, period)
    assert found.wait == pytest.approx(wait)
    assert found.why == why
