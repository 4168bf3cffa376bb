"""Removes unused images before the disk fills, and keeps the ages of images across restarts.

Carries out what :mod:`gc_selection` selects, and must never remove anything else. Source:
docs/reference/behaviour.md, p3; docs/reference/behaviour-resources.md, rg.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from kubeletpy.base.clock import Clock, SteadyClock
from kubeletpy.base.host.files import write_private
from kubeletpy.base.host.state_file import read_state
from kubeletpy.base.structs import Component, field
from kubeletpy.images import gc_selection
from kubeletpy.images.uses import ImageUses
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, node_reference
from kubeletpy.metrics.resources import ImageMetrics
from kubeletpy.metrics.trace.model import NO_TRACER, Tracer
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService, RuntimeService

logger = logging.getLogger(__name__)

AGE = "age"
SPACE = "space"
MOST_PULLED = 1000
"""Images pulled since the last pass; beyond this, an image's age begins with the next pass."""
AGES_FILE = "image_ages.json"
MOST_IMAGES = 10_000
"""Images kept; if there are more, the most recently used ones."""
MOST_BYTES = 4 << 20
"""Longest file read: room for that many images, and some more."""
LONGEST_ID = 200

Ages = Mapping[str, tuple[float, float]]
"""Image id -> (first detected, last used or 0), Unix seconds."""


class ImageGCError(Exception):
    """Garbage collection failed; the text is suitable for an event."""


