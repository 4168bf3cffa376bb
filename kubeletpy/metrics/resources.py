"""Metrics of what pods are allocated: CPUs, memory, devices, claims, images.

Source: docs/reference/metrics.csv.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeletpy.metrics.families import SECONDS, Families

DURATION_MS = tuple(0.05 * 2**power for power in range(15))
CONTAINER, POD = "container", "pod"
PHYSICAL_CPU, NUMA_NODE, UNCORE_CACHE = "physical_cpu", "numa_node", "uncore_cache"


class PlacementMetrics:
    """CPU, memory and topology managers (docs/reference/metrics.csv)."""

    def __init__(self, families: Families) -> None:
        self.cpu_requests = families.counter(
            "kubelet_cpu_manager_pinning_requests_total",
            "Containers that requested exclusive CPUs.",
        )
        self.cpu_errors = families.counter(
            "kubelet_cpu_manager_pinning_errors_total",
            "Containers that requested exclusive CPUs and got none.",
        )
        self.shared_pool = families.gauge(
            "kubelet_cpu_manager_shared_pool_size_millicores",
            "CPUs that could still become a container's own.",
        )
        self.exclusive_cpus = families.gauge(
            "kubelet_cpu_manager_exclusive_cpu_allocation_count",
            "CPUs that are a container's own.",
        )
        self.exclusive_per_node = families.gauge(
            "kubelet_cpu_manager_allocation_per_numa",
            "CPUs that are a container's own, by NUMA node.",
            "numa_node",
        )
        self.aligned = families.counter(
            "kubelet_container_aligned_compute_resources_count",
            "Allocations that keep to whole units of the machine, where that is promised.",
            "scope",
            "boundary",
        )
        self.not_aligned = families.counter(
            "kubelet_container_aligned_compute_resources_failure_count",
            "Allocations refused because they could not keep to whole units of the machine.",
            "scope",
            "boundary",
        )
        self.memory_requests = families.counter(
            "kubelet_memory_manager_pinning_requests_total",
            "Containers that requested memory of certain NUMA nodes.",
        )
        self.memory_errors = families.counter(
            "kubelet_memory_manager_pinning_errors_total",
            "Containers that requested memory of certain NUMA nodes and got none.",
        )
        self.topology_requests = families.counter(
            "kubelet_topology_manager_admission_requests_total",
            "Pods for which a NUMA assignment was requested.",
        )
        self.topology_errors = families.counter(
            "kubelet_topology_manager_admission_errors_total",
            "Pods refused because their resources lie too far apart.",
        )
        self.topology_duration = families.histogram(
            "kubelet_topology_manager_admission_duration_ms",
            "Time in ms to find a pod's place on the machine.",
            buckets=DURATION_MS,
        )
        self.allocations = families.counter(
            families.newest_name(
                "kubelet_resource_manager_allocations_total", "resource_manager_allocations_total"
            ),
            "Allocations by who gave them and what for.",
            "resource_name",
            "source",
        )
        self.allocation_errors = families.counter(
            families.newest_name(
                "kubelet_resource_manager_allocation_errors_total",
                "resource_manager_allocation_errors_total",
            ),
            "Allocations that failed.",
            "resource_name",
            "source",
        )
        self.assignments = families.counter(
            families.newest_name(
                "kubelet_resource_manager_container_assignments_total",
                "resource_manager_container_assignments",
            ),
            "Containers by how they were given what is theirs.",
            "resource_name",
            "assignment_type",
        )


_METHODS = {"List": "list", "GetAllocatableResources": "get_allocatable", "Get": "get"}
"""Method of the pod resources API -> how names of its metrics end."""


class DeviceMetrics:
    """Registrations and calls of device plugins; registration bounds the number of resources."""

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


CALL_SECONDS = tuple(round(0.1 * 400 ** (index / 14), 6) for index in range(15))
"""15 buckets from 0.1 s to 40 s, in a geometric series."""
ANY = "<any>"


class DraMetrics:
    """How long claims take, and how many are in use."""

    def __init__(self, families: Families) -> None:
        self.operations = families.histogram(
            "dra_operations_duration_seconds",
            "Time that preparing or giving back the claims of a pod took.",
            "operation_name",
            "is_error",
            buckets=CALL_SECONDS,
        )
        self.calls = families.histogram(
            "dra_grpc_operations_duration_seconds",
            "Time that a call to a DRA driver took.",
            "driver_name",
            "method_name",
            "grpc_status_code",
            buckets=CALL_SECONDS,
        )
        self.in_use = families.gauge(
            "dra_resource_claims_in_use",
            "Claims that pods of this node use, by driver.",
            "driver_name",
        )

        self.prepare_skips = families.counter(
            "dra_node_prepare_skips_total",
            "NodePrepareResources calls that allocations exempt a driver from.",
            "driver_name",
        )
        self.unprepare_skips = families.counter(
            "dra_node_unprepare_skips_total",
            "NodeUnprepareResources calls that allocations exempt a driver from.",
            "driver_name",
        )

    def skipped_prepare(self, drivers: Iterable[str]) -> None:
        """These drivers were not called, each for one claim."""
        for driver in drivers:
            self.prepare_skips.labels(driver).inc()

    def skipped_unprepare(self, drivers: Iterable[str]) -> None:
        """These drivers were not called, each for one claim."""
        for driver in drivers:
            self.unprepare_skips.labels(driver).inc()

    def called(self, driver: str, method: str, code: str, seconds: float) -> None:
        """A call ended; ``method`` is its full name, ``code`` the gRPC name of its status."""
        self.calls.labels(driver, method, code).observe(seconds)

    def operated(self, operation: str, seconds: float, *, failed: bool) -> None:
        """``PrepareResources`` or ``UnprepareResources`` of a pod ended."""
        self.operations.labels(operation, str(failed).lower()).observe(seconds)

    def show(self, claims: Mapping[str, int], total: int) -> None:
        """Set how many claims are in use, by driver and in total."""
        self.in_use.clear()
        for driver, count in {ANY: total, **claims}.items():
            self.in_use.labels(driver).set(count)


PULL_SECONDS = (
    *(1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600),
)

_MEGABYTE = 1024 * 1024
_GIGABYTE = 1024 * _MEGABYTE
_BUCKETS = (
    (10 * _MEGABYTE, "0-10MB"),
    (100 * _MEGABYTE, "10MB-100MB"),
    (500 * _MEGABYTE, "100MB-500MB"),
    (_GIGABYTE, "500MB-1GB"),
    (5 * _GIGABYTE, "1GB-5GB"),
    (10 * _GIGABYTE, "5GB-10GB"),
    (20 * _GIGABYTE, "10GB-20GB"),
    (30 * _GIGABYTE, "20GB-30GB"),
    (40 * _GIGABYTE, "30GB-40GB"),
    (60 * _GIGABYTE, "40GB-60GB"),
    (100 * _GIGABYTE, "60GB-100GB"),
)


class ImageMetrics:
    """images.metrics.ImageMetrics on the registry."""

    def __init__(self, families: Families) -> None:
        self.pull_duration = families.histogram(
            "kubelet_image_pull_duration_seconds",
            "Time that successful pulls took, waiting in the queue included, by image size.",
            "image_size_in_bytes",
            buckets=PULL_SECONDS,
        )
        self.garbage_collected = families.counter(
            "kubelet_image_garbage_collected_total",
            "Images removed, because of their age or for space.",
            "reason",
        )
        self.ensure_image_requests = families.counter(
            "kubelet_image_manager_ensure_image_requests_total",
            "Requests to have an image on the node.",
            "pull_policy",
            "present_locally",
            "pull_required",
        )

    def image_requested(
        self, pull_policy: str, present: bool | None, pull_required: bool | None
    ) -> None:
        """An image was requested; None means unknown."""
        labels = (pull_policy.lower(), tristate(present), tristate(pull_required))
        self.ensure_image_requests.labels(*labels).inc()

    def image_pulled(self, seconds: float, size: int) -> None:
        """An image of ``size`` bytes (0: unknown) was pulled."""
        self.pull_duration.labels(size_bucket(size)).observe(seconds)

    def image_garbage_collected(self, reason: str) -> None:
        """An image was removed; ``reason`` is age or space."""
        self.garbage_collected.labels(reason).inc()


def size_bucket(size: int) -> str:
    """The label ``image_size_in_bytes`` of a pulled image."""
    if size <= 0:
        return "N/A"
    return next((label for limit, label in _BUCKETS if size <= limit), "GT100GB")


def tristate(value: bool | None) -> str:
    """The label value of something that may be unknown."""
    return "unknown" if value is None else str(value).lower()


class PullRecordMetrics:
    """images.metrics.RecordMetrics on the registry."""

    def __init__(self, families: Families) -> None:
        self.checks = families.counter(
            "kubelet_imagemanager_image_mustpull_checks_total",
            "Checks whether a pod may use an image on the node without a pull, by result.",
            "result",
        )
        self.disk_intents = families.gauge(
            "kubelet_imagemanager_ondisk_pullintents", "ImagePullIntent files on disk."
        )
        self.disk_records = families.gauge(
            "kubelet_imagemanager_ondisk_pulledrecords", "ImagePulledRecord files on disk."
        )
        self.memory_intents = families.gauge(
            "kubelet_imagemanager_inmemory_pullintents_usage_percent",
            "How full the memory for ImagePullIntents is, in percent.",
        )
        self.memory_records = families.gauge(
            "kubelet_imagemanager_inmemory_pulledrecords_usage_percent",
            "How full the memory for ImagePulledRecords is, in percent.",
        )

    def access_checked(self, result: str) -> None:
        """A pod's access to an image on the node was checked."""
        self.checks.labels(result).inc()

    def records_on_disk(self, intents: int, records: int) -> None:
        """Set the number of files of each kind."""
        self.disk_intents.set(intents)
        self.disk_records.set(records)

    def records_in_memory(self, intents: int, records: int) -> None:
        """Set how full the memory for them is, in percent."""
        self.memory_intents.set(intents)
        self.memory_records.set(records)


class CredentialProviderMetrics:
    """images.metrics.ProviderMetrics on the registry."""

    def __init__(self, families: Families) -> None:
        self.errors = families.counter(
            "kubelet_credential_provider_plugin_errors_total",
            "Calls of credential provider plugins that failed.",
            "plugin_name",
        )
        self.duration = families.histogram(
            "kubelet_credential_provider_plugin_duration",
            "Seconds that calls of credential provider plugins took.",
            "plugin_name",
            buckets=SECONDS,
        )
        self.config_info = families.gauge(
            "kubelet_credential_provider_config_info",
            "1 for the hash of the credential provider configuration in use.",
            "hash",
        )

    def provider_called(self, name: str, seconds: float, *, failed: bool) -> None:
        """A plugin was run; ``name`` is from the configuration."""
        self.duration.labels(name).observe(seconds)
        if failed:
            self.errors.labels(name).inc()

    def configured(self, config_hash: str) -> None:
        """The configuration was read."""
        self.config_info.labels(config_hash).set(1)
