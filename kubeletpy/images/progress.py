"""The progress of pulls: bytes, rate, time left, and the layer that no longer moves.

The CRI reports nothing of a pull between its call and its answer. containerd's content store
contains what has arrived of each layer, and the manifest their sizes. :class:`PullMonitor` reads
both while a client requests the progress of a pull, or once it has taken 10 s. The other runtimes
offer no content store, so their pulls have no progress. All sizes come from a registry and are
bounded. Must never delay or fail a pull.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, Struct, field
from kubeletpy.base.tasks import wait_until
from kubeletpy.images.policy import PullProgress
from kubeletpy.images.reference import Reference
from kubeletpy.remote.content import ContentStore, StoredBlob
from kubeletpy.remote.errors import CRIError, Unimplemented

log = logging.getLogger(__name__)

UNWATCHED_S = 10.0
"""Seconds after which a pull is watched without a request."""
PERIOD_S, REQUESTED_PERIOD_S = 2.0, 0.5
"""Seconds between two measurements; the second after a request."""
REQUESTED_FOR_S = 5.0
"""Seconds for which a request counts."""
RATE_S = 10.0
"""Seconds over which the rate is measured."""
MIN_RATE_S = 0.4
STUCK_S = 10.0
"""Seconds without a byte after which a layer counts as stuck."""
STALLED_PULL_S = 30.0
"""Age of a pull from which on a stuck layer is reported in an event."""
MEASURE_S = 10.0
"""Seconds that one measurement may take."""
KEPT_WEIGHT = 0.9
"""Weight of the layers unpacked so far beside a new one."""
GUESSES = ((0, 0.1), (15_000_000, 0.33))
"""Sizes of layers, and seconds to unpack them: what is assumed before any is unpacked."""
MAX_MANIFEST = 4 << 20
MAX_LAYERS = 1024
MAX_LAYER = 1 << 50
"""Bytes of the largest layer that counts; larger ones are nonsense."""
MAX_MANIFESTS = 16
"""Manifests of a repository that are read for one pull: the newest."""
_DIGEST = re.compile(r"sha(?:256:[0-9a-f]{64}|512:[0-9a-f]{128})")


class Layer(Struct, frozen=True):
    """A layer of an image: its digest and its size in bytes."""

    digest: str
    size: int


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


def parse_layers(manifest: bytes) -> tuple[Layer, ...]:
    """Return the layers of an image's manifest; none for an index and for what is no manifest."""
    try:
        found = json.loads(manifest)["layers"]
        layers = tuple(Layer(str(each["digest"]), int(each["size"])) for each in found)
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    valid = all(_DIGEST.fullmatch(each.digest) and 0 <= each.size <= MAX_LAYER for each in layers)
    return layers if valid and len(layers) <= MAX_LAYERS else ()


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


class UnpackTimes:
    """How long the runtime takes to unpack a layer: a time for each, and one for each byte.

    A least-squares line through the layers unpacked so far, of which the latest count most. Two
    guesses belong to it, since a few small layers do not show how long a large one takes.
    """

    def __init__(self) -> None:
        self._sums = [0.0] * 5
        for size, seconds in GUESSES:
            self.add(size, seconds)

    def add(self, size: int, seconds: float) -> None:
        """Count a layer of so many bytes, as it is packed."""
        new = (1.0, size, seconds, size * size, size * seconds)
        sums = zip(self._sums, new, strict=True)
        self._sums = [total * KEPT_WEIGHT + each for total, each in sums]

    def seconds(self, layers: Sequence[Layer]) -> float:
        """Return how long these layers take."""
        count, sizes, times, squares, products = self._sums
        spread = count * squares - sizes * sizes
        slope = max((count * products - sizes * times) / max(spread, 1.0), 0.0)
        each = max((times - slope * sizes) / count, 0.0)
        return sum(each + slope * layer.size for layer in layers)