class ImageGarbageCollector(Component):
    """Carries out the selection every imageGC period, and remembers when images were used."""

    images: ImageService
    runtime: RuntimeService
    recorder: EventRecorder
    clock: Clock
    metrics: ImageMetrics
    node_name: str
    policy: gc_selection.ImageGCPolicy = field(default_factory=gc_selection.ImageGCPolicy)
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs
    on_remaining: Callable[[Collection[str], float], Awaitable[None]] | None = None
    """(ids, began): called after a collection with the remaining images, and the Unix time before
    which they were listed."""
    ages: ImageAges | None = None
    """Kept across restarts; None if all images are new to each agent."""
    named: Callable[[], Iterable[str]] = tuple
    """References of the images that pods use, whether or not they have a container."""
    uses: ImageUses = field(default_factory=ImageUses)
    """The images that starts hold."""
    tracer: Tracer = NO_TRACER

    def __post_init__(self) -> None:
        self._age_clock = SteadyClock(self.clock)
        self._node = node_reference(self.node_name)
        self._records: dict[str, gc_selection.ImageRecord] = {}
        self._known: Ages | None = None if self.ages is not None else {}
        """Ages recorded by a previous agent; None: not read yet."""
        self._pulled: dict[str, float] = {}
        """Arrival times of images not listed yet, by id."""
        self._failed_last_time = False
        self._one_by_one = asyncio.Lock()

    async def run(self) -> None:
        """One round, called by the agent's timer. Never raises for what the runtime does.

        A second failure in a row becomes an event ImageGCFailed. With nothing to remove it only
        records, so that it is known what has long been unused once the disk fills up.
        """
        if self.policy.off:
            await self.record_images()
            return
        try:
            await self.collect()
        except (CRIError, ImageGCError) as error:
            logger.warning("image garbage collection failed", extra={"error": str(error)})
            if self._failed_last_time:
                self.recorder.event(self._node, WARNING, Reason.IMAGE_GC_FAILED, str(error))
            self._failed_last_time = True
        else:
            self._failed_last_time = False

    async def record_images(self) -> None:
        """Record which images exist; removes none. Never raises for what the runtime does."""
        try:
            async with self._one_by_one:
                await self.detect()
                await self._save()
        except CRIError as error:
            logger.debug("images not listed", extra={"error": str(error)})

    def pulled(self, image_id: str) -> None:
        """An image has just arrived on the node: its age begins. Never blocks."""
        if len(self._pulled) < MOST_PULLED:
            self._pulled.setdefault(image_id, self._age_clock.now())

    async def detect(self) -> frozenset[str]:
        """Record which images exist and which are used; returns the ids of the used ones.

        Raises:
            CRIError: the runtime could not list.
        """
        now = self._age_clock.now()
        if self._known is None and self.ages is not None:
            self._known = await asyncio.to_thread(self.ages.load, now)
        self.uses.begin_round()
        arrived = frozenset(self._pulled)
        status = await self.runtime.status(verbose=True)
        named = gc_selection.sandbox_images(status.info).union(self.named())
        del status
        listed = await self.images.list_images()
        containers = await self.runtime.list_containers()
        in_use = gc_selection.used_image_ids(containers, listed, named)
        records = [self._record(image, now) for image in listed if image.id]
        self._records = gc_selection.refresh(self._records, records, in_use, now)
        self._known = {}
        listed_ids = arrived.union(self._records)
        self._pulled = {id: at for id, at in self._pulled.items() if id not in listed_ids}
        return in_use

    def _record(self, image: cri.Image, now: float) -> gc_selection.ImageRecord:
        first, used = (self._known or {}).get(image.id, (now, 0.0))
        first = min(first, self._pulled.get(image.id, now))
        return gc_selection.ImageRecord(
            image.id, image.size, image.pinned, first, used, gc_selection.image_names(image)
        )

    async def _save(self) -> None:
        if self.ages is not None:
            ahead = self._age_clock.offset()  # the next agent counts from the wall clock
            records = tuple(gc_selection.moved(each, ahead) for each in self._records.values())
            await asyncio.to_thread(self.ages.save, records)

    async def collect(self) -> int:
        """Remove what is too old, and more if the disk is too full; the bytes freed for space.

        Raises:
            CRIError: the runtime could not be queried.
            ImageGCError: images could not be removed, or too little could be freed.
        """
        with self.tracer.span("Images/GarbageCollect", {}):
            async with self._one_by_one:
                return await self._run_pass(self._collect)

    async def remove_unused(self) -> int:
        """Remove all unused images except young ones; returns the bytes freed.

        For a disk that is about to be full. Source: docs/reference/behaviour-resources.md, rg.

        Raises:
            CRIError: the runtime could not be queried.
            ImageGCError: images could not be removed.
        """
        async with self._one_by_one:
            return await self._run_pass(self._remove_unused)

    async def _run_pass(self, remove: Callable[[frozenset[str]], Awaitable[int]]) -> int:
        """Detect images, have unused ones removed, then keep their ages and report what is left."""
        began = self.clock.now()
        in_use = await self.detect()
        try:
            return await remove(in_use)
        finally:
            await self._save()
            if self.on_remaining is not None:
                await self.on_remaining(frozenset(self._records), began)

    async def _remove_unused(self, in_use: frozenset[str]) -> int:
        now = self._age_clock.now()
        unused = [
            image
            for image in gc_selection.eviction_order(self._records, in_use)
            if gc_selection.may_free_space(image, self.policy, now)
        ]
        return await self._free(unused, sum(image.size for image in unused) + 1)

    async def _collect(self, in_use: frozenset[str]) -> int:
        now = self._age_clock.now()
        candidates = gc_selection.eviction_order(self._records, in_use)
        aged = gc_selection.too_old(candidates, self.policy, now)
        _, failures = await self._remove(aged, AGE)
        if failures:
            raise ImageGCError(
                f"wanted to free images older than {self.policy.max_age:g}s, encountered "
                f"errors in image deletion: {failures}"
            )
        disk = await self._disk()
        desired = gc_selection.bytes_to_free(disk, self.policy)
        if not desired:
            return 0
        removed = {image.id for image in aged}
        rest = [
            image
            for image in candidates
            if image.id not in removed and gc_selection.may_free_space(image, self.policy, now)
        ]
        freed = await self._free(rest, desired)
        if freed < desired:
            message = (
                f"Insufficient free disk space on the node's image filesystem "
                f"({disk.used_percent}% of {_binary_size(disk.capacity)} used). Failed to free "
                f"sufficient space by deleting unused images (freed {freed} bytes). Investigate "
                "disk usage, as it could be used by active images, logs, volumes, or other data."
            )
            self.recorder.event(self._node, WARNING, Reason.FREE_DISK_SPACE_FAILED, message)
            raise ImageGCError(message)
        return freed

    async def _free(self, images: Sequence[gc_selection.ImageRecord], desired: int) -> int:
        freed, failures = await self._remove(images, SPACE, desired)
        if failures:
            raise ImageGCError(
                f"wanted to free {desired} bytes, but freed {freed} "
                f"bytes space with errors in image deletion: {failures}"
            )
        return freed

    async def _remove(
        self, images: Sequence[gc_selection.ImageRecord], reason: str, enough: float = math.inf
    ) -> tuple[int, str]:
        """Remove images until ``enough`` bytes are freed; the bytes freed, and what failed.

        Those that a pod or a start has begun to use since they were listed are kept.
        """
        freed = 0
        failures: list[str] = []
        for image in images:
            if freed >= enough:
                break
            if self._used_meanwhile(image):
                continue
            try:
                with self.uses.removing(image.id):
                    await self.images.remove_image(cri.ImageSpec(image=image.id))
            except CRIError as error:
                failures.append(str(error))
                continue
            freed += image.size
            self._records.pop(image.id, None)
            self.metrics.image_garbage_collected(reason)
            logger.info("unused image removed", extra={"image_id": image.id, "reason": reason})
        return freed, "; ".join(failures)

    def _used_meanwhile(self, image: gc_selection.ImageRecord) -> bool:
        return self.uses.used(image.id) or not image.names.isdisjoint(
            gc_selection.referenced_names(self.named())
        )

    async def _disk(self) -> gc_selection.Disk:
        info = await self.images.image_fs_info()
        mountpoints = [
            usage.fs_id.mountpoint for usage in info.image_filesystems if usage.fs_id.mountpoint
        ]
        if not mountpoints:
            raise ImageGCError("the runtime names no image filesystem")
        try:
            stat = await asyncio.to_thread(self.statvfs, mountpoints[0])
        except OSError as error:
            raise ImageGCError(f"image filesystem {mountpoints[0]}: {error}") from error
        disk = gc_selection.Disk(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)
        if disk.capacity <= 0:
            message = "invalid capacity 0 on image filesystem"
            self.recorder.event(self._node, WARNING, Reason.INVALID_DISK_CAPACITY, message)
            raise ImageGCError(message)
        return disk


