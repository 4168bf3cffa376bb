"""The settings of sandboxes and containers, from the configuration and the machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kubeletpy.agent.outside import Machine
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.pods.memory_volumes import GATE as MEMORY_VOLUMES
from kubeletpy.resources.cgroups.setup import memory_qos
from kubeletpy.resources.cgroups.values import unreserved_memory
from kubeletpy.runtime_manager.config.settings import RuntimeSettings


def runtime_settings(
    settings: KubeletSettings,
    flags: NodeFlags,
    machine: Machine,
    root: Path,
    host_ips: Sequence[str] = (),
) -> RuntimeSettings:
    """Those of this agent.

    Args:
        root: the kubelet's root directory.
        host_ips: the node's addresses, which may change while it runs.
    """
    facts, kernel, gates = machine.facts, machine.kernel, settings.feature_gates
    return RuntimeSettings(
        pod_logs_dir=settings.pod_logs_dir,
        container_logs_dir=machine.container_logs_dir,
        seccomp_root=str(root / "seccomp"),
        seccomp_default=settings.seccomp_default,
        cluster_domain=settings.cluster_domain,
        cluster_dns=settings.cluster_dns,
        no_cluster_dns=flags.no_cluster_dns,
        node_ips=host_ips,
        cpu_cfs_quota=settings.cpu_cfs_quota,
        cpu_cfs_period_us=round(settings.cpu_cfs_quota_period * 1_000_000),
        memory_capacity=facts.memory_bytes,
        swap_capacity=facts.swap_bytes,
        limited_swap=settings.memory_swap.swap_behavior == "LimitedSwap",
        single_process_oom_kill=bool(settings.single_process_oom_kill),
        cgroup_v2=kernel.cgroup_v2,
        swap_controller=kernel.swap_controller,
        selinux_enabled=bool(kernel.selinux_label),
        hugepage_sizes=kernel.hugepage_sizes,
        memory_qos=memory_qos(
            settings,
            cgroup_v2=kernel.cgroup_v2,
            allocatable=unreserved_memory(
                facts.memory_bytes, (settings.kube_reserved, settings.system_reserved)
            ),
        ),
        thermal_throttle_paths=kernel.thermal_throttle_paths,
        default_sysctls=settings.default_pod_sysctls if gates.enabled("DefaultPodSysctls") else {},
        resizes_memory_volumes=gates.enabled(MEMORY_VOLUMES),
        stop_signals=gates.enabled("ContainerStopSignals"),
    )
