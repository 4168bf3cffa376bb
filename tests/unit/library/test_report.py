"""The report of a namespace for a failed test: the worst first, and bounded."""

from __future__ import annotations

from typing import Any

from kubeletpy.library.report import MAX_EVENTS, MAX_LINES, MAX_PODS, MAX_WIDTH, namespace_report


def pod(name: str, *, ready: bool = False, **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"phase": "Running" if ready else "Pending", "conditions": conditions, **status}
    return {"metadata": {"name": name, "uid": name}, "spec": {"nodeName": "n"}, "status": status}


def event(number: int) -> dict[str, Any]:
    return {
        "metadata": {},
        "lastTimestamp": f"2026-01-01T00:00:{number:02}Z",
        "involvedObject": {"kind": "Pod", "name": "p"},
        "reason": "Failed",
        "message": f"number {number}",
        "count": number,
    }


def test_pods_that_are_not_well_come_first() -> None:
    pods = [pod("a", ready=True), pod("b", message="no place"), pod("c", phase="Succeeded")]
    report = namespace_report(pods, [event(2), event(1)], {"a": "why a", "b": "why b\n\nand how"})
    assert report.splitlines() == [
        *("why b", "and how", "", "pod a: Running", "pod c: Succeeded", "events:"),
        "  00:00:01 pod p: Failed: number 1",
        "  00:00:02 pod p: Failed: number 2 (2 times)",
    ]
    assert namespace_report([], [], {}) == "it has no pods"


def test_it_is_bounded() -> None:
    pods = [pod(f"p{number}", message=1000 * "x") for number in range(200)]
    report = namespace_report(pods, [event(number) for number in range(50)], {})
    lines = report.splitlines()
    assert len(lines) == 2 * MAX_PODS + MAX_LINES + MAX_EVENTS + 3
    assert max(map(len, lines)) == MAX_WIDTH + 1
    assert f"  ({200 - MAX_PODS - MAX_LINES} more pods)" in lines
    assert "  (30 more earlier events)" in lines
    assert lines[-1].endswith("number 49 (49 times)")