def _binary_size(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            return f"{amount:.1f} {unit}" if unit != "B" else f"{size} B"
        amount /= 1024
    raise AssertionError("unreachable")


class ImageAges(Component):
    """Keeps in a file when images were first detected and last used. Blocking: call it in a thread.

    The file is ``{"images": {id: [first detected, last used]}}`` in Unix seconds, replaced
    atomically. The kubelet forgets this at each restart and then treats every image as new
    (docs/reference/behaviour-resources.md, rg). Must never raise for the file's content: without
    it all images are new, which removes too little and never too much.
    """

    root: Path
    """The agent's root directory."""

    def __post_init__(self) -> None:
        self._path = self.root / AGES_FILE

    def load(self, now: float) -> Ages:
        """Return the known ages; empty if unreadable. No time is later than ``now``."""
        try:
            return read_ages(read_state(self._path, MOST_BYTES), now)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            logger.warning(
                "ages of images not read: all count as new",
                extra={"path": str(self._path), "why": str(error)},
            )
            return {}

    def save(self, records: Iterable[gc_selection.ImageRecord]) -> None:
        """Replace the known ages."""
        try:
            write_private(self._path, ages_text(records))
        except OSError as error:
            logger.warning("ages of images not kept", extra={"why": str(error)})


def read_ages(data: bytes, now: float) -> Ages:
    """Parse a file, omitting nonsensical entries. Raises ValueError: it is not such a file.

    A future time, left by a clock that was set back, is treated as ``now``.
    """
    try:
        document = json.loads(data)
        entries = list(document["images"].items())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"it contains no ages: {type(error).__name__}: {error}") from error
    found: dict[str, tuple[float, float]] = {}
    for name, times in entries[:MOST_IMAGES]:
        if isinstance(times, list) and len(times) == 2 and all(_is_time(time) for time in times):
            first, used = (min(float(time), now) for time in times)
            found[name] = first, used
    return found


def ages_text(records: Iterable[gc_selection.ImageRecord]) -> str:
    """Return the text of the file of ages."""
    kept = [record for record in records if len(record.id) <= LONGEST_ID]
    if len(kept) > MOST_IMAGES:
        kept.sort(key=lambda record: max(record.last_used, record.first_detected), reverse=True)
        del kept[MOST_IMAGES:]
    images = {record.id: [round(record.first_detected), round(record.last_used)] for record in kept}
    return json.dumps({"images": images}, separators=(",", ":"))


def _is_time(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value >= 0 and (isinstance(value, int) or math.isfinite(value))
