"""Inputs that the config builders share: settings of the node, and the namespaces of a pod. Pure.

The composition root fills in the settings from KubeletConfiguration and the machine. Source of the
namespaces: docs/reference/behaviour.md, j2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import MemoryQoS
from kubeletpy.remote.generated import api_pb2 as cri

NO_SYSCTLS: Mapping[str, str] = MappingProxyType({})


class RuntimeSettings(Struct, frozen=True):
    """Settings of sandbox and container configs; the defaults are the kubelet's."""

    pod_logs_dir: str = "/var/log/pods"
    container_logs_dir: str = "/var/log/containers"
    seccomp_root: str = "/var/lib/kubelet/seccomp"
    seccomp_default: bool = False
    """Containers that name no profile get RuntimeDefault."""
    cluster_domain: str = ""
    cluster_dns: tuple[str, ...] = ()
    no_cluster_dns: bool = False
    """The operator states that there is none: its absence is not worth a warning."""
    node_ips: Sequence[str] = ()
    """The node's addresses, which may change."""
    cpu_cfs_quota: bool = True
    cpu_cfs_period_us: int = 100_000
    memory_capacity: int = 0
    """Bytes; 0: unknown."""
    swap_capacity: int = 0
    """Bytes."""
    limited_swap: bool = False
    """memorySwap.swapBehavior is LimitedSwap."""
    swap_controller: bool = False
    """The node's memory cgroups can limit swap."""
    cgroup_v2: bool = False
    single_process_oom_kill: bool = False
    hugepage_sizes: tuple[str, ...] = ()
    """Page sizes of the node, as cgroups name them: ``2MB``, ``1GB``."""
    thermal_throttle_paths: tuple[str, ...] = ()
    """The existing /sys/devices/system/cpu/cpuN/thermal_throttle paths: hidden from containers."""
    selinux_enabled: bool = False
    memory_qos: MemoryQoS | None = None
    """None: gate MemoryQoS is off, or the node has no cgroup v2."""
    default_sysctls: Mapping[str, str] = NO_SYSCTLS
    """defaultPodSysctls, which sandboxes get unless their pods set them."""
    resizes_memory_volumes: bool = False
    """Gate InPlacePodVerticalScalingMemoryBackedVolumes."""
    stop_signals: bool = False
    """Gate ContainerStopSignals: lifecycle.stopSignal is passed to the runtime."""
    uids: Sequence[tuple[int, int]] = ()
    """(first, count) of the users that a node without root has; empty: all."""


class UserNamespaceRange(Struct, frozen=True):
    """The node's ids that a pod with hostUsers false is mapped to, starting at its id 0."""

    first_host_id: int
    length: int = 65536


def namespace_options(
    pod: Pod, userns: UserNamespaceRange | None = None, target_id: str = ""
) -> cri.NamespaceOption:
    """Return the Linux namespaces of a pod's sandbox or of one container, shared or its own.

    ``target_id`` is the container whose processes an ephemeral container targets; it counts
    only where containers have process namespaces of their own.
    """
    host_pid = pod.spec.get("hostPID")
    shared_pid = pod.spec.get("shareProcessNamespace")
    pid = cri.CONTAINER
    if host_pid:
        pid = cri.NODE
    elif shared_pid:
        pid = cri.POD
    elif target_id:
        pid = cri.TARGET
    options = cri.NamespaceOption(
        network=cri.NODE if pod.host_network else cri.POD,
        ipc=cri.NODE if pod.spec.get("hostIPC") else cri.POD,
        pid=pid,
        target_id=target_id if pid == cri.TARGET else "",
    )
    if userns is not None:
        ids = id_mappings(userns)
        options.userns_options.CopyFrom(cri.UserNamespace(mode=cri.POD, uids=ids, gids=ids))
    return options


def id_mappings(userns: UserNamespaceRange) -> list[cri.IDMapping]:
    """The one mapping, which applies to users and to groups."""
    return [cri.IDMapping(host_id=userns.first_host_id, container_id=0, length=userns.length)]


def requests_user_namespace(pod: Pod) -> bool:
    """Whether the pod requests its own user namespace (hostUsers false)."""
    return pod.spec.get("hostUsers") is False
