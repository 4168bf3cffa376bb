"""The progress of pulls: bytes, rate, time left, and the layer that no longer moves.

The CRI reports nothing of a pull between its call and its answer. containerd's content store
contains what has arrived of each layer, and the manifest their sizes. :class:`PullMonitor` reads
both while a client requests the progress of a pull, or once it has taken 10 s. The other runtimes
offer no content store, so their pulls have no progress. All sizes come from a registry and are
bounded. Must never delay or fail a pull.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, Struct, field, replace
from kubeletpy.base.tasks import wait_until
from kubeletpy.images.policy import STUCK_S, PullProgress
from kubeletpy.images.reference import Reference
from kubeletpy.remote.containerd import ContentStore, StoredBlob
from kubeletpy.remote.errors import CRIError, Unimplemented

if TYPE_CHECKING:
    from kubeletpy.images.pull_meter import Layer, PullMeter, UnpackTimes

log = logging.getLogger(__name__)

UNWATCHED_S = 10.0
"""Seconds after which a pull is watched without a request."""
PERIOD_S, REQUESTED_PERIOD_S = 2.0, 0.5
"""Seconds between two measurements; the second after a request."""
REQUESTED_FOR_S = 5.0
"""Seconds for which a request counts."""
STALLED_PULL_S = 30.0
"""Age of a pull from which on a stuck layer is reported in an event."""
MEASURE_S = 10.0
"""Seconds that one measurement may take."""
FILTERS = 1024
"""Filters of one call."""
MAX_MANIFEST = 4 << 20
MAX_MANIFESTS = 16
"""Manifests of a repository that are read for one pull: the newest."""


def is_stalled(progress: PullProgress | None) -> bool:
    """Return whether nothing arrives; None: not even the manifest has."""
    if progress is None:
        return True
    return not progress.unpacking and progress.still_for >= STUCK_S


def stall(progress: PullProgress | None) -> str:
    """Describe a pull of which nothing arrives, and what to do."""
    check = "check the registry and the network of the node"
    if progress is None:
        return f"no manifest has arrived; {check}"
    layer = f"layer {progress.stuck_layer} of {progress.layers}, " if progress.stuck_layer else ""
    return (
        f"{layer}{progress.done} of {progress.total} bytes have arrived, the last one "
        f"{progress.still_for:.0f} s ago; {check}"
    )


def source_filter(reference: Reference) -> str:
    """Return the filter for the blobs that containerd pulled from an image's repository."""
    host = reference.domain.rpartition(":")[0] or reference.domain
    label = f'labels."containerd.io/distribution.source.{host}"'
    path = reference.path.replace(".", "[.]")  # a filter has no other escape
    return f'{label}~="(^|,){path}(,|$)"'


def choose_layers(
    candidates: Iterable[tuple[StoredBlob, tuple[Layer, ...]]],
    digest: str,
    began_at: float,
    active: Iterable[str],
) -> tuple[Layer, ...]:
    """Return the layers of the manifest that is being pulled, or () if none can be it.

    It is the one with the requested digest, else the first that was stored after the pull began.
    If the manifest was there already, it is the newest with a layer that arrives now.

    Args:
        candidates: the manifests of the repository, with their layers.
        digest: of the image's reference; may be empty.
        began_at: Unix seconds.
        active: the digests of what arrives now, for any pull.
    """
    arriving = frozenset(active)
    by_age = sorted((each for each in candidates if each[1]), key=lambda each: each[0].created_at)
    exact = [layers for blob, layers in by_age if blob.digest == digest]
    later = [layers for blob, layers in by_age if blob.created_at >= began_at]
    resumed = [
        layers
        for _, layers in reversed(by_age)
        if not arriving.isdisjoint(layer.digest for layer in layers)
    ]
    return next(iter(exact or later or resumed), ())


Stalled = Callable[[PullProgress | None], None]
"""Called when nothing has arrived for a while; with None if not even the manifest has."""


