"""Device claims from template to deletion: controller and scheduler on a registry.

The tests allocate the claims: nothing in the embedded API does.
"""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy_up.controllers.garbage_collector import GarbageCollector
from kubeletpy_up.controllers.pod_claims import POD_CLAIM, DeviceClaims
from kubeletpy_up.controllers.pod_devices import FINALIZER, NOT_ALLOCATED
from kubeletpy_up.controllers.scheduler import Scheduler
from kubeletpy_up.controllers.service_notices import ServiceNotices
from kubeletpy_up.errors import ApiError
from kubeletpy_up.kinds.devices import ADMIN_LABEL, CLAIMS, TEMPLATES
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, DeleteOptions
from tests.kit.embedded import make_registry, node, pod
from tests.kit.virtual_time import LoopClock, settle

pytestmark = pytest.mark.virtual_time

JSON = dict[str, Any]
NOW = DeleteOptions(0)
EXACTLY = {"deviceClassName": "gpu"}
SPEC = {"devices": {"requests": [{"name": "r", "exactly": EXACTLY}]}}


async def _started() -> Registry:
    registry = make_registry(clock=LoopClock())
    for kind in (DeviceClaims, Scheduler, GarbageCollector):
        kind(registry).start()
    registry.create(ADMIN, "nodes", node())
    registry.patch(ADMIN, "nodes", "n1", {"spec": {"taints": None}})
    await settle()
    return registry


def _using(name: str, **claim: str) -> JSON:
    containers = [{"name": "c", "image": "b:1", "resources": {"claims": [{"name": "g"}]}}]
    return pod(name, containers=containers, resourceClaims=[{"name": "g", **claim}])


def _template(registry: Registry) -> None:
    spec = {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}
    registry.create(ADMIN, TEMPLATES, {"metadata": {"name": "t"}, "spec": spec}, "default")


def _claim(registry: Registry, name: str, spec: JSON = SPEC) -> None:
    registry.create(ADMIN, CLAIMS, {"metadata": {"name": name}, "spec": spec}, "default")


async def _allocate(registry: Registry, name: str, *nodes: str) -> None:
    """Allocate a claim, on some nodes if any are named, as another program would."""
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
    allocation: JSON = {"devices": {"results": [result]}}
    if nodes:
        named = {"key": "metadata.name", "operator": "In", "values": [*nodes]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [named]}]}
    change = {"status": {"allocation": allocation}}
    registry.patch(ADMIN, CLAIMS, name, change, "default", subresource="status")
    await settle()


def _claims(registry: Registry) -> list[JSON]:
    found: list[JSON] = registry.list(ADMIN, CLAIMS, "default")["items"]
    return found


def _pod(registry: Registry, name: str) -> JSON:
    found: JSON = registry.get(ADMIN, "pods", name, "default")
    return found


def _waits(registry: Registry, name: str) -> str:
    (condition,) = _pod(registry, name)["status"]["conditions"]
    assert condition["reason"] == "Unschedulable"
    return str(condition["message"])


async def test_a_pod_waits_until_another_program_has_allocated_its_claim() -> None:
    registry = await _started()
    _template(registry)
    registry.create(ADMIN, "pods", _using("p", resourceClaimTemplateName="t"), "default")
    await settle()
    (claim,) = _claims(registry)
    about, found = claim["metadata"], _pod(registry, "p")
    assert about["name"].startswith("p-g-")
    assert (about["labels"], about["annotations"]) == ({"a": "b"}, {POD_CLAIM: "g"})
    assert found["status"]["resourceClaimStatuses"] == [
        {"name": "g", "resourceClaimName": about["name"]}
    ]
    message = f'resourceclaim "{about["name"]}" is not allocated: {NOT_ALLOCATED}'
    assert _waits(registry, "p") == f"0/1 nodes are available: {message}."
    (event,) = registry.list(ADMIN, "events", "default")["items"]
    assert (event["reason"], event["message"]) == ("FailedScheduling", _waits(registry, "p"))
    await _allocate(registry, about["name"])
    (claim,) = _claims(registry)
    found = _pod(registry, "p")
    assert found["spec"]["nodeName"] == "n1"
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    uid = found["metadata"]["uid"]
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": uid}]
    registry.delete(ADMIN, "pods", "p", "default", NOW)
    await settle()
    assert _claims(registry) == []


async def test_devices_of_another_node_keep_a_pod_waiting() -> None:
    registry = await _started()
    _claim(registry, "c")
    await _allocate(registry, "c", "n2")
    registry.create(ADMIN, "pods", _using("p", resourceClaimName="c"), "default")
    await settle()
    assert "1 resourceclaim not available on the node" in _waits(registry, "p")


async def test_the_claim_of_an_ended_pod_is_deleted() -> None:
    registry = await _started()
    _template(registry)
    registry.create(ADMIN, "pods", _using("p", resourceClaimTemplateName="t"), "default")
    await settle()
    await _allocate(registry, _claims(registry)[0]["metadata"]["name"], "n1")
    found = _pod(registry, "p")
    assert found["spec"]["nodeName"] == "n1"
    ended = {**found, "status": {**found["status"], "phase": "Succeeded"}}
    registry.update(ADMIN, "pods", ended, "default", name="p", subresource="status")
    await settle()
    assert _claims(registry) == []


