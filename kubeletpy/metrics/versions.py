"""Which metrics a Kubernetes version has, with which labels, stability and gates. Pure.

Source: docs/reference/metrics.csv. Its columns are feature_gate, since, until and earlier. All
other metrics are the same in every supported version.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from kubeletpy.base.kubernetes_version import KubernetesVersion, within

_OPEN = "-"
_SPANS = """
csi_node_storage_health_status 1.37 -
dra_node_prepare_skips_total 1.37 -
dra_node_unprepare_skips_total 1.37 -
kubelet_memory_qos_node_memory_low_bytes 1.36 -
kubelet_memory_qos_node_memory_min_bytes 1.36 -
kubelet_metrics_provider 1.36 -
kubelet_pleg_pod_relist_duration_seconds 1.36 -
kubelet_pod_deferred_resize_duration_seconds 1.37 -
kubelet_pod_level_resources_admission_total 1.37 -
kubelet_pod_requests_get_total 1.37 -
kubelet_pod_requests_list_total 1.37 -
kubelet_pod_requests_total 1.37 -
kubelet_pod_requests_watch_total 1.37 -
kubelet_pod_watch_events_dropped_total 1.36 -
kubelet_resource_manager_allocation_errors_total 1.37 -
kubelet_resource_manager_allocations_total 1.37 -
kubelet_resource_manager_container_assignments_total 1.37 -
kubelet_terminated_containers_total 1.36 -
kubelet_volume_stats_health_status_abnormal - 1.36
kubelet_websocket_streaming_requests_total 1.36 -
resource_manager_allocation_errors_total 1.36 1.36
resource_manager_allocations_total 1.36 1.36
resource_manager_container_assignments 1.36 1.36
"""
"""A line for each metric that not all of SUPPORTED have: its name, the first and the last version;
"-": the oldest, the newest."""

_STABILITY: Mapping[str, str] = MappingProxyType(
    {
        "kubelet_first_network_pod_start_sli_duration_seconds": "INTERNAL",
        "kubelet_image_volume_mounted_errors_total": "BETA",
        "kubelet_image_volume_mounted_succeed_total": "BETA",
        "kubelet_image_volume_requested_total": "BETA",
        "kubernetes_build_info": "BETA",
        "kubernetes_feature_enabled": "BETA",
        "kubernetes_healthcheck": "STABLE",
        "kubernetes_healthchecks_total": "STABLE",
        "prober_probe_total": "BETA",
        "storage_operation_duration_seconds": "BETA",
        "volume_operation_total_seconds": "BETA",
    }
)
"""Levels other than ALPHA, in the newest version."""

_EARLIER_STABILITY: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "kubernetes_build_info": ("1.35", "ALPHA"),
        "storage_operation_duration_seconds": ("1.36", "ALPHA"),
        "volume_operation_total_seconds": ("1.36", "ALPHA"),
    }
)
"""Metric -> the last version with another level, and that level."""

_EARLIER_LABELS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {"kubelet_pod_pending_resizes": ("1.36", ("priority_bucket",))}
)
"""Metric -> the last version without some of its labels, and these labels."""

_GATES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "csi_node_storage_health_": ("CSIVolumeHealth",),
        "kubelet_graceful_shutdown_": (
            "GracefulNodeShutdown",
            "GracefulNodeShutdownBasedOnPodPriority",
        ),
        "kubelet_image_volume_": ("ImageVolume",),
        "kubelet_memory_qos_": ("MemoryQoS",),
        "kubelet_pod_level_resources_": ("PodLevelResources",),
        "kubelet_podcertificate_": ("PodCertificateRequest",),
        "kubelet_resource_manager_": ("PodLevelResourceManagers",),
        "kubelet_started_user_namespaced_": ("UserNamespacesSupport",),
        "resource_manager_": ("PodLevelResourceManagers",),
    }
)
"""How names of metrics begin -> the gates that must all be on for a scrape to show them. Gates that
every supported version locks to on are left out."""


def gates_of(name: str) -> tuple[str, ...]:
    """The feature gates that must be on for a metric to be shown."""
    return next((gates for start, gates in _GATES.items() if name.startswith(start)), ())


def has_metric(name: str, version: KubernetesVersion) -> bool:
    """Whether a version has a metric of that name."""
    since, until = _spans().get(name, ("", ""))
    return within(version, since=since, until=until)


def name_in(version: KubernetesVersion, *names: str) -> str:
    """The first of a metric's names that a version has; the first of all if it has none."""
    return next((name for name in names if has_metric(name, version)), names[0])


def stability(name: str, version: KubernetesVersion) -> str:
    """ALPHA, BETA, STABLE or INTERNAL."""
    last, level = _EARLIER_STABILITY.get(name, ("", ""))
    if last and within(version, until=last):
        return level
    return _STABILITY.get(name, "ALPHA")


def missing_labels(name: str, version: KubernetesVersion) -> tuple[str, ...]:
    """Labels of the newest version that a metric does not have in this one."""
    last, labels = _EARLIER_LABELS.get(name, ("", ()))
    return labels if last and within(version, until=last) else ()


@cache
def _spans() -> Mapping[str, tuple[str, str]]:
    rows = (line.split() for line in _SPANS.split("\n") if line)
    return {name: (since.strip(_OPEN), until.strip(_OPEN)) for name, since, until in rows}
