"""Features that nodes of each version declare, and pods that need them."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.kubernetes_version import NEWEST, SUPPORTED, KubernetesVersion, supported
from kubeletpy.config.gates import known_gates, resolve
from kubeletpy.config.generated.tables import HERE
from kubeletpy.resources.admission.declared_features import (
    GATE,
    NEEDED,
    NodeConfiguration,
    declared,
    features_of,
    lacking,
    lacking_for_update,
)
from tests.kit.cgroups import pod
from tools.rulebook.tables import rows

WEB_SOCKETS = "ExtendWebSocketsToKubelet"
POD_LEVEL = "InPlacePodLevelResourcesVerticalScaling"
INIT = "InPlacePodVerticalScalingInitContainers"
ALL_AGAIN = "RestartAllContainersOnContainerExits"
HOST_NETWORK = "UserNamespacesHostNetworkSupport"
BIND = "VolumeBindMountOptions"
EXCLUSIVE = "InPlacePodVerticalScalingExclusiveCPUs"
RESIZE = "GuaranteedQoSPodCPUResize"
ML_DSA, OCI = "PodCertificateMLDSA", "SecurityProfileOCI"
DEFAULT = (WEB_SOCKETS, POD_LEVEL, INIT, ALL_AGAIN)
BOTH = ("mount_options", "user_namespaces_host_network")


def version_of(text: str) -> KubernetesVersion:
    found = supported(text)
    assert found is not None
    return found


def test_features_are_needed_where_the_table_says_so() -> None:
    needed = {
        row["feature"]
        for row in rows("declared-features.csv")
        if not row["needed_at_admission"].startswith("never")
    }
    assert set(NEEDED) == needed


DECLARED: list[tuple[str, dict[str, bool], tuple[str, ...], str, tuple[str, ...]]] = [
    ("1.38", {ML_DSA: True, OCI: True}, (*BOTH, "seccomp_profile_oci"), "none", DEFAULT),
    ("1.37", {}, (), "none", DEFAULT),
    ("1.37", {}, BOTH, "none", DEFAULT),
    ("1.37", {HOST_NETWORK: True}, (), "none", DEFAULT),
    ("1.37", {HOST_NETWORK: True}, BOTH, "none", (*DEFAULT, HOST_NETWORK)),
    ("1.37", {HOST_NETWORK: True}, ("mount_options",), "none", DEFAULT),
    ("1.37", {"DRAOptionalNodeOperations": True}, (), "none",
     ("DRAOptionalNodeOperations", *DEFAULT)),
    ("1.37", {WEB_SOCKETS: False, ALL_AGAIN: False}, (), "none", (POD_LEVEL, INIT)),
    ("1.37", {EXCLUSIVE: True}, (), "static", DEFAULT),
    ("1.36", {}, BOTH, "none", DEFAULT),
    ("1.36", {HOST_NETWORK: True}, BOTH, "none", (*DEFAULT, HOST_NETWORK)),
    ("1.36", {"DRANodeAllocatableResources": True}, BOTH, "none", DEFAULT),
    ("1.36", {INIT: False}, (), "none", (WEB_SOCKETS, POD_LEVEL, ALL_AGAIN)),
    ("1.36", {GATE: False}, BOTH, "none", ()),
    ("1.35", {}, BOTH, "none", ()),
    ("1.35", {GATE: True}, BOTH, "none", (RESIZE,)),
    ("1.35", {GATE: True}, BOTH, "static", ()),
    ("1.35", {GATE: True, HOST_NETWORK: True}, BOTH, "none", (RESIZE,)),
    ("1.35", {GATE: True, ALL_AGAIN: True, POD_LEVEL: True}, (), "none",
     (RESIZE, POD_LEVEL, ALL_AGAIN)),
]  # fmt: skip


@pytest.mark.parametrize(("version", "gates", "runtime", "policy", "expected"), DECLARED)
def test_the_list_is_that_of_the_kubelet(
    version: str,
    gates: dict[str, bool],
    runtime: tuple[str, ...],
    policy: str,
    expected: tuple[str, ...],
) -> None:
    found = resolve(gates, version_of(version))
    assert declared(NodeConfiguration(found, runtime, policy)) == expected


@pytest.mark.parametrize("version", SUPPORTED, ids=str)
@pytest.mark.parametrize("name", sorted(features_of(NEWEST)))
def test_no_feature_is_declared_that_this_agent_does_not_have(
    name: str, version: KubernetesVersion
) -> None:
    known = known_gates(version)
    gates = {each: True for each in (name, GATE) if each in known}
    found = declared(NodeConfiguration(resolve(gates, version), BOTH))
    built = name in features_of(version) and HERE.get(name, (True, ""))[0]
    assert (name in found) is built


CPU_1: Any = {"requests": {"cpu": "1"}}
CPU_1000M: Any = {"requests": {"cpu": "1000m"}}
CPU_2: Any = {"requests": {"cpu": "2"}}
MEMORY = "InPlacePodVerticalScalingMemoryBackedVolumes"


def resized(**fields: Any) -> Any:
    return pod({"name": "c", "resources": CPU_1}, **fields)


def tmpfs(limit: str | None, medium: str = "Memory") -> Any:
    source = {"medium": medium, **({} if limit is None else {"sizeLimit": limit})}
    return resized(volumes=[{"name": "v", "emptyDir": source}])


def with_init(resources: Any, **fields: Any) -> Any:
    return resized(initContainers=[{"name": "i", "resources": resources, **fields}])


@pytest.mark.parametrize(
    ("version", "old", "new", "missing"),
    [
        ("1.37", resized(), resized(), []),
        ("1.37", resized(resources=CPU_1), resized(resources=CPU_2), [POD_LEVEL]),
        ("1.36", resized(), resized(resources=CPU_2), [POD_LEVEL]),
        ("1.37", resized(resources=CPU_1), resized(resources=CPU_1000M), []),
        ("1.37", resized(), resized(resources={}), []),
        ("1.37", resized(), resized(resources={"requests": {"cpu": "?"}}), [POD_LEVEL]),
        ("1.37", with_init(CPU_1), with_init(CPU_2), [INIT]),
        ("1.35", with_init(CPU_1), with_init(CPU_2), []),
        ("1.37", with_init(CPU_1, restartPolicy="Always"),
         with_init(CPU_2, restartPolicy="Always"), []),
        ("1.37", tmpfs("1Mi"), tmpfs("2Mi"), [MEMORY]),
        ("1.37", tmpfs("1Mi"), tmpfs("1024Ki"), []),
        ("1.37", tmpfs(None), tmpfs("2Mi"), []),
        ("1.37", tmpfs("1Mi", ""), tmpfs("2Mi", ""), []),
        ("1.36", tmpfs("1Mi"), tmpfs("2Mi"), []),
        ("1.35", resized(status={"qosClass": "Guaranteed"}),
         pod({"name": "c", "resources": CPU_2}), [RESIZE]),
        ("1.35", resized(status={"qosClass": "Burstable"}),
         pod({"name": "c", "resources": CPU_2}), []),
        ("1.36", resized(status={"qosClass": "Guaranteed"}),
         pod({"name": "c", "resources": CPU_2}), []),
    ],
)  # fmt: skip
def test_an_update_needs_only_features_of_what_it_changes(
    version: str, old: Any, new: Any, missing: list[str]
) -> None:
    assert lacking_for_update(old, new, (), version_of(version)) == missing
    assert lacking_for_update(old, new, missing, version_of(version)) == []


AGAIN: Any = {"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}
MOUNT: Any = {"name": "c", "volumeMounts": [{"bindMountOptions": ["noexec"]}]}
ON_HOST: Any = {"hostNetwork": True, "hostUsers": False}
PROFILE: Any = {
    "securityContext": {"seccompProfile": {"type": "OCI", "oci": {"ref": "r@sha256:0"}}}
}
LOCAL: Any = {"securityContext": {"seccompProfile": {"type": "Localhost"}}}


def certificate(key_type: str) -> Any:
    sources = [{"secret": {}}, {"podCertificate": {"keyType": key_type}}]
    return pod(volumes=[{"name": "v", "projected": {"sources": sources}}])


@pytest.mark.parametrize(
    ("version", "needing", "missing"),
    [
        ("1.37", pod(AGAIN, **ON_HOST), [ALL_AGAIN, HOST_NETWORK]),
        ("1.36", pod(AGAIN, **ON_HOST), [ALL_AGAIN, HOST_NETWORK]),
        ("1.35", pod(AGAIN, **ON_HOST), [ALL_AGAIN]),
        ("1.37", pod(MOUNT), [BIND]),
        ("1.37", pod(initContainers=[MOUNT]), [BIND]),
        ("1.37", pod(ephemeralContainers=[MOUNT]), [BIND]),
        ("1.36", pod(MOUNT), []),
        ("1.37", pod({"name": "c", "volumeMounts": [{"bindMountOptions": []}]}), []),
        ("1.37", pod(), []),
        ("1.38", pod(**PROFILE), [OCI]),
        ("1.38", pod(ephemeralContainers=[{"name": "c", **PROFILE}]), [OCI]),
        ("1.38", pod(**LOCAL), []),
        ("1.37", pod(**PROFILE), []),
        ("1.38", certificate("MLDSA65"), [ML_DSA]),
        ("1.38", certificate("ECDSAP256"), []),
        ("1.37", certificate("MLDSA65"), []),
    ],
)
def test_a_pod_needs_only_features_of_the_version(
    version: str, needing: Any, missing: list[str]
) -> None:
    assert lacking(needing, (), version_of(version)) == missing
    assert lacking(needing, missing, version_of(version)) == []
