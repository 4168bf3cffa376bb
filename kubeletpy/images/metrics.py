"""What the image parts count, as an interface.

Must never import a metrics library: the agent's registry comes in from outside.
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
