"""Metrics of what pods are allocated: CPUs, memory, devices, claims, images.

Source: docs/reference/metrics.csv.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from kubeletpy.metrics.generated import declared

CONTAINER, POD = "container", "pod"
PHYSICAL_CPU, NUMA_NODE, UNCORE_CACHE = "physical_cpu", "numa_node", "uncore_cache"


class PlacementMetrics(declared.PlacementFamilies):
    """CPU, memory and topology managers (docs/reference/metrics.csv)."""


class DeviceMetrics(declared.DevicesFamilies):
    """Registrations and calls of device plugins; registration bounds the number of resources."""

    def show(self, all_devices: Mapping[str, int], healthy: Mapping[str, int]) -> None:
        """Set how many devices plugins have reported, by resource."""
        self.known.clear()
        for resource, count in all_devices.items():
            self.known.labels(resource, "healthy").set(healthy[resource])
            self.known.labels(resource, "unhealthy").set(count - healthy[resource])


class PodResourcesMetrics(declared.PodResourcesFamilies):
    """Calls of the pod resources API, by API version."""


ANY = "<any>"


class DraMetrics(declared.DraFamilies):
    """How long claims take, and how many are in use."""

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


MAX_PULLS = 32
"""Images whose pulls are shown."""


class ImageMetrics(declared.ImagesFamilies):
    """Pulls and removals of images."""

    def image_requested(
        self, pull_policy: str, present: bool | None, pull_required: bool | None
    ) -> None:
        """An image was requested; None means unknown."""
        labels = (pull_policy.lower(), tristate(present), tristate(pull_required))
        self.ensure_image_requests.labels(*labels).inc()

    def image_pulled(self, seconds: float, size: int) -> None:
        """An image of ``size`` bytes (0: unknown) was pulled."""
        self.pull_duration.labels(size_bucket(size)).observe(seconds)

    def show_pulls(self, pulls: Mapping[str, tuple[int, int]]) -> None:
        """Set the bytes that have arrived, and all of them, by image that is pulled now."""
        self.pull_bytes.clear()
        for image, (done, total) in islice(pulls.items(), MAX_PULLS):
            self.pull_bytes.labels(image, "done").set(done)
            self.pull_bytes.labels(image, "total").set(total)

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


class PullRecordMetrics(declared.PullRecordsFamilies):
    """Records of pulls, and the checks of access that they decide."""

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


class CredentialProviderMetrics(declared.CredentialProvidersFamilies):
    """Calls of credential provider plugins."""

    def provider_called(self, name: str, seconds: float, *, failed: bool) -> None:
        """A plugin was run; ``name`` is from the configuration."""
        self.duration.labels(name).observe(seconds)
        if failed:
            self.errors.labels(name).inc()

    def configured(self, config_hash: str) -> None:
        """The configuration was read."""
        self.config_info.labels(config_hash).set(1)