class _Watch(Struct):
    """A pull that is watched; several pods may wait for the same one."""

    reference: Reference
    began: float
    """Event-loop seconds."""
    began_at: float
    """Unix seconds."""
    users: int = 0
    meter: PullMeter | None = None
    progress: PullProgress | None = None
    measured: float = 0.0
    """Event-loop seconds of the progress."""
    stalled: list[Stalled] = field(default_factory=list)
    """Called once if the pull stalls."""


class PullMonitor(Component):
    """Measures the pulls under way."""

    store: ContentStore
    clock: Clock
    show: Callable[[Mapping[str, tuple[int, int]]], None]
    """Called with the bytes that have arrived and all of them, by image, after each
    measurement."""

    def __post_init__(self) -> None:
        self.supported = True
        """False once the runtime turned out to have no content store."""
        self._watches: dict[str, _Watch] = {}
        self._requested = self._measured = float("-inf")
        self._changed = asyncio.Event()
        self._manifests: dict[str, tuple[Layer, ...]] = {}
        self._unpack_times: UnpackTimes | None = None
        self._written: int | None = None
        self._arrived: dict[str, int] = {}
        self._offsets: dict[str, tuple[int, float]] = {}
        """Bytes of each ingest, and when they were first seen."""

    def progress(self, image: str) -> PullProgress | None:
        """Return the latest progress of a pull, and measure it more often for a while."""
        watch = self._watches.get(image)
        if watch is None:
            return None
        self._requested = now = asyncio.get_running_loop().time()
        self._changed.set()
        found = watch.progress
        if found is None or found.left is None:
            return found
        return replace(found, left=max(found.left - (now - watch.measured), 0.0))

    @contextmanager
    def watching(self, image: str, reference: Reference, stalled: Stalled) -> Iterator[None]:
        """Watch the pull of an image while the block runs it."""
        now = asyncio.get_running_loop().time()
        watch = self._watches.setdefault(image, _Watch(reference, now, self.clock.now()))
        watch.users += 1
        watch.stalled.append(stalled)
        self._changed.set()
        try:
            yield
        finally:
            watch.users -= 1
            if stalled in watch.stalled:  # it no longer waits
                watch.stalled.remove(stalled)
            if not watch.users:
                del self._watches[image]
                self._changed.set()

    async def run(self) -> None:
        """Measure until canceled, or until the runtime turns out to have no content store."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            if (due := self._due(loop.time())) is None:
                self._manifests.clear()
                self._written = None
                self.show({})
                await self._changed.wait()
                continue
            if due > loop.time() and await wait_until(self._changed, due):
                continue
            try:
                async with asyncio.timeout(MEASURE_S):
                    await self._measure()
            except Unimplemented:
                self.supported = False
                return
            except (CRIError, TimeoutError) as error:
                log.debug("the progress of pulls is not known", extra={"why": str(error)})
            self._measured = loop.time()

    def _due(self, now: float) -> float | None:
        """Return when to measure next, or None while nothing is pulled."""
        if not self._watches:
            return None
        if now - self._requested < REQUESTED_FOR_S:
            return self._measured + REQUESTED_PERIOD_S
        first = min(watch.began for watch in self._watches.values()) + UNWATCHED_S
        return max(self._measured + PERIOD_S, first)

    async def _measure(self) -> None:
        from kubeletpy.images import pull_meter  # when a pull is first measured

        if self._unpack_times is None:
            self._unpack_times = pull_meter.UnpackTimes()
        ingests = {
            ref.partition("-")[2]: size for ref, size in (await self.store.ingests()).items()
        }
        watches = dict(self._watches)
        for watch in watches.values():
            if watch.meter is None and (layers := await self._find_layers(watch, ingests)):
                watch.meter = pull_meter.PullMeter(layers, self._unpack_times)
        meters = [watch.meter for watch in watches.values() if watch.meter is not None]
        missing = list(dict.fromkeys(digest for meter in meters for digest in meter.missing))
        blobs: dict[str, StoredBlob] = {}
        for batch in range(0, len(missing), FILTERS):
            filters = [f"digest=={digest}" for digest in missing[batch : batch + FILTERS]]
            blobs |= {blob.digest: blob for blob in await self.store.blobs(filters)}
        for meter in meters:
            await self._count_unpacked(meter, blobs)
            for digest in meter.unknown(ingests, blobs):
                head = await self.store.head(digest, pull_meter.HEAD)
                meter.describe(digest, await asyncio.to_thread(pull_meter.read_contents, head))
        written = self._unpacked_bytes(meters, ingests, blobs, await self.store.written())
        now = asyncio.get_running_loop().time()
        moved = self._moved_ingests(ingests, now)
        for watch in watches.values():
            if watch.meter is not None:
                own = {layer.digest for layer in watch.meter.layers}
                others = sum(now - at < STUCK_S for each, at in moved.items() if each not in own)
                watch.progress = watch.meter.measure(ingests, blobs, now, written, others)
                watch.measured = now
            if now - watch.began >= STALLED_PULL_S and is_stalled(watch.progress):
                for report in watch.stalled:
                    report(watch.progress)
                watch.stalled.clear()
        progress = {image: watch.progress for image, watch in watches.items()}
        self.show({image: (each.done, each.total) for image, each in progress.items() if each})

    async def _count_unpacked(self, meter: PullMeter, blobs: Mapping[str, StoredBlob]) -> None:
        """Count the layers of a pull that are unpacked; the runtime does that in order.

        A layer that is there already is unpacked again if the ones below it are others.
        """
        from kubeletpy.images.pull_meter import chain_id

        for layer in meter.layers[meter.unpacked :]:
            blob = blobs.get(layer.digest)
            if blob is None or not blob.diff_id:
                break
            chain = chain_id(meter.chain, blob.diff_id)
            if not await self.store.has_files(chain):
                break
            meter.chain = chain
            meter.unpacked += 1

    def _moved_ingests(self, ingests: Mapping[str, int], now: float) -> dict[str, float]:
        """Return when each ingest of which some has arrived was last seen to advance."""
        known = self._offsets
        self._offsets = {
            digest: known[digest] if known.get(digest, (0, 0))[0] == size else (size, now)
            for digest, size in ingests.items()
            if size
        }
        return {digest: at for digest, (_, at) in self._offsets.items()}

    def _unpacked_bytes(
        self,
        meters: Sequence[PullMeter],
        ingests: Mapping[str, int],
        stored: Collection[str],
        written: int | None,
    ) -> float | None:
        """Return the bytes that the runtime unpacked for each pull since the last measurement.

        It wrote them besides what arrived. None: that is not known.
        """
        arrived = {
            layer.digest: layer.size if layer.digest in stored else ingests[layer.digest]
            for meter in meters
            for layer in meter.layers
            if layer.digest in stored or layer.digest in ingests
        }
        before, self._written = self._written, written
        known, self._arrived = self._arrived, arrived
        if before is None or written is None:
            return None
        downloaded = sum(size - known.get(digest, 0) for digest, size in arrived.items())
        unpacking = sum(meter.unpacking for meter in meters)
        return max(written - before - downloaded, 0) / max(unpacking, 1)

    async def _find_layers(self, watch: _Watch, ingests: Mapping[str, int]) -> tuple[Layer, ...]:
        from kubeletpy.images.pull_meter import parse_layers

        blobs = [
            blob
            for blob in await self.store.blobs([source_filter(watch.reference)])
            if blob.has_children and blob.size <= MAX_MANIFEST
        ]
        blobs.sort(key=lambda blob: blob.created_at, reverse=True)
        for blob in blobs[:MAX_MANIFESTS]:
            if blob.digest not in self._manifests:
                manifest = await self.store.read(blob.digest, MAX_MANIFEST)
                self._manifests[blob.digest] = parse_layers(manifest)
        known = [(blob, self._manifests[blob.digest]) for blob in blobs[:MAX_MANIFESTS]]
        return choose_layers(known, watch.reference.digest, watch.began_at, ingests)
