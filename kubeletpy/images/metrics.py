"""Metrics of the image components, as an interface. Pure.

Must never import a metrics library: the agent's registry is passed in.
"""

from __future__ import annotations

from typing import Protocol


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


class PullTimes(Protocol):
    """Observes how long pods wait for images."""

    def pull_began(self, uid: str, what: str) -> None:
        """A pull for a pod begins; ``what``: container and image."""
        ...

    def image_there(self, uid: str, what: str) -> None:
        """The pod has the image, pulled now or found on the node."""
        ...


class NoPullTimes:
    """Observes nothing."""

    def pull_began(self, uid: str, what: str) -> None:
        """Do nothing."""

    def image_there(self, uid: str, what: str) -> None:
        """Do nothing."""


class RecordMetrics(Protocol):
    """Where pull records are counted."""

    def access_checked(self, result: str) -> None:
        """kubelet_imagemanager_image_mustpull_checks_total."""
        ...

    def records_on_disk(self, intents: int, records: int) -> None:
        """kubelet_imagemanager_ondisk_pullintents and _pulledrecords."""
        ...

    def records_in_memory(self, intents: int, records: int) -> None:
        """kubelet_imagemanager_inmemory_*_usage_percent."""
        ...


class ProviderMetrics(Protocol):
    """Where calls of credential provider plugins are counted."""

    def provider_called(self, name: str, seconds: float, *, failed: bool) -> None:
        """kubelet_credential_provider_plugin_duration and _errors_total."""
        ...
