"""Inputs of the config builders about this node and its agent.

Filled in by the composition root from KubeletConfiguration and the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kubeletpy.base.structs import Struct
from kubeletpy.pods.resources import MemoryQoS

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
