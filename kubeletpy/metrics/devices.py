"""Metrics of device plugins and of the pod resources API. Source: docs/reference/metrics.csv."""

from __future__ import annotations

from prometheus_client import Counter

from kubeletpy.metrics.families import SECONDS, Families


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
        self.requests_list = _calls(families, "requests", "list")
        self.requests_get_allocatable = _calls(families, "requests", "get_allocatable")
        self.requests_get = _calls(families, "requests", "get")
        self.errors_list = _calls(families, "errors", "list")
        self.errors_get_allocatable = _calls(families, "errors", "get_allocatable")
        self.errors_get = _calls(families, "errors", "get")
        self.requests = {
            "List": self.requests_list,
            "GetAllocatableResources": self.requests_get_allocatable,
            "Get": self.requests_get,
        }
        self.errors = {
            "List": self.errors_list,
            "GetAllocatableResources": self.errors_get_allocatable,
            "Get": self.errors_get,
        }


def _calls(families: Families, what: str, method: str) -> Counter:
    help = f"{what.capitalize()} of {method} of the pod resources API."
    name = f"kubelet_pod_resources_endpoint_{what}_{method}"
    return families.counter(name, help, "server_api_version")
