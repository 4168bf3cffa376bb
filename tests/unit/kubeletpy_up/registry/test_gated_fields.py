"""Fields of pods whose gates are off are dropped, unless the stored pod has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletpy_up.requests import ADMIN, WriteOptions
from tests.kit.embedded import make_registry, pod, refusal

MOUNT = {"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}
CONTAINER = {"name": "c", "image": "busybox:1", "volumeMounts": [MOUNT]}
GATES = ("VolumeBindMountOptions",)


def new_pod(**spec: Any) -> dict[str, Any]:
    volumes = [{"name": "v", "emptyDir": {}}]
    return pod("web", **{"containers": [CONTAINER], "volumes": volumes, **spec})


def options(made: dict[str, Any]) -> Any:
    return made["spec"]["containers"][0]["volumeMounts"][0].get("bindMountOptions")


@pytest.mark.parametrize("on", [False, True])
def test_options_of_bind_mounts_need_their_gate(on: bool) -> None:
    registry = make_registry(feature_gates=GATES if on else ())
    supplied = new_pod(initContainers=[{**CONTAINER, "name": "i"}])
    made = registry.create(ADMIN, "pods", supplied, "default")
    assert options(made) == (["noexec"] if on else None)
    (init,) = made["spec"]["initContainers"][0]["volumeMounts"]
    assert ("bindMountOptions" in init) is on
    assert options(supplied) == ["noexec"], "the caller's object must stay as it was"


@pytest.mark.parametrize("on", [False, True])
def test_the_mode_of_an_empty_dir_needs_its_gate(on: bool) -> None:
    registry = make_registry(feature_gates=["EmptyDirVolumeMode"] if on else ())
    supplied = new_pod(volumes=[{"name": "v", "emptyDir": {"mode": 0o750, "medium": "Memory"}}])
    made = registry.create(ADMIN, "pods", supplied, "default")
    assert made["spec"]["volumes"][0]["emptyDir"] == {
        "medium": "Memory",
        **({"mode": 0o750} if on else {}),
    }
    if on:
        registry.feature_gates = frozenset()
        changed = registry.update(ADMIN, "pods", made, "default")
        assert changed["spec"]["volumes"][0]["emptyDir"]["mode"] == 0o750


FIELD = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
KEY = {"key": "a", "path": "a", "user": 5}
OWNED: list[dict[str, Any]] = [
    {"configMap": {"name": "c", "defaultUser": 1, "items": [KEY]}},
    {"secret": {"secretName": "s", "defaultUser": 1, "items": [KEY]}},
    {"downwardAPI": {"defaultUser": 1, "items": [{"path": "a", "user": 5, **FIELD}]}},
    {
        "projected": {
            "defaultUser": 1,
            "sources": [
                {"configMap": {"name": "c", "items": [KEY]}},
                {"secret": {"name": "s", "items": [KEY]}},
                {"downwardAPI": {"items": [{"path": "a", "user": 5, **FIELD}]}},
                {"serviceAccountToken": {"path": "a", "expirationSeconds": 600, "user": 0}},
                {"clusterTrustBundle": {"name": "b", "path": "a", "user": 0}},
                {"podCertificate": {"signerName": "s.io/x", "keyType": "ED25519", "user": 0}},
            ],
        }
    },
]


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("source", OWNED, ids=[next(iter(each)) for each in OWNED])
def test_owners_of_files_need_their_gate(source: dict[str, Any], on: bool) -> None:
    registry = make_registry(feature_gates=["AtomicWriteVolumeUserFields"] if on else ())
    supplied = new_pod(volumes=[{"name": "v", **source}])
    made = registry.create(ADMIN, "pods", supplied, "default")
    (kept,) = made["spec"]["volumes"]
    assert json.dumps(kept).count('ser": ') == (json.dumps(source).count('ser": ') if on else 0)
    registry.feature_gates = frozenset()
    assert registry.update(ADMIN, "pods", made, "default")["spec"]["volumes"] == [kept]


def test_fields_of_stored_pods_are_kept_when_the_gate_is_turned_off() -> None:
    registry = make_registry(feature_gates=GATES)
    made = registry.create(ADMIN, "pods", new_pod(), "default")
    registry.feature_gates = frozenset()
    labeled = {**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}}
    changed = registry.update(ADMIN, "pods", labeled, "default")
    assert options(changed) == ["noexec"]
    debug = {"name": "d", "image": "busybox:1", "volumeMounts": [MOUNT]}
    with_debug = {**changed, "spec": {**changed["spec"], "ephemeralContainers": [debug]}}
    after = registry.update(ADMIN, "pods", with_debug, "default", subresource="ephemeralcontainers")
    assert after["spec"]["ephemeralContainers"][0]["volumeMounts"] == [MOUNT]


def test_a_change_of_a_pod_without_them_drops_them() -> None:
    registry = make_registry()
    made = registry.create(ADMIN, "pods", new_pod(), "default")
    debug = {"name": "d", "image": "busybox:1", "volumeMounts": [MOUNT]}
    after = registry.update(
        ADMIN,
        "pods",
        {**made, "spec": {**made["spec"], "ephemeralContainers": [debug]}},
        "default",
        subresource="ephemeralcontainers",
    )
    assert "bindMountOptions" not in after["spec"]["ephemeralContainers"][0]["volumeMounts"][0]


def test_a_value_is_refused_only_if_the_gate_is_on() -> None:
    wrong = new_pod(
        containers=[{**CONTAINER, "volumeMounts": [{**MOUNT, "bindMountOptions": ["x"]}]}]
    )
    dry = WriteOptions(dry_run=True)
    make_registry().create(ADMIN, "pods", wrong, "default", options=dry)
    error = refusal(make_registry(feature_gates=GATES).create, ADMIN, "pods", wrong, "default")
    assert (error.code, error.reason) == (422, "Invalid")


@pytest.mark.parametrize("on", [False, True])
def test_the_health_of_volumes_needs_its_gate(on: bool) -> None:
    registry = make_registry(feature_gates=["CSIVolumeHealth"] if on else ())
    made = registry.create(ADMIN, "pods", new_pod(), "default")
    sick = {"status": "Degraded", "reason": "Slow", "message": "m"}
    health = [{"name": "v", "healthConditions": [sick], "lastTransitionTime": None}]
    written = {**made, "status": {**made["status"], "volumeHealth": health}}
    after = registry.update(ADMIN, "pods", written, "default", subresource="status")
    assert ("volumeHealth" in after["status"]) is on
    if not on:
        return
    wrong = [{"name": "x", "healthConditions": [{**sick, "reason": "not one"}]}]
    bad = {**after, "status": {**after["status"], "volumeHealth": wrong}}
    error = refusal(registry.update, ADMIN, "pods", bad, "default", subresource="status")
    causes = error.details["causes"]
    assert [cause["field"] for cause in causes] == [
        "status.volumeHealth[0].name",
        "status.volumeHealth[0].healthConditions[0].reason",
    ]