async def test_a_shared_claim_is_kept_and_released() -> None:
    registry = await _started()
    _claim(registry, "c")
    await _allocate(registry, "c")
    for name in "pq":
        registry.create(ADMIN, "pods", _using(name, resourceClaimName="c"), "default")
    await settle()
    (claim,) = _claims(registry)
    assert [each["name"] for each in claim["status"]["reservedFor"]] == ["p", "q"]
    registry.delete(ADMIN, CLAIMS, "c", "default")
    await settle()
    assert _claims(registry)[0]["metadata"]["deletionTimestamp"]
    registry.create(ADMIN, "pods", _using("late", resourceClaimName="c"), "default")
    await settle()
    assert 'resourceclaim "c" is being deleted' in _waits(registry, "late")
    registry.delete(ADMIN, "pods", "p", "default", NOW)
    await settle()
    assert _claims(registry)
    registry.delete(ADMIN, "pods", "q", "default", NOW)
    await settle()
    assert _claims(registry) == []


async def test_a_claim_that_its_users_have_left_is_deallocated() -> None:
    registry = await _started()
    _claim(registry, "c")
    await _allocate(registry, "c")
    registry.create(ADMIN, "pods", _using("p", resourceClaimName="c"), "default")
    await settle()
    registry.delete(ADMIN, "pods", "p", "default", NOW)
    await settle()
    (claim,) = _claims(registry)
    assert claim["status"] == {}
    assert "finalizers" not in claim["metadata"]


async def test_a_pod_waits_until_its_template_exists() -> None:
    registry = await _started()
    registry.create(ADMIN, "pods", _using("p", resourceClaimTemplateName="t"), "default")
    await settle()
    assert 'pod "default/p": ResourceClaim not created yet' in _waits(registry, "p")
    events = [each["message"] for each in registry.list(ADMIN, "events", "default")["items"]]
    assert any(
        text == 'PodResourceClaim g: resource claim template "t": '
        'resourceclaimtemplate.resource.k8s.io "t" not found'
        for text in events
    )
    _template(registry)
    await settle()
    assert "is not allocated" in _waits(registry, "p")


async def test_a_pod_that_was_bound_without_the_scheduler_has_the_claim_too() -> None:
    registry = await _started()
    _claim(registry, "c")
    await _allocate(registry, "c")
    registry.create(ADMIN, "pods", _using("p", resourceClaimName="c"), "default")
    await settle()
    bound = _using("q", resourceClaimName="c")
    bound["spec"]["nodeName"] = "n1"
    registry.create(ADMIN, "pods", bound, "default")
    await settle()
    (claim,) = _claims(registry)
    assert [each["name"] for each in claim["status"]["reservedFor"]] == ["p", "q"]


async def test_admin_access_needs_a_label_of_the_namespace() -> None:
    registry = await _started()
    spec = {"devices": {"requests": [{"name": "r", "exactly": {**EXACTLY, "adminAccess": True}}]}}
    with pytest.raises(ApiError, match="admin access to devices requires"):
        _claim(registry, "c", spec)
    registry.patch(ADMIN, "namespaces", "default", {"metadata": {"labels": {ADMIN_LABEL: "true"}}})
    _claim(registry, "c", spec)
    assert [each["metadata"]["name"] for each in _claims(registry)] == ["c"]


# New Services get one Warning event, because nothing serves their address or name.

INSTEAD = (
    "connect to the addresses of Pods, or join a cluster "
    '(docs/embedded-api.md, "Kinds of a cluster")'
)


def service(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], **spec}}


def events_of(registry: Registry) -> list[tuple[str, str, str]]:
    events = registry.list(ADMIN, "events", "default")["items"]
    return [(e["type"], e["reason"], e["message"]) for e in events]


@pytest.mark.parametrize(
    ("spec", "begin"),
    [
        (
            {"clusterIP": "10.96.0.9"},
            "10.96.0.9 is not routed to Pods: this single-node API runs no service proxy; ",
        ),
        (
            {"clusterIP": "None"},
            "The Service's name is not resolved: this single-node API has no DNS server; ",
        ),
        (
            {"type": "ExternalName", "externalName": "a.example"},
            "The Service's name is not resolved: this single-node API has no DNS server; ",
        ),
    ],
)
async def test_a_new_service_has_one_warning(spec: dict[str, Any], begin: str) -> None:
    registry = make_registry(clock=LoopClock())
    controller = ServiceNotices(registry)
    controller.start()
    registry.create(ADMIN, "services", service(**spec), "default")
    await settle()
    labels = {"metadata": {"labels": {"a": "b"}}}
    merge = "application/merge-patch+json"
    registry.patch(ADMIN, "services", "s", labels, "default", patch_type=merge)
    await settle()
    assert events_of(registry) == [("Warning", "NotProxied", begin + INSTEAD)]
    await controller.stop()


async def test_a_restart_does_not_repeat_the_warning() -> None:
    registry = make_registry(clock=LoopClock())
    registry.create(ADMIN, "services", service(), "default")
    controller = ServiceNotices(registry)
    controller.start()
    await settle()
    assert events_of(registry) == []
    await controller.stop()
