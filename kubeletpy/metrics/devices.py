"""Metrics of device plugins and of the pod resources API. Source: docs/reference/metrics.csv."""

from __future__ import annotations

from kubeletpy.metrics.families import SECONDS, Families

_METHODS = {"List": "list", "GetAllocatableResources": "get_allocatable", "Get": "get"}
"""Method of the pod resources API -> how names of its metrics end."""


class DeviceMetrics:
    """Device plugins. The number of resources is bounded by registration."""

    def __init__(self, families: Families) -> None:
        self.registrations = families.counter(
            "kubelet_device_plugin_registration_total",
            "Registrations of device plugins.",
            "resource_name",
        )
        self.allocations = families.histogram(
            "kubelet_device_plugin_alloc_duration_seconds",
            "Time that a device plugin took to allocate devices.",
            "resource_name",
            buckets=SECONDS,
        )


class PodResourcesMetrics:
    """Calls of the pod resources API, by API version."""

    def __init__(self, families: Families) -> None:
        prefix = "kubelet_pod_resources_endpoint"
        self.total = families.counter(
            f"{prefix}_requests_total", "Calls of the pod resources API.", "server_api_version"
        )
        self.requests, self.errors = (
            {
                call: families.counter(
                    f"{prefix}_{what}_{method}",
                    f"{what.capitalize()} of {method} of the pod resources API.",
                    "server_api_version",
                )
                for call, method in _METHODS.items()
            }
            for what in ("requests", "errors")
        )
