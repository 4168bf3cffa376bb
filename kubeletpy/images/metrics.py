"""What the image parts count, as an interface, and the kubelet's label values for it.

Must never import a metrics library: the agent's registry comes in from outside.
"""

from __future__ import annotations

from typing import Protocol

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


class ImageMetrics(Protocol):
    """Where the image parts count what they do."""

    def image_requested(
        self, pull_policy: str, present: bool | None, pull_required: bool | None
    ) -> None:
        """kubelet_image_manager_ensure_image_requests_total; None is "unknown"."""
        ...

    def image_pulled(self, seconds: float, size: int) -> None:
        """kubelet_image_pull_duration_seconds, queueing included; ``size`` in bytes, 0 unknown."""
        ...

    def image_garbage_collected(self, reason: str) -> None:
        """kubelet_image_garbage_collected_total; ``reason`` is age or space."""
        ...


def size_bucket(size: int) -> str:
    """Label ``image_size_in_bytes`` of a pulled image."""
    if size <= 0:
        return "N/A"
    for limit, label in _BUCKETS:
        if size <= limit:
            return label
    return "GT100GB"


def tristate(value: bool | None) -> str:
    """Label value of something that may be unknown."""
    return "unknown" if value is None else str(value).lower()
