"""Each step of a node's start is measured once, and only for a node that is new to the API."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.node_manager import NodeStartup

STEPS = ("pre_kubelet", "pre_registration", "registration", "post_registration", "")


class Setup:
    """A process started at 100 on a machine booted at 40."""

    def __init__(self, booted_at: float | None = 40.0) -> None:
        self.at = 100.0
        self.metrics = Metrics()
        self.startup = NodeStartup(self.metrics.node, self, booted_at=booted_at, started_at=100.0)

    def now(self) -> float:
        return self.at

    def gauges(self) -> list[float]:
        """The gauges in the order of STEPS."""
        samples = {}
        for line in self.metrics.render().decode().splitlines():
            if line.startswith("kubelet_node_startup_"):
                name, value = line.split()
                samples[name.removeprefix("kubelet_node_startup_")] = float(value)
        return [samples[f"{step}_duration_seconds".lstrip("_")] for step in STEPS]


@pytest.mark.parametrize(
    ("booted_at", "events", "notified"),
    [
        (40.0, [], [0, 0, 0, 0, 0]),
        (40.0, [(103, "registering"), (105, "ready")], [0, 0, 0, 0, 0]),
        (40.0, [(103, "registered")], [0, 0, 0, 0, 0]),
        (40.0, [(103, "registering"), (105, "registered")], [60, 3, 2, 0, 0]),
        (40.0, [(103, "registering"), (104, "registering"), (105, "registered"), (112, "ready")],
         [60, 3, 2, 7, 72]),
        (40.0, [(103, "registering"), (105, "registered"), (112, "ready"), (200, "registering"),
                (201, "registered"), (210, "ready")], [60, 3, 2, 7, 72]),
        (None, [(103, "registering"), (105, "registered"), (112, "ready")], [0, 3, 2, 7, 0]),
    ],
)  # fmt: skip
def test_steps(booted_at: float | None, events: Any, notified: list[float]) -> None:
    setup = Setup(booted_at)
    for at, what in events:
        setup.at = at
        getattr(setup.startup, what)()
    assert setup.gauges() == notified
