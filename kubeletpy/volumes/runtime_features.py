"""What the container runtime can mount, by its name and version and by what it says."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kubeletpy.volumes.container_mounts import RuntimeFeatures

_IMAGE_VOLUMES_SINCE = {"containerd": (2, 1), "cri-o": (1, 31)}
_IMAGE_SUB_PATHS_SINCE = {"containerd": (2, 2), "cri-o": (1, 33)}


def has_image_volumes(runtime: str, version: str) -> bool:
    """Whether a runtime mounts images; one that is not known is asked to."""
    return _is_since(_IMAGE_VOLUMES_SINCE.get(runtime), version)


def has_image_sub_paths(runtime: str, version: str) -> bool:
    """Whether a runtime mounts parts of images; one that is not known is asked to."""
    return _is_since(_IMAGE_SUB_PATHS_SINCE.get(runtime), version)


def _is_since(since: tuple[int, int] | None, version: str) -> bool:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if since is None or found is None:
        return True
    return (int(found[1]), int(found[2])) >= since


def mount_features(runtime: str, version: str, recursive: Iterable[str]) -> RuntimeFeatures:
    """``recursive``: handlers that can mount read-only down to the mounts below."""
    return RuntimeFeatures(
        has_image_volumes(runtime, version),
        has_image_sub_paths(runtime, version),
        frozenset(recursive),
    )
