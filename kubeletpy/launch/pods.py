"""What the settings say about pods: sandboxes, containers, names, pulls, images, garbage."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from kubeletpy.allocation.feasibility import ResizeRules
from kubeletpy.cgroups.machine import KernelFacts
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.images.gc_selection import ImageGCPolicy
from kubeletpy.images.manager import PullSettings
from kubeletpy.node.facts import MachineFacts
from kubeletpy.parts import StaticPods
from kubeletpy.runtime_manager.config.dns import ResolvConfError, ResolverConfig, parse_resolv_conf
from kubeletpy.runtime_manager.config.resources import has_swap
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.plan.gc_selection import GCPolicy

log = logging.getLogger(__name__)


def runtime_settings(
    settings: KubeletSettings,
    flags: NodeFlags,
    facts: MachineFacts,
    node_ips: list[str],
    kernel: KernelFacts,
) -> RuntimeSettings:
    """What the settings say about sandboxes and containers."""
    return replace(
        RuntimeSettings(),
        pod_logs_dir=settings.pod_logs_dir,
        seccomp_root=str(Path(flags.root_dir) / "seccomp"),
        seccomp_default=settings.seccomp_default,
        cluster_domain=settings.cluster_domain,
        cluster_dns=settings.cluster_dns,
        node_ips=tuple(node_ips),
        cpu_cfs_quota=settings.cpu_cfs_quota,
        cpu_cfs_period_us=round(settings.cpu_cfs_quota_period * 1_000_000),
        memory_capacity=facts.memory_bytes,
        swap_capacity=facts.swap_bytes,
        limited_swap=settings.memory_swap.swap_behavior == "LimitedSwap",
        single_process_oom_kill=bool(settings.single_process_oom_kill),
        cgroup_v2=kernel.cgroup_v2,
        swap_controller=kernel.swap_controller,
        hugepage_sizes=kernel.hugepage_sizes,
        thermal_throttle_paths=kernel.thermal_throttle_paths,
        stop_signals=settings.feature_gates.enabled("ContainerStopSignals"),
    )


def resize_rules(settings: KubeletSettings, runtime: RuntimeSettings) -> ResizeRules:
    """Which resizes in place this node can do."""
    gates = settings.feature_gates
    return ResizeRules(
        in_place=gates.enabled("InPlacePodVerticalScaling"),
        pod_level=gates.enabled("InPlacePodLevelResourcesVerticalScaling"),
        cpu_manager_policy=settings.cpu_manager_policy,
        memory_manager_policy=settings.memory_manager_policy,
        exclusive_cpus=gates.enabled("InPlacePodVerticalScalingExclusiveCPUs"),
        exclusive_memory=gates.enabled("InPlacePodVerticalScalingExclusiveMemory"),
        may_swap=lambda pod, container: has_swap(pod, container, runtime),
    )


def host_dns(path: str) -> ResolverConfig | None:
    """The host's resolver configuration; None when the settings name no file."""
    if not path:
        return None
    try:
        return parse_resolv_conf(Path(path).read_text(errors="replace"))
    except (OSError, ResolvConfError) as error:
        log.warning("resolvConf can't be used", extra={"path": path, "why": str(error)})
        return ResolverConfig()


def pull_settings(settings: KubeletSettings) -> PullSettings:
    """How images are pulled."""
    return PullSettings(
        serialize=settings.serialize_image_pulls,
        max_parallel=settings.max_parallel_image_pulls,
        qps=settings.registry_pull_qps,
        burst=settings.registry_burst,
    )


def image_gc_policy(settings: KubeletSettings) -> ImageGCPolicy:
    """When unused images go."""
    return ImageGCPolicy(
        high_threshold_percent=settings.image_gc_high_threshold_percent,
        low_threshold_percent=settings.image_gc_low_threshold_percent,
        min_age=settings.image_minimum_gc_age,
        max_age=settings.image_maximum_gc_age,
    )


def container_gc_policy(flags: NodeFlags) -> GCPolicy:
    """Which dead containers are kept."""
    return GCPolicy(
        min_age=flags.minimum_container_ttl_duration,
        max_per_container=flags.maximum_dead_containers_per_container,
        max_total=flags.maximum_dead_containers,
    )


def static_pods(settings: KubeletSettings) -> StaticPods:
    """Where pods come from besides the API."""
    return StaticPods(
        path=settings.static_pod_path,
        url=settings.static_pod_url,
        url_headers=dict(settings.static_pod_url_header),
        file_check_s=settings.file_check_frequency,
        http_check_s=settings.http_check_frequency,
    )
