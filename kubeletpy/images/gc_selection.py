"""Decides which images to remove so that the disk does not fill up. Pure.

Source: docs/reference/behaviour.md, p3; docs/reference/behaviour-resources.md, rg. Must never query
the runtime or a clock: times are Unix seconds and arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from kubeletpy.base.structs import Struct, replace
from kubeletpy.config.settings import KubeletSettings
from kubeletpy.images.records.model import full_name
from kubeletpy.images.reference import InvalidReference, with_default_tag
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.generated import api_pb2 as cri

LONGEST_CONFIG = 1 << 20
"""Longest runtime configuration parsed, in characters."""


class ImageGCPolicy(Struct, frozen=True):
    """KubeletConfiguration's fields about image garbage collection; ages in seconds."""

    high_threshold_percent: int = 85
    low_threshold_percent: int = 80
    min_age: float = 120
    max_age: float = 0
    """0: images do not age."""

    @classmethod
    def from_settings(cls, settings: KubeletSettings) -> ImageGCPolicy:
        """The policy of the settings."""
        return cls(
            high_threshold_percent=settings.image_gc_high_threshold_percent,
            low_threshold_percent=settings.image_gc_low_threshold_percent,
            min_age=settings.image_minimum_gc_age,
            max_age=settings.image_maximum_gc_age,
        )

    @property
    def off(self) -> bool:
        """Whether nothing is ever removed."""
        return self.high_threshold_percent >= 100 and self.max_age <= 0


class ImageRecord(Struct, frozen=True):
    """The record of an image on the node; times are Unix seconds."""

    id: str
    size: int
    pinned: bool
    first_detected: float
    last_used: float = 0.0
    """0: never seen in use."""
    names: frozenset[str] = frozenset()
    """All names by which containers and pods may refer to it."""


def moved(image: ImageRecord, seconds: float) -> ImageRecord:
    """A record with all of its times later by ``seconds``."""
    used = image.last_used and image.last_used + seconds
    return replace(image, first_detected=image.first_detected + seconds, last_used=used)


class Disk(Struct, frozen=True):
    """The filesystem that holds images, in bytes."""

    capacity: int
    available: int

    @property
    def used_percent(self) -> int:
        """Whole percent in use, rounded up."""
        return 100 - int(min(self.available, self.capacity) * 100 // self.capacity)


def refresh(
    records: Mapping[str, ImageRecord],
    images: Iterable[ImageRecord],
    in_use: frozenset[str],
    now: float,
) -> dict[str, ImageRecord]:
    """Update the records to what the runtime lists: new, used and removed images."""
    fresh: dict[str, ImageRecord] = {}
    for image in images:
        before = records.get(image.id, image)
        last_used = now if image.id in in_use else before.last_used
        fresh[image.id] = replace(image, first_detected=before.first_detected, last_used=last_used)
    return fresh


def eviction_order(records: Mapping[str, ImageRecord], in_use: frozenset[str]) -> list[ImageRecord]:
    """The images that may be removed: least recently used first, then earliest detected."""
    return sorted(
        (r for r in records.values() if r.id not in in_use and not r.pinned),
        key=lambda r: (r.last_used, r.first_detected),
    )


def too_old(
    candidates: Sequence[ImageRecord], policy: ImageGCPolicy, now: float
) -> list[ImageRecord]:
    """Images unused for longer than the maximum age.

    One that was never seen in use ages from its detection.
    """
    if policy.max_age <= 0:
        return []
    return [i for i in candidates if now - max(i.last_used, i.first_detected) > policy.max_age]


def bytes_to_free(disk: Disk, policy: ImageGCPolicy) -> int:
    """How much to free to get from above the high threshold to the low one; 0: nothing."""
    if disk.used_percent < policy.high_threshold_percent:
        return 0
    desired = disk.capacity * (100 - policy.low_threshold_percent) // 100
    return max(0, desired - min(disk.available, disk.capacity))


def may_free_space(image: ImageRecord, policy: ImageGCPolicy, now: float) -> bool:
    """Whether an unused image is old enough: a young one may have just been pulled for a pod."""
    return image.last_used < now and now - image.first_detected >= policy.min_age


def used_image_ids(
    containers: Iterable[cri.Container], images: Iterable[cri.Image], named: Iterable[str] = ()
) -> frozenset[str]:
    """Ids of the images in use, referenced by id, digest or tag: runtimes differ.

    Args:
        containers: running or not.
        images: all.
        named: further references, as users wrote them: of pods, and of the sandbox image.
    """
    names = {
        name
        for container in containers
        for name in (container.image_id, container.image_ref, container.image.image)
        if name
    }
    names |= referenced_names(named)
    return frozenset(image.id for image in images if not names.isdisjoint(image_names(image)))


def image_names(image: cri.Image) -> frozenset[str]:
    """The names by which containers and pods may refer to an image."""
    listed = (*image.repo_digests, *image.repo_tags)
    return frozenset((image.id, *listed, *map(full_name, listed)))


def referenced_names(references: Iterable[str]) -> set[str]:
    """How a runtime may list the images that users refer to this way."""
    return set[str]().union(*map(_full_names, references))


def sandbox_images(info: Mapping[str, str]) -> set[str]:
    """The image of pod sandboxes, from a runtime's verbose status.

    containerd 1.6 does not report it as pinned. Must never raise for the runtime's answer.
    """
    text = info.get("config", "")
    if len(text) > LONGEST_CONFIG:
        return set()
    try:
        found = json.loads(text).get("sandboxImage")
    except (ValueError, AttributeError, RecursionError):
        return set()
    return {found} if isinstance(found, str) and found else set()


def pod_images(pods: Iterable[Pod], active: Iterable[Pod]) -> set[str]:
    """References of the images that pods use without a container that the runtime lists.

    Images mounted as volumes of all pods, and images of all containers of the active ones: a later
    container may not have been created yet.
    """
    mounted = {
        volume["image"].get("reference") or ""
        for pod in pods
        for volume in pod.spec.get("volumes") or ()
        if volume.get("image")
    }
    run = {each.get("image") or "" for pod in active for _, each in pod.all_containers()}
    return (mounted | run) - {""}


@lru_cache(2048)
def _full_names(reference: str) -> frozenset[str]:
    try:
        return frozenset((reference, full_name(reference), with_default_tag(reference)))
    except InvalidReference:
        return frozenset((reference,))
