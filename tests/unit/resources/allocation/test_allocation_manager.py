"""Resizes: allocated, deferred, refused, retried, carried out, dropped."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ResizeOutcome
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.resources.allocation.allocation_manager import AllocationManager
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.resources.allocation.resources import Infeasible, ResizeRules
from tests.kit.allocation import needs, pod
from tests.kit.virtual_time import LoopClock

pytestmark = pytest.mark.virtual_time

SMALL, BIG = needs("cpu=1"), needs("cpu=2")
NO_ROOM = Rejection(AdmissionReason("OutOfcpu"), "no room")


class Node:
    """A manager with test doubles for its callbacks and events."""

    def __init__(self, path: Path | None = None, rules: ResizeRules | None = None) -> None:
        self.pods: dict[str, Pod] = {}
        self.room = True
        self.ready = True
        self.woken: list[str] = []
        self.events: list[tuple[str, str, str]] = []
        self.notified: list[str] = []
        self.judged: list[str] = []
        self.metrics = Metrics()
        self.state = ResourceState(path)
        self.manager = AllocationManager(
            self.state,
            self,
            LoopClock(),
            rules=rules,
            metrics=self.metrics.resizes,
            judge=self._judge,
            current=self.pods.get,
            sync=self.woken.append,
            sources_ready=lambda: self.ready,
            decided=lambda uid, ones: self.notified.extend(one.what for one in ones),
        )

    def _judge(self, desired: Pod) -> Rejection | None:
        self.judged.append(desired.uid)
        return None if self.room else NO_ROOM

    def event(self, ref: Any, kind: str, reason: str, text: str, annotations: Any = None) -> None:
        self.events.append((kind, reason, text))

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]

    def admit(self, *new: Pod) -> None:
        for one in new:
            self.pods[one.uid] = one
            self.manager.admitted(self.manager.admitting(one))
        self.manager.added(new)

    def update(self, new: Pod) -> None:
        old = self.pods.get(new.uid)
        self.pods[new.uid] = new
        self.manager.updated(old, new)

    def conditions(self, uid: str = "u1") -> dict[str, str]:
        return {c["type"]: c.get("reason", "") for c in self.manager.conditions(uid)}

    def cpu(self, uid: str = "u1") -> str:
        supplied = self.manager.allocated(self.pods[uid])
        return supplied.containers[0]["resources"]["requests"]["cpu"]

    def counted(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_a_pod_is_allocated_the_resources_it_was_admitted_with() -> None:
    node = Node()
    first = pod(a=SMALL)
    node.admit(first)
    assert node.manager.allocated(first) is first
    assert node.state.get("u1", "a") == SMALL
    assert not node.events
    assert node.conditions() == {}


async def test_a_pod_without_requests_is_not_recorded() -> None:
    node = Node()
    node.admit(pod(a={}))
    assert node.state.uids() == []


async def test_a_resize_that_fits_is_allocated_and_carried_out() -> None:
    node = Node()
    node.admit(pod(a=SMALL))
    node.update(pod(a=BIG, generation=2))
    assert node.cpu() == "2"
    assert node.conditions() == {"PodResizeInProgress": ""}
    assert node.woken == [], "the caller of an update wakes the worker itself"
    assert node.manager.conditions("u1")[0]["observedGeneration"] == 2
    assert node.counted("kubelet_pod_in_progress_resizes") == 1
    supplied = node.manager.allocated(node.pods["u1"])
    assert node.manager.synced(supplied, None)
    assert not node.manager.synced(supplied, None)
    assert node.conditions() == {}
    assert node.reasons == ["ResizeStarted", "ResizeCompleted"]
    summary = {"containers": [{"name": "a", "resources": BIG}], "generation": 2}
    for (_, _, message), parts in zip(node.events, ("started", "completed"), strict=True):
        assert message.startswith(f"Pod resize {parts}: ")
        assert json.loads(message.partition(": ")[2]) == summary
    assert node.counted("kubelet_pod_in_progress_resizes") == 0
    assert (
        node.counted(
            "kubelet_container_requested_resizes_total",
            resource="cpu",
            requirement="requests",
            operation="increase",
        )
        == 1
    )
    assert node.notified == ["allocate the resize"]


async def test_the_result_of_a_resize_before_it_is_requested() -> None:
    node = Node()
    node.admit(pod(a=SMALL))
    resized = node.manager.resized(pod(a=BIG))
    assert isinstance(resized, Pod)
    assert resized.containers[0].get("resources") == BIG
    assert node.cpu() == "1"
    off = Node(rules=ResizeRules(in_place=False))
    assert off.manager.resized(pod(a=BIG)) == Infeasible(
        "feature_gate_off", "InPlacePodVerticalScaling is disabled"
    )


async def test_a_resize_that_does_not_fit_is_deferred_and_retried() -> None:
    node = Node()
    node.admit(pod("u1", a=SMALL), pod("u2", a=SMALL))
    node.room = False
    node.update(pod("u1", a=BIG, generation=2))
    assert node.cpu() == "1"
    assert node.conditions() == {"PodResizePending": "Deferred"}
    (kind, reason, message), *_ = node.events
    assert (kind, reason) == ("Warning", "ResizeDeferred")
    assert message.startswith("Pod resize OutOfcpu: ")
    assert json.loads(message.partition(": ")[2])["error"] == "no room"
    assert (
        node.counted("kubelet_pod_pending_resizes", reason="deferred", priority_bucket="normal")
        == 1
    )
    await asyncio.sleep(181)
    assert node.judged == ["u1", "u1"]
    assert node.reasons == ["ResizeDeferred"], "one event"
    assert node.woken == []
    node.room = True
    node.manager.removed(["u2"])
    assert node.cpu() == "2"
    assert node.woken == ["u1"]
    assert node.conditions() == {"PodResizeInProgress": ""}
    accepted = "kubelet_pod_deferred_accepted_resizes_total"
    assert node.counted(accepted, retry_trigger="pods_removed") == 1
    assert (
        node.counted("kubelet_pod_pending_resizes", reason="deferred", priority_bucket="normal")
        == 0
    )
    await asyncio.sleep(1000)
    assert len(node.judged) == 3, "nothing waits any more"


async def test_an_infeasible_resize_is_reported_and_dropped() -> None:
    node = Node(rules=ResizeRules(in_place=False))
    node.admit(pod(a=SMALL))
    node.update(pod(a=BIG, generation=2))
    assert node.conditions() == {"PodResizePending": "Infeasible"}
    assert node.reasons == ["ResizeInfeasible"]
    assert node.events[0][2].startswith("Pod resize Infeasible: ")
    assert node.cpu() == "1"
    assert node.judged == []
    name = "kubelet_pod_infeasible_resizes_total"
    assert node.counted(name, reason_detail="feature_gate_off") == 1
    node.manager.removed(["other"])
    await asyncio.sleep(1000)
    assert node.counted(name, reason_detail="feature_gate_off") == 1


async def test_a_reverted_resize_is_dropped() -> None:
    node = Node()
    node.admit(pod(a=SMALL))
    node.room = False
    node.update(pod(a=BIG, generation=2))
    node.update(pod(a=needs("cpu=1000m"), generation=3))
    assert node.conditions() == {}
    assert node.reasons == ["ResizeDeferred"]
    await asyncio.sleep(1000)
    assert len(node.judged) == 1


async def test_another_update_does_not_retry() -> None:
    node = Node()
    node.admit(pod(a=SMALL))
    node.room = False
    node.update(pod(a=BIG, generation=2))
    node.update(pod(a=BIG, generation=2))
    assert len(node.judged) == 1
    node.update(pod(a=needs("cpu=3"), generation=3))
    assert node.reasons == ["ResizeDeferred", "ResizeDeferred"]
    assert node.manager.conditions("u1")[0]["observedGeneration"] == 3


async def test_nothing_is_allocated_until_all_sources_are_ready() -> None:
    node = Node()
    node.ready = False
    node.admit(pod(a=SMALL))
    node.update(pod(a=BIG, generation=2))
    assert node.judged == []
    await asyncio.sleep(29)
    node.ready = True
    assert node.judged == []
    await asyncio.sleep(2)
    assert node.cpu() == "2"
    assert node.woken == ["u1"]


async def test_decreases_are_allocated_before_increases() -> None:
    node = Node()
    node.admit(pod("u1", a=SMALL), pod("u2", a=SMALL), pod("u3", a=SMALL))
    node.room = False
    node.update(pod("u1", a=BIG, generation=2))
    node.update(pod("u2", a=BIG, generation=2, priority=5))
    node.judged.clear()
    node.update(pod("u3", a=needs("cpu=500m"), generation=2))
    assert node.judged == ["u3", "u2", "u1"]


def ended(uid: str) -> dict[str, Any]:
    return {"phase": "Succeeded"}


def has(actual: str, supplied: str) -> dict[str, Any]:
    status = {"name": "a", "resources": needs(actual), "allocatedResources": {"cpu": supplied}}
    return {"phase": "Running", "containerStatuses": [status]}


@pytest.mark.parametrize(
    ("before", "after", "trigger"),
    [
        ({"phase": "Running"}, {"phase": "Succeeded"}, "pod_terminated"),
        (has("cpu=4", "1"), has("cpu=1", "1"), "pod_resized"),
        (has("cpu=1", "1"), has("cpu=4", "1"), ""),
        ({"phase": "Pending"}, {"phase": "Running"}, ""),
    ],
)
async def test_a_status_that_frees_resources_retries_deferred_resizes(
    before: dict[str, Any], after: dict[str, Any], trigger: str
) -> None:
    node = Node()
    other = pod("u2", a=SMALL, status=before)
    node.admit(pod(a=SMALL), other)
    node.room = False
    node.update(pod(a=BIG, generation=2))
    node.room = True
    node.manager.reconciled(other, pod("u2", a=SMALL, status=after))
    assert node.cpu() == ("2" if trigger else "1")
    name = "kubelet_pod_deferred_accepted_resizes_total"
    assert node.counted(name, retry_trigger=trigger or "pod_resized") == bool(trigger)


async def test_a_failure_is_reported_and_then_the_success() -> None:
    node = Node()
    node.admit(pod(a=SMALL))
    node.update(pod(a=BIG, generation=2))
    supplied = node.manager.allocated(node.pods["u1"])
    failed = ResizeOutcome(in_progress=True, error="the runtime refused")
    assert node.manager.synced(supplied, failed)
    assert not node.manager.synced(supplied, failed)
    assert node.conditions() == {"PodResizeInProgress": "Error"}
    assert not node.manager.synced(supplied, ResizeOutcome(in_progress=True))
    assert node.conditions() == {"PodResizeInProgress": "Error"}
    assert node.manager.synced(supplied, ResizeOutcome(in_progress=False, done=("a",)))
    assert node.reasons == ["ResizeStarted", "ResizeError", "ResizeCompleted"]
    assert node.events[1][0] == "Warning"


async def test_an_older_sync_does_not_complete_a_newer_resize() -> None:
    node = Node()
    node.admit(pod(a=SMALL))
    node.update(pod(a=BIG, generation=2))
    older = node.manager.allocated(node.pods["u1"])
    node.update(pod(a=needs("cpu=3"), generation=3))
    assert not node.manager.synced(older, None)
    assert node.conditions() == {"PodResizeInProgress": ""}
    assert node.manager.conditions("u1")[0]["observedGeneration"] == 3


async def test_a_restart_keeps_allocations_and_retries_deferred_resizes(tmp_path: Path) -> None:
    node = Node(tmp_path / "state")
    node.admit(pod(a=SMALL))
    again = Node(tmp_path / "state")
    pending = {
        "type": "PodResizePending",
        "status": "True",
        "reason": "Deferred",
        "message": "no room",
        "observedGeneration": 2,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    again.room = False
    desired = pod(a=BIG, generation=2, status={"conditions": [pending]})
    assert again.manager.admitting(desired).containers[0]["resources"] == SMALL
    again.admit(desired)
    assert again.judged == ["u1"]
    assert again.cpu() == "1"
    assert again.reasons == [], "reported before the restart"
    assert again.manager.conditions("u1") == [pending]
    again.room = True
    await asyncio.sleep(181)
    assert again.cpu() == "2"
    name = "kubelet_pod_deferred_accepted_resizes_total"
    assert again.counted(name, retry_trigger="periodic_retry") == 1
    await node.state.close()
    await again.state.close()


async def test_a_restart_in_the_middle_of_a_resize_continues_it(tmp_path: Path) -> None:
    """The resize was allocated; the API still shows it as pending."""
    node = Node(tmp_path / "state")
    node.admit(pod(a=SMALL))
    node.update(pod(a=BIG, generation=2))
    again = Node(tmp_path / "state")
    pending = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    again.admit(pod(a=BIG, generation=2, status={"conditions": [pending]}))
    assert again.cpu() == "2"
    assert again.conditions() == {}
    supplied = again.manager.allocated(again.pods["u1"])
    assert again.manager.synced(supplied, ResizeOutcome(in_progress=False, done=("a",)))
    assert again.reasons == ["ResizeCompleted"]
    await node.state.close()
    await again.state.close()


async def test_without_a_state_file_the_allocation_comes_from_the_api() -> None:
    node = Node()
    node.room = False
    node.admit(pod(a=BIG, status=has("cpu=1", "1")))
    assert node.cpu() == "1"
    assert node.conditions() == {"PodResizePending": "Deferred"}


async def test_a_removed_or_refused_pod_leaves_nothing() -> None:
    node = Node()
    node.admit(pod("u1", a=SMALL), pod("u2", a=SMALL), pod("u3", a=SMALL))
    node.room = False
    for uid in ("u1", "u2", "u3"):
        node.update(pod(uid, a=BIG, generation=2))
        node.manager.allocated(node.pods[uid])
    node.manager.removed(["u1"])
    node.manager.refused("u2")
    node.manager.forget_others([])
    assert node.state.uids() == []
    assert [node.conditions(uid) for uid in ("u1", "u2", "u3")] == [{}, {}, {}]
    await asyncio.sleep(1000)
    judged = len(node.judged)
    node.manager.retry("periodic_retry")
    assert len(node.judged) == judged


async def test_a_pod_that_has_ended_is_not_resized() -> None:
    node = Node()
    node.admit(pod(a=SMALL))
    node.room = False
    node.update(pod(a=BIG, generation=2))
    node.manager.ended("u1")
    assert node.conditions() == {}
    await asyncio.sleep(1000)
    assert len(node.judged) == 1


async def test_an_invalid_quantity_does_not_block_other_pods() -> None:
    node = Node()
    node.admit(pod("u1", a=SMALL), pod("u2", a=SMALL))
    node.update(pod("u1", a=needs("cpu=many"), generation=2))
    node.update(pod("u2", a=BIG, generation=2))
    assert node.cpu("u2") == "2"
