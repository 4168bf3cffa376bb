"""The node controller: silence makes a node Unknown, taints follow conditions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletpy_up.controllers.node_lifecycle import NodeLifecycle, condition_taints
from kubeletpy_up.controllers.scheduler import Scheduler
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN
from tests.unit.kubeletpy_up.helpers import NODE, make_registry, node, pod
from tests.virtual_time import LoopClock, on_virtual_time, settle


def _conditions(**statuses: str) -> dict[str, Any]:
    listed = [{"type": kind, "status": status} for kind, status in statuses.items()]
    return {"status": {"conditions": listed}}


@pytest.mark.parametrize(
    ("conditions", "spec", "expected"),
    [
        ({"Ready": "True"}, {}, []),
        ({"Ready": "False"}, {}, ["not-ready"]),
        ({}, {}, ["not-ready"]),
        ({"Ready": "Unknown"}, {}, ["unreachable"]),
        ({"Ready": "True", "MemoryPressure": "True"}, {}, ["memory-pressure"]),
        ({"Ready": "True", "DiskPressure": "True"}, {}, ["disk-pressure"]),
        ({"Ready": "True", "PIDPressure": "True"}, {}, ["pid-pressure"]),
        ({"Ready": "True"}, {"unschedulable": True}, ["unschedulable"]),
    ],
)
def test_taints_of_conditions(
    conditions: dict[str, str], spec: dict[str, Any], expected: list[str]
) -> None:
    desired = [{"key": f"node.kubernetes.io/{k}", "effect": "NoSchedule"} for k in expected]
    assert condition_taints({**_conditions(**conditions), "spec": spec}) == desired


def test_the_taints_of_others_are_kept() -> None:
    own = {"key": "mine", "effect": "NoExecute"}
    stale = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    spec = {"taints": [own, stale]}
    assert condition_taints({**_conditions(Ready="True"), "spec": spec}) == [own]


def _ready(registry: Registry) -> str:
    conditions = registry.get(ADMIN, "nodes", "n1")["status"]["conditions"]
    return str(next(c["status"] for c in conditions if c["type"] == "Ready"))


def _renew(registry: Registry) -> None:
    loop = asyncio.get_running_loop()
    spec = {"holderIdentity": "n1", "leaseTransitions": int(loop.time())}
    if registry.find("leases.coordination.k8s.io", "kube-node-lease", "n1"):
        registry.patch(NODE, "leases", "n1", {"spec": spec}, "kube-node-lease")
    else:
        lease = {"metadata": {"name": "n1"}, "spec": spec}
        registry.create(NODE, "leases", lease, "kube-node-lease")


@on_virtual_time
async def test_forty_seconds_of_silence() -> None:
    registry = make_registry(clock=LoopClock())
    lifecycle = NodeLifecycle(registry)
    lifecycle.start()
    registry.create(NODE, "nodes", node())
    await settle()
    assert registry.get(ADMIN, "nodes", "n1")["spec"].get("taints") is None
    for _ in range(10):
        await asyncio.sleep(10)
        _renew(registry)
    assert _ready(registry) == "True"
    await asyncio.sleep(39)
    assert _ready(registry) == "True"
    await asyncio.sleep(2)
    assert _ready(registry) == "Unknown"
    await settle()
    found = registry.get(ADMIN, "nodes", "n1")
    assert [t["key"] for t in found["spec"]["taints"]] == ["node.kubernetes.io/unreachable"]
    conditions = {c["type"]: c for c in found["status"]["conditions"]}
    assert conditions["Ready"]["reason"] == "NodeStatusUnknown"
    assert conditions["MemoryPressure"]["reason"] == "NodeStatusNeverUpdated"


@on_virtual_time
async def test_a_node_that_renews_its_lease_gets_pods_again() -> None:
    registry = make_registry(clock=LoopClock())
    NodeLifecycle(registry).start()
    Scheduler(registry).start()
    registry.create(NODE, "nodes", node())
    await asyncio.sleep(60)
    registry.create(ADMIN, "pods", pod(), "default")
    await settle()
    assert "nodeName" not in registry.get(ADMIN, "pods", "web", "default")["spec"]
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    registry.patch(NODE, "nodes", "n1", ready, subresource="status")
    await settle()
    assert registry.get(ADMIN, "pods", "web", "default")["spec"]["nodeName"] == "n1"


@on_virtual_time
async def test_after_a_restart_a_silent_node_is_detected_too() -> None:
    registry = make_registry(clock=LoopClock())
    registry.create(NODE, "nodes", node())
    lifecycle = NodeLifecycle(registry)
    lifecycle.start()
    await asyncio.sleep(41)
    assert _ready(registry) == "Unknown"
    await lifecycle.stop()
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    registry.patch(NODE, "nodes", "n1", ready, subresource="status")
    await asyncio.sleep(100)
    assert _ready(registry) == "True", "stopped means stopped"
