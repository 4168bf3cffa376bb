"""Counts and names the images that containers mount as volumes. Must never decide anything."""

from __future__ import annotations

from kubeletpy.metrics.pods import PodStartMetrics
from kubeletpy.remote.generated import api_pb2 as cri

MOUNT_FAILED = "ImageVolumeMountFailed"
"""The prefix of a runtime's error about it (CRI errors)."""


def count_image_volumes(
    metrics: PodStartMetrics, config: cri.ContainerConfig, problem: str = ""
) -> None:
    """A container was created with its mounts, or not: then why, in the runtime's words."""
    images = sum(bool(mount.image.image) for mount in config.mounts)
    metrics.image_volumes_requested.inc(images)
    if not problem:
        metrics.image_volumes_mounted.inc(images)
    elif problem.startswith(MOUNT_FAILED):
        metrics.image_volume_errors.inc(images)


def with_image_volumes(config: cri.ContainerConfig, problem: str) -> str:
    """Why a container could not be created, with its image volumes if they may be the reason.

    A runtime without image volumes takes such a mount for a bind mount without a source; one
    with them states what went wrong (:data:`MOUNT_FAILED`).
    """
    paths = [mount.container_path for mount in config.mounts if mount.image.image]
    if not paths or problem.startswith(MOUNT_FAILED):
        return problem
    return (
        f"{problem} (the container mounts images as volumes, at {', '.join(paths)}: perhaps this "
        "container runtime has no image volumes)"
    )
