"""Counts the images that containers have mounted as volumes. Must never decide anything."""

from __future__ import annotations

from kubeletpy.metrics.pods import PodStartMetrics
from kubeletpy.remote.generated import api_pb2 as cri

MOUNT_FAILED = "ImageVolumeMountFailed"
"""How a runtime's error begins that says so (CRI errors)."""


def count_image_volumes(
    metrics: PodStartMetrics, config: cri.ContainerConfig, problem: str = ""
) -> None:
    """A container was created with its mounts, or was not: why, in the runtime's words."""
    images = sum(bool(mount.image.image) for mount in config.mounts)
    metrics.image_volumes_requested.inc(images)
    if not problem:
        metrics.image_volumes_mounted.inc(images)
    elif problem.startswith(MOUNT_FAILED):
        metrics.image_volume_errors.inc(images)
