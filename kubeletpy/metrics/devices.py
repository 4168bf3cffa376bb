"""Metrics of device plugins and of the pod resources API. Source: docs/reference/metrics.csv."""

from __future__ import annotations

from kubeletpy.metrics.families import SECONDS, Families

_METHODS = {"List": "list", "GetAllocatableResources": "get_allocatable", "Get": "get"}


class DeviceMetrics:
    """Device plugins. Resources are bounded by who registers them."""

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
    """Calls of the pod resources API, by its version."""

    def __init__(self, families: Families) -> None:
        prefix = "kubelet_pod_resources_endpoint"
        self.total = families.counter(
            f"{prefix}_requests_total", "Calls of the pod resources API.", "server_api_version"
        )
        self.requests = {
            method: families.plain_counter(
                f"{prefix}_requests_{name}",
                f"Calls of {method} of the pod resources API.",
                "server_api_version",
            )
            for method, name in _METHODS.items()
        }
        self.errors = {
            method: families.plain_counter(
                f"{prefix}_errors_{name}",
                f"Calls of {method} of the pod resources API that failed.",
                "server_api_version",
            )
            for method, name in _METHODS.items()
        }
