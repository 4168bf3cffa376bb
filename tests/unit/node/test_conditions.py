"""The node's conditions."""

from __future__ import annotations

import pytest

from kubeletpy.node.build import NodeHealth, node_conditions


@pytest.mark.parametrize(
    ("kind", "reason", "message"),
    [
        (
            "MemoryPressure",
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
        ),
        ("DiskPressure", "KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("PIDPressure", "KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    ],
)
def test_a_pressure_is_reported_and_the_node_stays_ready(
    kind: str, reason: str, message: str
) -> None:
    calm = node_conditions((), NodeHealth(), 0.0)
    pressed = node_conditions(calm, NodeHealth(pressures=(kind,)), 60.0)
    assert [each["type"] for each in calm] == [each["type"] for each in pressed]
    by_type = {each["type"]: each for each in pressed}
    assert by_type[kind]["status"] == "True"
    assert (by_type[kind]["reason"], by_type[kind]["message"]) == (reason, message)
    assert by_type[kind]["lastTransitionTime"] == "1970-01-01T00:01:00Z"
    others = {each["status"] for name, each in by_type.items() if name not in (kind, "Ready")}
    assert others == {"False"}
    assert by_type["Ready"]["status"] == "True"
