"""The scheduler binds pods that fit at once, reports why others wait, and retries on changes."""

from __future__ import annotations

from typing import Any

from kubeletpy_up.controllers.scheduler import Scheduler
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, DeleteOptions
from tests.unit.kubeletpy_up.helpers import NODE, make_registry, node, pod
from tests.virtual_time import LoopClock, on_virtual_time, settle


def _started() -> tuple[Registry, Scheduler]:
    registry = make_registry(clock=LoopClock())
    scheduler = Scheduler(registry)
    scheduler.start()
    return registry, scheduler


def _where(registry: Registry, name: str = "web") -> str:
    spec: dict[str, Any] = registry.get(ADMIN, "pods", name, "default")["spec"]
    return str(spec.get("nodeName", ""))


def _ready_node(registry: Registry) -> None:
    registry.create(ADMIN, "nodes", node())
    registry.patch(ADMIN, "nodes", "n1", {"spec": {"taints": None}})


def _events(registry: Registry) -> list[tuple[str, str]]:
    items = registry.list(ADMIN, "events", "default")["items"]
    items.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
    return [(event["reason"], event["message"]) for event in items]


def _requesting(cpu: str) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "b:1", "resources": {"requests": {"cpu": cpu}}}]}


@on_virtual_time
async def test_it_binds_at_once_with_an_event() -> None:
    registry, _ = _started()
    _ready_node(registry)
    registry.create(ADMIN, "pods", pod(), "default")
    await settle()
    assert _where(registry) == "n1"
    assert _events(registry) == [("Scheduled", "Successfully assigned default/web to n1")]


@on_virtual_time
async def test_a_pod_waits_with_one_event_until_there_is_a_node() -> None:
    registry, _ = _started()
    registry.create(ADMIN, "pods", pod(), "default")
    await settle()
    found = registry.get(ADMIN, "pods", "web", "default")
    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert condition["reason"] == "Unschedulable"
    message = "no nodes available to schedule pods"
    assert condition["message"] == message
    registry.patch(ADMIN, "pods", "web", {"metadata": {"labels": {"a": "b"}}}, "default")
    await settle()
    assert _events(registry) == [("FailedScheduling", message)]
    _ready_node(registry)
    await settle()
    assert _where(registry) == "n1"
    found = registry.get(ADMIN, "pods", "web", "default")
    assert [c["status"] for c in found["status"]["conditions"]] == ["True"]


@on_virtual_time
async def test_released_capacity_is_used() -> None:
    registry, _ = _started()
    _ready_node(registry)
    for name in ("a", "b"):
        registry.create(ADMIN, "pods", pod(name, **_requesting("2")), "default")
    await settle()
    assert [_where(registry, name) for name in "ab"] == ["n1", ""]
    registry.delete(NODE, "pods", "a", "default", DeleteOptions(grace_period_seconds=0))
    await settle()
    assert _where(registry, "b") == "n1"


@on_virtual_time
async def test_a_pod_counts_with_its_highest_requests_during_a_resize() -> None:
    registry, _ = _started()
    _ready_node(registry)
    registry.create(ADMIN, "pods", pod("a", **_requesting("2")), "default")
    await settle()

    def reported(cpu: str, **more: Any) -> None:
        actual = {"requests": {"cpu": cpu}}
        entry = {"name": "c", "resources": actual, "allocatedResources": {"cpu": cpu}}
        status = {"status": {"containerStatuses": [entry], **more}}
        registry.patch(NODE, "pods", "a", status, "default", subresource="status")

    def resize(cpu: str) -> None:
        spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
        registry.patch(ADMIN, "pods", "a", {"spec": spec}, "default", subresource="resize")

    reported("2")
    resize("1")
    registry.create(ADMIN, "pods", pod("b", **_requesting("500m")), "default")
    await settle()
    assert _where(registry, "b") == ""
    reported("1")
    await settle()
    assert _where(registry, "b") == "n1"
    resize("2")
    registry.create(ADMIN, "pods", pod("c", **_requesting("500m")), "default")
    await settle()
    assert _where(registry, "c") == ""
    never = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    reported("1", conditions=[never])
    registry.patch(ADMIN, "nodes", "n1", {"metadata": {"labels": {"look": "again"}}})
    await settle()
    assert _where(registry, "c") == "n1"


@on_virtual_time
async def test_a_pod_that_ends_releases_its_capacity() -> None:
    registry, _ = _started()
    _ready_node(registry)
    for name in ("a", "b"):
        registry.create(ADMIN, "pods", pod(name, **_requesting("2")), "default")
    await settle()
    done = {"status": {"phase": "Succeeded"}}
    registry.patch(NODE, "pods", "a", done, "default", subresource="status")
    await settle()
    assert _where(registry, "b") == "n1"


@on_virtual_time
async def test_two_pods_in_one_turn_do_not_get_the_same_capacity() -> None:
    registry, _ = _started()
    for name in ("a", "b"):
        registry.create(ADMIN, "pods", pod(name, **_requesting("1500m")), "default")
    _ready_node(registry)
    await settle()
    assert sorted(_where(registry, name) for name in "ab") == ["", "n1"]


@on_virtual_time
async def test_the_pod_with_higher_priority_is_bound_first() -> None:
    registry, _ = _started()
    registry.create(ADMIN, "pods", pod("a", **_requesting("2")), "default")
    urgent = pod("b", priorityClassName="system-node-critical", **_requesting("2"))
    registry.create(ADMIN, "pods", urgent, "default")
    _ready_node(registry)
    await settle()
    assert [_where(registry, name) for name in "ab"] == ["", "n1"]


@on_virtual_time
async def test_pods_of_other_schedulers_and_gated_pods_are_left_alone() -> None:
    registry, scheduler = _started()
    _ready_node(registry)
    registry.create(ADMIN, "pods", pod("other", schedulerName="mine"), "default")
    registry.create(ADMIN, "pods", pod("gated", schedulingGates=[{"name": "a/b"}]), "default")
    await settle()
    assert [_where(registry, name) for name in ("other", "gated")] == ["", ""]
    gated = registry.get(ADMIN, "pods", "gated", "default")
    assert gated["status"]["conditions"][0]["reason"] == "SchedulingGated"
    await scheduler.stop()
    registry.create(ADMIN, "pods", pod("late"), "default")
    await settle()
    assert _where(registry, "late") == ""
