"""Features that a node declares in its status, so that it gets no pod that needs others. Pure.

Source: docs/reference/declared-features.csv; docs/reference/behaviour.md, l, o1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import Any

from kubeletpy.base.api.quantity import parse
from kubeletpy.base.generated.versions import DECLARED_FEATURES
from kubeletpy.base.kubernetes_version import KubernetesVersion, column
from kubeletpy.base.structs import Struct
from kubeletpy.config.gates import FeatureGates
from kubeletpy.pods.pod import Pod, is_sidecar

GATE = "NodeDeclaredFeatures"
_ABSENT = "-"
"""A version lacks the feature. Other conditions: see docs/reference/README.md."""


class NodeConfiguration(Struct, frozen=True):
    """The configuration that decides which features a node declares.

    Attributes:
        gates: the feature gates.
        runtime: the fields of the CRI's RuntimeFeatures that the runtime reports.
        cpu_manager_policy: ``none`` or ``static``.
    """

    gates: FeatureGates
    runtime: Collection[str] = ()
    cpu_manager_policy: str = "none"


def _restarts_all(pod: Pod) -> bool:
    return any(
        rule.get("action") == "RestartAllContainers"
        for container in (*pod.init_containers, *pod.containers)
        for rule in container.get("restartPolicyRules") or ()
    )


def _own_users_on_the_nodes_network(pod: Pod) -> bool:
    return pod.host_network and pod.spec.get("hostUsers") is False


def _bind_mount_options(pod: Pod) -> bool:
    return any(
        mount.get("bindMountOptions")
        for _, container in pod.all_containers()
        for mount in container.get("volumeMounts") or ()
    )


def _ml_dsa_certificates(pod: Pod) -> bool:
    return any(
        ((source.get("podCertificate") or {}).get("keyType") or "").startswith("MLDSA")
        for volume in pod.spec.get("volumes") or ()
        for source in (volume.get("projected") or {}).get("sources") or ()
    )


def _seccomp_of_a_registry(pod: Pod) -> bool:
    holders = (pod.spec, *(container for _, container in pod.all_containers()))
    return any(
        ((holder.get("securityContext") or {}).get("seccompProfile") or {}).get("type") == "OCI"
        for holder in holders
    )


NEEDED: Mapping[str, Callable[[Pod], bool]] = MappingProxyType(
    {
        "PodCertificateMLDSA": _ml_dsa_certificates,
        "RestartAllContainersOnContainerExits": _restarts_all,
        "SecurityProfileOCI": _seccomp_of_a_registry,
        "UserNamespacesHostNetworkSupport": _own_users_on_the_nodes_network,
        "VolumeBindMountOptions": _bind_mount_options,
    }
)
"""Feature -> whether a pod needs it in order to run. Only later operations need the others."""


def _pod_level(old: Pod, new: Pod) -> bool:
    return _amounts(old.spec) != _amounts(new.spec)


def _init_containers(old: Pod, new: Pod) -> bool:
    return any(
        _amounts(before) != _amounts(after)
        for before, after in zip(old.init_containers, new.init_containers, strict=False)
        if not is_sidecar(before)
    )


def _exclusive_cpus(old: Pod, new: Pod) -> bool:
    key = ("requests", "cpu")
    return old.status.get("qosClass") == "Guaranteed" and any(
        _amounts(before).get(key) != _amounts(after).get(key)
        for before, after in zip(old.containers, new.containers, strict=False)
    )


def _memory_volumes(old: Pod, new: Pod) -> bool:
    before, after = _memory_limits(old), _memory_limits(new)
    return any(name in before and limit != before[name] for name, limit in after.items())


NEEDED_BY_UPDATE: Mapping[str, Callable[[Pod, Pod], bool]] = MappingProxyType(
    {
        "GuaranteedQoSPodCPUResize": _exclusive_cpus,
        "InPlacePodLevelResourcesVerticalScaling": _pod_level,
        "InPlacePodVerticalScalingInitContainers": _init_containers,
        "InPlacePodVerticalScalingMemoryBackedVolumes": _memory_volumes,
    }
)
"""Feature -> whether a change of a pod, from the first to the second, needs it."""


@cache
def features_of(version: KubernetesVersion) -> Mapping[str, str]:
    """The features that a version has, sorted by name, each with what declares it."""
    found = {name: by for name, by in column(DECLARED_FEATURES, version).items() if by != _ABSENT}
    return MappingProxyType(dict(sorted(found.items())))


def declared(node: NodeConfiguration) -> tuple[str, ...]:
    """The features that a node declares, sorted.

    A gate that is configured off is not declared even where this agent has the feature anyway, so
    that the list is that of the kubelet.
    """
    gates = node.gates
    if not gates.enabled(GATE):
        return ()
    found = features_of(gates.version)
    return tuple(name for name, by in found.items() if _declares(name, by, node))


def lacking(pod: Pod, available: Collection[str], version: KubernetesVersion) -> list[str]:
    """Features that a pod needs and the node lacks, sorted; only those that the version has."""
    return [
        name
        for name in features_of(version)
        if name in NEEDED and name not in available and NEEDED[name](pod)
    ]


def lacking_for_update(
    old: Pod, new: Pod, available: Collection[str], version: KubernetesVersion
) -> list[str]:
    """Features that a change of a pod needs and the node lacks, sorted."""
    return [
        name
        for name in features_of(version)
        if name in NEEDED_BY_UPDATE and name not in available and NEEDED_BY_UPDATE[name](old, new)
    ]


def _amounts(holder: Mapping[str, Any]) -> dict[tuple[str, str], Decimal | str]:
    """Requests and limits of a container or a pod's spec, by kind and resource."""
    resources = holder.get("resources") or {}
    return {
        (kind, name): _amount(text)
        for kind in ("requests", "limits")
        for name, text in (resources.get(kind) or {}).items()
    }


def _memory_limits(pod: Pod) -> dict[str, Decimal | str]:
    """The size limits of volumes in memory, by name."""
    return {
        volume["name"]: _amount(limit)
        for volume in pod.spec.get("volumes") or ()
        if (source := volume.get("emptyDir")) and source.get("medium") == "Memory"
        if (limit := source.get("sizeLimit")) is not None
    }


def _amount(text: str) -> Decimal | str:
    """A quantity as a number; one that can't be read as its text."""
    try:
        return parse(text)
    except ValueError:
        return text


def _declares(name: str, by: str, node: NodeConfiguration) -> bool:
    if by == "cpus":
        return _resizes_exclusive_cpus(node)
    if not _on(name, node.gates):
        return False
    return by == "gate" or by in node.runtime


def _resizes_exclusive_cpus(node: NodeConfiguration) -> bool:
    """Guaranteed pods can be resized if the policy gives no exclusive CPUs, or with the gate."""
    policy = node.cpu_manager_policy
    return policy == "none" or (
        policy == "static" and _on("InPlacePodVerticalScalingExclusiveCPUs", node.gates)
    )


def _on(gate: str, gates: FeatureGates) -> bool:
    return gates.configured(gate) and gates.enabled(gate)
