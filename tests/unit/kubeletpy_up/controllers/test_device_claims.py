"""Device claims from template to deletion: controller and scheduler on a registry."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeletpy_up.controllers.device_claims import POD_CLAIM, DeviceClaims
from kubeletpy_up.controllers.garbage_collector import GarbageCollector
from kubeletpy_up.controllers.pod_devices import FINALIZER
from kubeletpy_up.controllers.scheduler import Scheduler
from kubeletpy_up.errors import ApiError
from kubeletpy_up.kinds.devices import ADMIN_LABEL, CLAIMS, CLASSES, SLICES, TEMPLATES
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, DeleteOptions
from tests.unit.kubeletpy_up.controllers.test_device_allocation import (
    DRIVER,
    device,
    exactly,
    slice_of,
)
from tests.unit.kubeletpy_up.helpers import make_registry, node, pod
from tests.virtual_time import LoopClock, on_virtual_time, settle

JSON = dict[str, Any]
NOW = DeleteOptions(0)


async def _started(*names: str) -> Registry:
    registry = make_registry(clock=LoopClock())
    for kind in (DeviceClaims, Scheduler, GarbageCollector):
        kind(registry).start()
    registry.create(ADMIN, "nodes", node())
    registry.patch(ADMIN, "nodes", "n1", {"spec": {"taints": None}})
    registry.create(ADMIN, CLASSES, {"metadata": {"name": "gpu"}, "spec": {}})
    if names:
        registry.create(ADMIN, SLICES, slice_of(*(device(name) for name in names)))
    await settle()
    return registry


def _using(name: str, **claim: str) -> JSON:
    containers = [{"name": "c", "image": "b:1", "resources": {"claims": [{"name": "g"}]}}]
    return pod(name, containers=containers, resourceClaims=[{"name": "g", **claim}])


def _template(registry: Registry, *requests: JSON) -> None:
    spec = {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [*requests]}}}
    registry.create(ADMIN, TEMPLATES, {"metadata": {"name": "t"}, "spec": spec}, "default")


def _claim(registry: Registry, name: str, *requests: JSON) -> None:
    spec = {"devices": {"requests": [*requests]}}
    registry.create(ADMIN, CLAIMS, {"metadata": {"name": name}, "spec": spec}, "default")


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


@on_virtual_time
async def test_a_claim_is_created_allocated_and_deleted_with_its_pod() -> None:
    registry = await _started("d0", "d1")
    _template(registry, exactly())
    registry.create(ADMIN, "pods", _using("p", resourceClaimTemplateName="t"), "default")
    await settle()
    (claim,) = _claims(registry)
    about, found = claim["metadata"], _pod(registry, "p")
    assert about["name"].startswith("p-g-")
    assert (about["labels"], about["annotations"]) == ({"a": "b"}, {POD_CLAIM: "g"})
    assert found["status"]["resourceClaimStatuses"] == [
        {"name": "g", "resourceClaimName": about["name"]}
    ]
    assert found["spec"]["nodeName"] == "n1"
    assert about["finalizers"] == [FINALIZER]
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["device"]) == (DRIVER, "d0")
    assert claim["status"]["allocation"]["allocationTimestamp"]
    uid = found["metadata"]["uid"]
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": uid}]
    registry.delete(ADMIN, "pods", "p", "default", NOW)
    await settle()
    assert _claims(registry) == []


@on_virtual_time
async def test_an_ended_pod_keeps_no_devices() -> None:
    registry = await _started("d0")
    _template(registry, exactly())
    registry.create(ADMIN, "pods", _using("p", resourceClaimTemplateName="t"), "default")
    registry.create(ADMIN, "pods", _using("q", resourceClaimTemplateName="t"), "default")
    await settle()
    assert "1 of class gpu requested, 1 selected, 0 free" in _waits(registry, "q")
    found = _pod(registry, "p")
    ended = {**found, "status": {**found["status"], "phase": "Succeeded"}}
    registry.update(ADMIN, "pods", ended, "default", name="p", subresource="status")
    await settle()
    (claim,) = _claims(registry)
    assert claim["metadata"]["ownerReferences"][0]["name"] == "q"
    assert _pod(registry, "q")["spec"]["nodeName"] == "n1"


@on_virtual_time
async def test_a_shared_claim_is_kept_and_released() -> None:
    registry = await _started("d0")
    _claim(registry, "c", exactly())
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


@on_virtual_time
async def test_an_unused_claim_is_not_allocated() -> None:
    registry = await _started("d0")
    _claim(registry, "c", exactly())
    registry.create(ADMIN, "pods", _using("p", resourceClaimName="c"), "default")
    await settle()
    registry.delete(ADMIN, "pods", "p", "default", NOW)
    await settle()
    (claim,) = _claims(registry)
    assert claim["status"] == {}
    assert "finalizers" not in claim["metadata"]


@on_virtual_time
async def test_a_pod_waits_until_its_devices_exist() -> None:
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
    _template(registry, exactly())
    await settle()
    assert "cannot allocate all claims" in _waits(registry, "p")
    registry.create(ADMIN, SLICES, slice_of(device("d0")))
    await settle()
    assert _pod(registry, "p")["spec"]["nodeName"] == "n1"


@on_virtual_time
async def test_an_extended_resource_is_a_claim_too() -> None:
    registry = await _started("d0", "d1")
    registry.patch(ADMIN, CLASSES, "gpu", {"spec": {"extendedResourceName": "example.com/gpu"}})
    limits = {"limits": {"example.com/gpu": "2"}}
    containers = [{"name": "c", "image": "b:1", "resources": limits}]
    registry.create(ADMIN, "pods", pod("p", containers=containers), "default")
    await settle()
    (claim,) = _claims(registry)
    assert claim["metadata"]["name"].startswith("p-extended-resources-")
    found = _pod(registry, "p")
    assert found["spec"]["nodeName"] == "n1"
    assert found["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": claim["metadata"]["name"],
        "requestMappings": [
            {
                "containerName": "c",
                "resourceName": "example.com/gpu",
                "requestName": "container-0-request-0",
            }
        ],
    }
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 2
    registry.delete(ADMIN, "pods", "p", "default", NOW)
    await settle()
    assert _claims(registry) == []


@on_virtual_time
async def test_a_resource_of_the_node_needs_no_claim() -> None:
    registry = await _started("d0")
    registry.patch(ADMIN, CLASSES, "gpu", {"spec": {"extendedResourceName": "example.com/gpu"}})
    had = copy.deepcopy(registry.get(ADMIN, "nodes", "n1"))
    for key in ("capacity", "allocatable"):
        had["status"][key] = {**had["status"][key], "example.com/gpu": "1"}
    registry.update(ADMIN, "nodes", had, name="n1", subresource="status")
    limits = {"limits": {"example.com/gpu": "1"}}
    containers = [{"name": "c", "image": "b:1", "resources": limits}]
    registry.create(ADMIN, "pods", pod("p", containers=containers), "default")
    await settle()
    assert _claims(registry) == []
    assert _pod(registry, "p")["spec"]["nodeName"] == "n1"


@on_virtual_time
async def test_a_pod_that_was_bound_without_the_scheduler_has_the_claim_too() -> None:
    registry = await _started("d0")
    _claim(registry, "c", exactly())
    registry.create(ADMIN, "pods", _using("p", resourceClaimName="c"), "default")
    await settle()
    bound = _using("q", resourceClaimName="c")
    bound["spec"]["nodeName"] = "n1"
    registry.create(ADMIN, "pods", bound, "default")
    await settle()
    (claim,) = _claims(registry)
    assert [each["name"] for each in claim["status"]["reservedFor"]] == ["p", "q"]


@on_virtual_time
async def test_admin_access_needs_a_label_of_the_namespace() -> None:
    registry = await _started("d0")
    with pytest.raises(ApiError, match="admin access to devices requires"):
        _claim(registry, "c", exactly(adminAccess=True))
    registry.patch(ADMIN, "namespaces", "default", {"metadata": {"labels": {ADMIN_LABEL: "true"}}})
    _claim(registry, "c", exactly(adminAccess=True))
    registry.create(ADMIN, "pods", _using("p", resourceClaimName="c"), "default")
    await settle()
    (claim,) = _claims(registry)
    assert claim["status"]["allocation"]["devices"]["results"][0]["adminAccess"] is True


@on_virtual_time
async def test_evaluation_errors_are_reported() -> None:
    registry = await _started("d0")
    selectors = [{"cel": {"expression": f'device.attributes["{DRIVER}"].nix == 1'}}]
    _claim(registry, "c", exactly(selectors=selectors))
    registry.create(ADMIN, "pods", _using("p", resourceClaimName="c"), "default")
    await settle()
    assert "resourceclaim c: request r: device gpu.example.com/n1/d0: CEL runtime error" in _waits(
        registry, "p"
    )
