"""Ends of containers on cgroup v2, which kills all processes of a container together.

User-mode Linux sends no process events, so a shell that returns 137 for its child has no cause.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kit.deaths import UNEXPLAINED, WAYS
from tests.nodes.node import VirtualNode, container, pod

pytestmark = pytest.mark.long
LITTLE = {"memory": "48Mi"}
"""Enough for runc to start a container."""
EATS = "tail /dev/zero"
ENDS = {
    "oom-at-its-limit": f"exec {EATS}",
    "oom-of-all-processes": f"{EATS}; exit 1",
    "exit-code-137-without-evidence": "sh -c 'kill -9 $$$$'; exit $?",
    "exit-143": "exit 143",
}


def causes(node: VirtualNode, name: str) -> dict[str, Any]:
    """The cause of each container's end."""
    found = json.loads(node.shell(f"kubeletpy explain -o json {name}"))["exits"]
    return {one["container"]: one["cause"] for one in found if one["cause"] is not None}


def test_ends_for_lack_of_memory_and_without_it(node: VirtualNode) -> None:
    node.configure()
    alone = [container(name, f"sleep 5; {how}", limits=LITTLE) for name, how in ENDS.items()]
    shared = container("oom-at-the-limit-of-its-pod", f"sleep 5; {EATS}")
    node.apply(
        pod("alone", *alone, restartPolicy="Never"),
        pod("limited", shared, restartPolicy="Never", resources={"limits": LITTLE}),
    )
    found: dict[str, Any] = {}
    for name in ("alone", "limited"):
        node.wait_pods(name, condition="jsonpath={.status.phase}=Failed")
        found |= causes(node, name)
    ways = {**WAYS, **UNEXPLAINED}
    wrong = {
        name: cause
        for name, cause in found.items()
        if (cause["kind"], cause["actor"]) != (ways[name].kind, ways[name].actor)
    }
    assert (wrong, len(found)) == ({}, len(ENDS) + 1)