class PullMeter(Component):
    """Measures one pull from what the content store contains at one moment after another. Pure."""

    layers: tuple[Layer, ...]
    unpack_times: UnpackTimes

    def __post_init__(self) -> None:
        self._arrived: dict[str, int] = {}
        self._moved_at: dict[str, float] = {}
        self._samples: deque[tuple[float, int]] = deque()
        self._unpacked = 0
        """Layers whose files are on the disk; the runtime unpacks them in order."""
        self._unpacking_since: float | None = None
        self.total = sum(layer.size for layer in self.layers)

    @property
    def missing(self) -> list[str]:
        """Return the digests of the layers that are not unpacked."""
        return [layer.digest for layer in self.layers[self._unpacked :]]

    def measure(
        self, ingests: Mapping[str, int], stored: Mapping[str, StoredBlob], now: float
    ) -> PullProgress:
        """Return the progress.

        Args:
            ingests: bytes that have arrived, by digest.
            stored: complete blobs, by digest; unpacked layers may be left out.
            now: seconds of a steady clock.
        """
        done = finished = 0
        stuck: list[tuple[float, int]] = []
        for number, layer in enumerate(self.layers, 1):
            if number <= self._unpacked or layer.digest in stored:
                arrived = layer.size
            else:
                arrived = min(max(ingests.get(layer.digest, 0), 0), layer.size)
            if self._arrived.get(layer.digest) != arrived or layer.digest not in self._moved_at:
                self._arrived[layer.digest], self._moved_at[layer.digest] = arrived, now
            waited = now - self._moved_at[layer.digest]
            if arrived < layer.size and layer.digest in ingests and waited >= STUCK_S:
                stuck.append((waited, number))
            done += arrived
            finished += arrived == layer.size
        self._count_unpacked(stored, now)
        self._samples.append((now, done))
        while len(self._samples) > 2 and now - self._samples[1][0] >= RATE_S:
            self._samples.popleft()
        rate = self._rate()
        waited, number = max(stuck, default=(0.0, 0))
        return PullProgress(
            done,
            self.total,
            len(self.layers),
            finished,
            now - max(self._moved_at.values()),
            rate,
            self._left(done, rate, now),
            number,
            waited,
        )

    def _rate(self) -> float | None:
        (began, before), (now, done) = self._samples[0], self._samples[-1]
        return (done - before) / (now - began) if now - began >= MIN_RATE_S else None

    def _count_unpacked(self, stored: Mapping[str, StoredBlob], now: float) -> None:
        before = self._unpacked
        while self._unpacked < len(self.layers):
            blob = stored.get(self.layers[self._unpacked].digest)
            if blob is None or not blob.unpacked:
                break
            self._unpacked += 1
        period = now - self._samples[-1][0] if self._samples else 0.0
        if self._unpacked > before and self._samples:
            # it ended half a period ago, on average; what was never seen arrived took no time
            since = now if self._unpacking_since is None else self._unpacking_since
            unpacked = self.layers[before : self._unpacked]
            for layer in unpacked:
                self.unpack_times.add(
                    layer.size, max(now - since - period / 2, 0.0) / len(unpacked)
                )
        rest = self.layers[self._unpacked :]
        if not rest or rest[0].digest not in stored:
            self._unpacking_since = None
        elif self._unpacking_since is None or self._unpacked > before:
            self._unpacking_since = now - period / 2

    def _left(self, done: int, rate: float | None, now: float) -> float | None:
        """Return the seconds until all has arrived and is unpacked.

        A layer is unpacked after it has arrived, and after those before it.
        """
        rest = self.layers[self._unpacked :]
        whole = self.unpack_times.seconds(rest)
        busy = now - self._unpacking_since if self._unpacking_since is not None else 0.0
        if done == self.total:
            return whole - busy if whole > busy else None
        if not rate:
            return None
        download = (self.total - done) / rate
        arrival = [layer.size - self._arrived[layer.digest] for layer in rest]
        tail = self.unpack_times.seconds(rest[arrival.index(max(arrival)) :])
        return download + max(whole - busy - download, tail)


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
        self._watches: dict[str, _Watch] = {}
        self._requested = self._measured = float("-inf")
        self._changed = asyncio.Event()
        self._manifests: dict[str, tuple[Layer, ...]] = {}
        self._unpack_times = UnpackTimes()

    def progress(self, image: str) -> PullProgress | None:
        """Return the latest progress of a pull, and measure it more often for a while."""
        watch = self._watches.get(image)
        if watch is None:
            return None
        self._requested = asyncio.get_running_loop().time()
        self._changed.set()
        return watch.progress

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
                self.show({})
                await self._changed.wait()
                continue
            if due > loop.time() and await wait_until(self._changed, due):
                continue
            try:
                async with asyncio.timeout(MEASURE_S):
                    await self._measure()
            except Unimplemented:
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
        ingests = {
            ref.partition("-")[2]: size for ref, size in (await self.store.ingests()).items()
        }
        watches = dict(self._watches)
        for watch in watches.values():
            if watch.meter is None and (layers := await self._find_layers(watch, ingests)):
                watch.meter = PullMeter(layers, self._unpack_times)
        meters = [watch.meter for watch in watches.values() if watch.meter is not None]
        missing = list(dict.fromkeys(digest for meter in meters for digest in meter.missing))
        stored: dict[str, StoredBlob] = {}
        for batch in range(0, len(missing), MAX_LAYERS):
            filters = [f"digest=={digest}" for digest in missing[batch : batch + MAX_LAYERS]]
            stored |= {blob.digest: blob for blob in await self.store.blobs(filters)}
        now = asyncio.get_running_loop().time()
        for watch in watches.values():
            if watch.meter is not None:
                watch.progress = watch.meter.measure(ingests, stored, now)
            if now - watch.began >= STALLED_PULL_S and is_stalled(watch.progress):
                for report in watch.stalled:
                    report(watch.progress)
                watch.stalled.clear()
        progress = {image: watch.progress for image, watch in watches.items()}
        self.show({image: (each.done, each.total) for image, each in progress.items() if each})

    async def _find_layers(self, watch: _Watch, ingests: Mapping[str, int]) -> tuple[Layer, ...]:
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
