"""Metrics of images: requests, pulls, garbage collection."""

from __future__ import annotations

from kubeletpy.metrics.families import Families

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
