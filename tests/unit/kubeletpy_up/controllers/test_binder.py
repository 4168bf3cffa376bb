"""Claims get, lose and release volumes: the binder and related controllers on a registry."""

from __future__ import annotations

from typing import Any

from kubeletpy_up.controllers.binder import Binder
from kubeletpy_up.controllers.pod_claims import EphemeralClaims
from kubeletpy_up.controllers.scheduler import Scheduler
from kubeletpy_up.controllers.volume_protection import VolumeProtection
from kubeletpy_up.kinds.storage import CLAIMS, CLASSES, VOLUMES
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, DeleteOptions
from tests.unit.kubeletpy_up.helpers import make_registry, node, pod
from tests.virtual_time import LoopClock, on_virtual_time, settle

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


@on_virtual_time
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


@on_virtual_time
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


@on_virtual_time
async def test_a_volume_that_a_claim_names_and_does_not_fit() -> None:
    registry = _started()
    _volume(registry, "small", "1Mi")
    _claim(registry, volumeName="small")
    await settle()
    assert _phase(registry, CLAIMS, "c") == "Pending"
    assert _reasons(registry, "c") == ["VolumeMismatch"]
    assert _phase(registry, VOLUMES, "small") == "Available"


@on_virtual_time
async def test_a_binding_that_was_cut_off_is_completed() -> None:
    registry = make_registry(clock=LoopClock())
    _claim(registry)
    uid = registry.find(CLAIMS, "default", "c")["metadata"]["uid"]  # type: ignore[index]
    reference = {"namespace": "default", "name": "c", "uid": uid}
    _volume(registry, "v", claimRef=reference)
    Binder(registry).start()
    await settle()
    assert _phase(registry, CLAIMS, "c") == _phase(registry, VOLUMES, "v") == "Bound"


@on_virtual_time
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


@on_virtual_time
async def test_used_claims_are_kept_until_their_pod_is_removed() -> None:
    registry = _started()
    _volume(registry, "v")
    _claim(registry)
    registry.create(ADMIN, "pods", _using("p", "c"), "default")
    await settle()
    registry.delete(ADMIN, CLAIMS, "c", "default")
    registry.delete(ADMIN, VOLUMES, "v")
    await settle()
    assert _phase(registry, CLAIMS, "c") == _phase(registry, VOLUMES, "v") == "Bound"
    registry.delete(ADMIN, "pods", "p", "default", DeleteOptions(grace_period_seconds=0))
    await settle()
    assert _phase(registry, CLAIMS, "c") == _phase(registry, VOLUMES, "v") == "gone"


@on_virtual_time
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


@on_virtual_time
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


@on_virtual_time
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
