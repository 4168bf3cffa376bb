"""Claims get, lose and release volumes: the binder and related controllers on a registry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletpy_up.controllers.binder import Binder
from kubeletpy_up.controllers.node_lifecycle import NodeLifecycle, condition_taints
from kubeletpy_up.controllers.pod_claims import EphemeralClaims
from kubeletpy_up.controllers.scheduler import Scheduler
from kubeletpy_up.controllers.volume_protection import VolumeProtection
from kubeletpy_up.kinds.storage import CLAIMS, CLASSES, VOLUMES
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, DeleteOptions
from tests.kit.embedded import NODE, make_registry, node, pod
from tests.kit.virtual_time import LoopClock, settle

pytestmark = pytest.mark.virtual_time

JSON = dict[str, Any]


def _started() -> Registry:
    registry = make_registry(clock=LoopClock())
    for kind in (EphemeralClaims, Binder, VolumeProtection, Scheduler):
        kind(registry).start()
    registry.create(ADMIN, "nodes", node())
    registry.patch(ADMIN, "nodes", "n1", {"spec": {"taints": None}})
    return registry


def _claim(registry: Registry, name: str = "c", amount: str = "1Gi", **spec: Any) -> None:
    body = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": amount}},
        "storageClassName": "s",
        **spec,
    }
    registry.create(ADMIN, CLAIMS, {"metadata": {"name": name}, "spec": body}, "default")


def _volume(registry: Registry, name: str, amount: str = "1Gi", **spec: Any) -> None:
    body = {
        "capacity": {"storage": amount},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "s",
        "hostPath": {"path": "/x"},
        **spec,
    }
    registry.create(ADMIN, VOLUMES, {"metadata": {"name": name}, "spec": body})


def _phase(registry: Registry, resource: str, name: str) -> str:
    namespace = "default" if resource == CLAIMS else ""
    found = registry.find(resource, namespace, name)
    return str(found["status"]["phase"]) if found else "gone"


def _using(name: str, claim: str) -> JSON:
    return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])


def _reasons(registry: Registry, name: str) -> list[str]:
    items = registry.list(ADMIN, "events", "default")["items"]
    return [e["reason"] for e in items if e["involvedObject"]["name"] == name]


async def test_a_claim_whose_volume_was_removed_is_lost() -> None:
    registry = _started()
    _volume(registry, "v")
    _claim(registry)
    await settle()
    assert _phase(registry, CLAIMS, "c") == "Bound"
    registry.store.remove(VOLUMES, "", "v")
    await settle()
    assert _phase(registry, CLAIMS, "c") == "Lost"
    assert "ClaimLost" in _reasons(registry, "c")
    registry.create(ADMIN, "pods", _using("p", "c"), "default")
    await settle()
    (stated,) = registry.get(ADMIN, "pods", "p", "default")["status"]["conditions"]
    assert (
        'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"' in stated["message"]
    )


async def test_two_claims_never_get_one_volume() -> None:
    registry = _started()
    _volume(registry, "v")
    _claim(registry, "a")
    _claim(registry, "b")
    await settle()
    phases = [_phase(registry, CLAIMS, name) for name in ("a", "b")]
    assert sorted(phases) == ["Bound", "Pending"]
    _volume(registry, "w")
    await settle()
    assert [_phase(registry, CLAIMS, name) for name in ("a", "b")] == ["Bound", "Bound"]
    names = {registry.find(CLAIMS, "default", n)["spec"]["volumeName"] for n in ("a", "b")}  # type: ignore[index]
    assert names == {"v", "w"}


async def test_a_volume_that_a_claim_names_and_does_not_fit() -> None:
    registry = _started()
    _volume(registry, "small", "1Mi")
    _claim(registry, volumeName="small")
    await settle()
    assert _phase(registry, CLAIMS, "c") == "Pending"
    assert _reasons(registry, "c") == ["VolumeMismatch"]
    assert _phase(registry, VOLUMES, "small") == "Available"


async def test_a_binding_that_was_cut_off_is_completed() -> None:
    registry = make_registry(clock=LoopClock())
    _claim(registry)
    uid = registry.find(CLAIMS, "default", "c")["metadata"]["uid"]  # type: ignore[index]
    reference = {"namespace": "default", "name": "c", "uid": uid}
    _volume(registry, "v", claimRef=reference)
    Binder(registry).start()
    await settle()
    assert _phase(registry, CLAIMS, "c") == _phase(registry, VOLUMES, "v") == "Bound"


async def test_a_claim_without_a_class_gets_a_later_default_class() -> None:
    registry = _started()
    _claim(registry, storageClassName=None)
    await settle()
    assert "storageClassName" not in registry.find(CLAIMS, "default", "c")["spec"]  # type: ignore[index]
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    made = {"metadata": {"name": "d", "annotations": annotations}, "provisioner": "x/y"}
    registry.create(ADMIN, CLASSES, made)
    await settle()
    found = registry.find(CLAIMS, "default", "c")
    assert found is not None
    assert found["spec"]["storageClassName"] == "d"
    requested = found["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"]
    assert requested == "x/y"


async def test_an_ephemeral_volume_does_not_use_a_foreign_claim() -> None:
    registry = _started()
    _volume(registry, "v")
    _claim(registry, "p-v")
    template = {"volumeClaimTemplate": {"spec": registry.find(CLAIMS, "default", "p-v")["spec"]}}  # type: ignore[index]
    body = pod("p", volumes=[{"name": "v", "ephemeral": template}])
    registry.create(ADMIN, "pods", body, "default")
    await settle()
    found = registry.get(ADMIN, "pods", "p", "default")
    assert "nodeName" not in found["spec"]
    assert "was not created for pod default/p" in found["status"]["conditions"][0]["message"]
    assert "FailedBinding" in _reasons(registry, "p")


async def test_the_claims_of_a_pod_get_different_volumes() -> None:
    registry = _started()
    late = {
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    registry.create(ADMIN, CLASSES, {"metadata": {"name": "s"}, **late})
    for name in ("v", "w"):
        _volume(registry, name)
    for name in ("a", "b"):
        _claim(registry, name)
    await settle()
    assert [_phase(registry, CLAIMS, name) for name in ("a", "b")] == ["Pending", "Pending"]
    volumes = [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in ("a", "b")]
    registry.create(ADMIN, "pods", pod("p", volumes=volumes), "default")
    await settle()
    assert [_phase(registry, CLAIMS, name) for name in ("a", "b")] == ["Bound", "Bound"]
    assert registry.get(ADMIN, "pods", "p", "default")["spec"]["nodeName"] == "n1"


def _unused(registry: Registry, name: str = "c") -> list[tuple[str, str]]:
    claim = registry.find(CLAIMS, "default", name)
    assert claim is not None
    conditions = claim["status"].get("conditions") or ()
    return [(each["status"], each["reason"]) for each in conditions if each["type"] == "Unused"]


async def test_a_bound_claim_shows_whether_pods_use_it() -> None:
    registry = _started()
    _claim(registry)
    await settle()
    assert _unused(registry) == [], "it is not bound yet"
    _volume(registry, "v")
    await settle()
    assert _unused(registry) == [("True", "NoPodsUsingPVC")]
    registry.create(ADMIN, "pods", _using("p", "c"), "default")
    await settle()
    assert _unused(registry) == [("False", "PodUsingPVC")]
    registry.patch(
        ADMIN, "pods", "p", {"status": {"phase": "Succeeded"}}, "default", subresource="status"
    )
    await settle()
    assert _unused(registry) == [("True", "NoPodsUsingPVC")], "the pod has ended"


# The scheduler binds pods that fit at once, reports why others wait, and retries on changes.


def _scheduler_started() -> tuple[Registry, Scheduler]:
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


async def test_it_binds_at_once_with_an_event() -> None:
    registry, _ = _scheduler_started()
    _ready_node(registry)
    registry.create(ADMIN, "pods", pod(), "default")
    await settle()
    assert _where(registry) == "n1"
    assert _events(registry) == [("Scheduled", "Successfully assigned default/web to n1")]


async def test_a_pod_waits_with_one_event_until_there_is_a_node() -> None:
    registry, _ = _scheduler_started()
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


async def test_released_capacity_is_used() -> None:
    registry, _ = _scheduler_started()
    _ready_node(registry)
    for name in ("a", "b"):
        registry.create(ADMIN, "pods", pod(name, **_requesting("2")), "default")
    await settle()
    assert [_where(registry, name) for name in "ab"] == ["n1", ""]
    registry.delete(NODE, "pods", "a", "default", DeleteOptions(grace_period_seconds=0))
    await settle()
    assert _where(registry, "b") == "n1"


async def test_a_pod_counts_with_its_highest_requests_during_a_resize() -> None:
    registry, _ = _scheduler_started()
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


async def test_a_pod_that_ends_releases_its_capacity() -> None:
    registry, _ = _scheduler_started()
    _ready_node(registry)
    for name in ("a", "b"):
        registry.create(ADMIN, "pods", pod(name, **_requesting("2")), "default")
    await settle()
    done = {"status": {"phase": "Succeeded"}}
    registry.patch(NODE, "pods", "a", done, "default", subresource="status")
    await settle()
    assert _where(registry, "b") == "n1"


async def test_two_pods_in_one_turn_do_not_get_the_same_capacity() -> None:
    registry, _ = _scheduler_started()
    for name in ("a", "b"):
        registry.create(ADMIN, "pods", pod(name, **_requesting("1500m")), "default")
    _ready_node(registry)
    await settle()
    assert sorted(_where(registry, name) for name in "ab") == ["", "n1"]


async def test_the_pod_with_higher_priority_is_bound_first() -> None:
    registry, _ = _scheduler_started()
    registry.create(ADMIN, "pods", pod("a", **_requesting("2")), "default")
    urgent = pod("b", priorityClassName="system-node-critical", **_requesting("2"))
    registry.create(ADMIN, "pods", urgent, "default")
    _ready_node(registry)
    await settle()
    assert [_where(registry, name) for name in "ab"] == ["", "n1"]


async def test_pods_of_other_schedulers_and_gated_pods_are_left_alone() -> None:
    registry, scheduler = _scheduler_started()
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


# The node controller: silence makes a node Unknown, taints follow conditions.


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
