"""Which images to remove so that the disk does not fill: the decision. Pure.

Source: docs/reference/behaviour.md, p3; docs/reference/behaviour-resources.md, rg. Must never ask
the runtime or a clock: times are Unix seconds and arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kubeletpy.config.settings import KubeletSettings
from kubeletpy.remote.generated import api_pb2 as cri


@dataclass(frozen=True, slots=True)
class ImageGCPolicy:
    """KubeletConfiguration's fields about image garbage collection; ages in seconds."""

    high_threshold_percent: int = 85
    low_threshold_percent: int = 80
    min_age: float = 120
    max_age: float = 0
    """0: images do not age."""

    @classmethod
    def from_settings(cls, settings: KubeletSettings) -> ImageGCPolicy:
        """What the settings say."""
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


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """What is remembered of an image on the node; times are Unix seconds."""

    id: str
    size: int
    pinned: bool
    first_detected: float
    last_used: float = 0.0
    """0: not seen in use since the agent started."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The filesystem that holds images, in bytes."""

    capacity: int
    available: int

    @property
    def used_percent(self) -> int:
        """Full percents in use, rounded up."""
        return 100 - int(min(self.available, self.capacity) * 100 // self.capacity)


def refresh(
    records: Mapping[str, ImageRecord],
    images: Iterable[ImageRecord],
    in_use: frozenset[str],
    now: float,
) -> dict[str, ImageRecord]:
    """Bring the records up to what the runtime lists: new, used now, and gone ones."""
    fresh: dict[str, ImageRecord] = {}
    for image in images:
        known = records.get(image.id)
        fresh[image.id] = replace(
            image,
            first_detected=known.first_detected if known else image.first_detected,
            last_used=now if image.id in in_use else (known.last_used if known else 0.0),
        )
    return fresh


def eviction_order(records: Mapping[str, ImageRecord], in_use: frozenset[str]) -> list[ImageRecord]:
    """What may be removed, longest unused first, then first detected."""
    return sorted(
        (r for r in records.values() if r.id not in in_use and not r.pinned),
        key=lambda r: (r.last_used, r.first_detected),
    )


def too_old(
    candidates: Sequence[ImageRecord], policy: ImageGCPolicy, now: float, started_at: float
) -> list[ImageRecord]:
    """Images unused for longer than the maximum age.

    Nothing before the agent itself is that old: it cannot know what was used before it.
    """
    if policy.max_age <= 0 or now - started_at <= policy.max_age:
        return []
    return [image for image in candidates if now - image.last_used > policy.max_age]


def bytes_to_free(disk: Disk, policy: ImageGCPolicy) -> int:
    """How much must go to come from above the high threshold to the low one; 0: nothing."""
    if disk.used_percent < policy.high_threshold_percent:
        return 0
    wanted = disk.capacity * (100 - policy.low_threshold_percent) // 100
    return max(0, wanted - min(disk.available, disk.capacity))


def may_free_space(image: ImageRecord, policy: ImageGCPolicy, now: float) -> bool:
    """Whether an unused image is old enough: a young one was perhaps just pulled for a pod."""
    return image.last_used < now and now - image.first_detected >= policy.min_age


def used_image_ids(
    containers: Iterable[cri.Container], images: Iterable[cri.Image]
) -> frozenset[str]:
    """Ids of images that containers name, by id, digest or tag: runtimes differ in which."""
    names = {
        name
        for container in containers
        for name in (container.image_id, container.image_ref, container.image.image)
        if name
    }
    return frozenset(
        image.id
        for image in images
        if image.id in names
        or any(n in names for n in image.repo_digests)
        or any(n in names for n in image.repo_tags)
    )
