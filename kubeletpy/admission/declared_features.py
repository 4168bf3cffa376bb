"""Features that a node declares in its status, so that it gets no pod that needs others.

Pure. Source: docs/reference/declared-features.csv; docs/reference/behaviour.md, l, o1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from types import MappingProxyType

from kubeletpy.config.gates import FeatureGates
from kubeletpy.kubernetes_version import SUPPORTED, KubernetesVersion
from kubeletpy.pods.pod import Pod
from kubeletpy.structs import Struct

GATE = "NodeDeclaredFeatures"
_ABSENT = "-"
_TABLE = """
DRANodeAllocatableResources - - gate
DRAOptionalNodeOperations - - gate
ExtendWebSocketsToKubelet - gate gate
GuaranteedQoSPodCPUResize cpus - -
InPlacePodLevelResourcesVerticalScaling gate gate gate
InPlacePodVerticalScalingInitContainers - gate gate
InPlacePodVerticalScalingMemoryBackedVolumes - - gate
RestartAllContainersOnContainerExits gate gate gate
UserNamespacesHostNetworkSupport - user_namespaces_host_network user_namespaces_host_network
VolumeBindMountOptions - - mount_options
"""
"""A line for each feature: its name, then what declares it in each of SUPPORTED. ``gate``: the gate
of the same name; ``cpus``: see :func:`_resizes_exclusive_cpus`; any other word: that gate, and the
field of the CRI's RuntimeFeatures. "-": the version does not have the feature."""


class NodeConfiguration(Struct, frozen=True):
    """What decides which features a node declares.

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


NEEDED: Mapping[str, Callable[[Pod], bool]] = MappingProxyType(
    {
        "RestartAllContainersOnContainerExits": _restarts_all,
        "UserNamespacesHostNetworkSupport": _own_users_on_the_nodes_network,
        "VolumeBindMountOptions": _bind_mount_options,
    }
)
"""Feature -> whether a pod needs it in order to run. Only later operations need the others."""


@cache
def features_of(version: KubernetesVersion) -> Mapping[str, str]:
    """The features that a version has, sorted by name, each with what declares it."""
    column = SUPPORTED.index(version)
    rows = (line.split() for line in _TABLE.split("\n") if line)
    found = {name: values[column] for name, *values in rows if values[column] != _ABSENT}
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


def _declares(name: str, by: str, node: NodeConfiguration) -> bool:
    if by == "cpus":
        return _resizes_exclusive_cpus(node)
    if not _on(name, node.gates):
        return False
    return by == "gate" or by in node.runtime


def _resizes_exclusive_cpus(node: NodeConfiguration) -> bool:
    """Guaranteed pods can be resized where none has CPUs of its own, or with the gate for them."""
    policy = node.cpu_manager_policy
    return policy == "none" or (
        policy == "static" and _on("InPlacePodVerticalScalingExclusiveCPUs", node.gates)
    )


def _on(gate: str, gates: FeatureGates) -> bool:
    return gates.configured(gate) and gates.enabled(gate)
