"""A pull by what the content store contains at one moment after another, and its time left. Pure.

The download is steady and easy to predict. Unpacking is not: of recorded pulls, a byte of one layer
took 1 ns and of another 300 ns. It depends on the compression and on the number of files, which
neither the manifest nor the runtime reports, but the first bytes of a layer show both.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import re
import zlib
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

from kubeletpy.base.structs import Component, Struct
from kubeletpy.images.policy import STUCK_S, PullProgress

RATE_S = 10.0
"""Seconds over which the rate is measured."""
MIN_RATE_S = 0.4
WAIT_S = 2.0
"""Seconds without a layer under way after which a pull counts as waiting."""
PIECE = 1 << 20
"""Bytes that containerd writes at once: until then, nothing shows that they have arrived."""
MAX_LAYERS = 1024
MAX_LAYER = 1 << 50
"""Bytes of the largest layer that counts; larger ones are nonsense."""
_DIGEST = re.compile(r"sha(?:256:[0-9a-f]{64}|512:[0-9a-f]{128})")
DOWNLOADS = 3
"""Layers of an image that containerd downloads at once (``max_concurrent_downloads``)."""
HEAD = 1 << 20
"""Bytes of a layer that show what it contains."""
_MAX_UNPACKED = 8 * HEAD
_MAX_MEMBERS = 64
"""Members of a gzip file that are read."""
_MAGIC, _MAGIC_AT = b"ustar", 257
"""Text in the header of each file of an archive, and its offset."""
_BESIDES = 700
"""Bytes of an archive for each file besides its contents: the header, and padding."""
_COMPRESSED_WORK, _FILE_WORK = 8.0, 20_000.0
"""Work to decompress a byte, and to create a file."""
_GUESS, _GUESSED_WORK = 2.5e-9, 200_000_000.0
"""Seconds for a unit of work before any layer was unpacked, and how much work that weighs."""
_LAYER_S = 0.05
"""Seconds for any layer, besides its work."""
_LONG_S = 2.0
"""Seconds of a layer of which the bytes written are known well enough to learn from them."""
_KEPT = 0.6
"""Weight of the layers unpacked so far beside a new one."""
_GUESSED_PART = 0.15
"""Part of a layer that the time expected for it weighs, beside the part that was measured."""
_MAX_PART = 0.95


class Layer(Struct, frozen=True):
    """A layer of an image: its digest and its size in bytes."""

    digest: str
    size: int


def parse_layers(manifest: bytes) -> tuple[Layer, ...]:
    """Return the layers of an image's manifest; none for an index and for what is no manifest."""
    try:
        found = json.loads(manifest)["layers"]
        layers = tuple(Layer(str(each["digest"]), int(each["size"])) for each in found)
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    valid = all(_DIGEST.fullmatch(each.digest) and 0 <= each.size <= MAX_LAYER for each in layers)
    return layers if valid and len(layers) <= MAX_LAYERS else ()


def chain_id(below: str, diff_id: str) -> str:
    """Return the chain ID of a layer on those below it, as the OCI image specification has it.

    Args:
        below: the chain ID of the layer below; empty: none.
        diff_id: digest of the layer without compression.
    """
    if not below:
        return diff_id
    return "sha256:" + hashlib.sha256(f"{below} {diff_id}".encode()).hexdigest()


class Contents(Struct, frozen=True):
    """The result of unpacking a layer, for each byte of it.

    Attributes:
        work: a unit is to write a byte of a file that was not compressed.
        written: bytes of files.
    """

    work: float = 10.0
    written: float = 2.0


UNKNOWN = Contents()
"""Assumed of a layer that cannot be read, or has another format."""


def read_contents(head: bytes) -> Contents:
    """Return what a layer contains by its first bytes, which are untrusted.

    UNKNOWN if it is neither compressed with gzip nor a plain archive.
    """
    unpacked, used = _decompressed(head[:HEAD])
    if unpacked[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] != _MAGIC:
        return UNKNOWN
    size = len(unpacked)
    files = unpacked.count(_MAGIC)  # the same text in a file makes the estimate worse
    compressed = size > 1.1 * used
    work = size + _FILE_WORK * files + (_COMPRESSED_WORK * used if compressed else 0.0)
    return Contents(work / used, max(size - _BESIDES * files, size / 10) / used)


def _decompressed(head: bytes) -> tuple[bytes, int]:
    """Return what the beginning of a gzip file contains, and how many bytes of it were read."""
    unpacked, rest = bytearray(), head
    try:
        for _ in range(_MAX_MEMBERS):
            member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            unpacked += member.decompress(rest, _MAX_UNPACKED - len(unpacked))
            rest = member.unconsumed_tail or member.unused_data
            if not member.eof or not rest or len(unpacked) >= _MAX_UNPACKED:
                break
    except zlib.error:
        if not unpacked:
            return head, len(head)
    return bytes(unpacked), len(head) - len(rest)


class UnpackTimes:
    """How fast the runtime unpacks: what the latest layers took, by their work."""

    def __init__(self) -> None:
        self._work, self._seconds = _GUESSED_WORK, _GUESS * _GUESSED_WORK
        self._expected = self._written = _GUESSED_WORK

    def add(self, work: float, seconds: float, slack: float, layers: int = 1) -> None:
        """Count so many layers, which took these seconds together, known to within the slack.

        Where these allow what was expected, nothing changes.
        """
        expected = self._seconds / self._work * work
        seconds -= layers * _LAYER_S
        self._work = self._work * _KEPT + work
        self._seconds = self._seconds * _KEPT + max(
            min(max(expected, seconds - slack), seconds + slack), 0.0
        )

    def add_written(self, expected: float, written: float) -> None:
        """Count the bytes that the runtime wrote for a layer, beside those expected."""
        self._expected = self._expected * _KEPT + expected
        self._written = self._written * _KEPT + written

    def seconds(self, work: float) -> float:
        """Return how long a layer takes."""
        return _LAYER_S + work * self._seconds / self._work

    def part(self, expected: float, written: float) -> float:
        """Return the part of a layer that is unpacked, by the bytes that were written."""
        return min(written * self._expected / max(expected * self._written, 1.0), _MAX_PART)


def pace(expected: float, busy: float, part: float) -> float:
    """Return the seconds for a layer of which a part was unpacked in the busy seconds."""
    return (_GUESSED_PART * expected + busy) / (_GUESSED_PART + part)


class PendingLayer(Struct, frozen=True):
    """A layer that is not unpacked."""

    missing: float
    """Bytes that have not arrived."""
    unpacking: float
    """Seconds that it takes to unpack the rest of it, once it has arrived."""
    begun: bool = True
    """Some of it has arrived; containerd stores nothing of a layer that waits for its turn."""


def time_left(layers: Sequence[PendingLayer], rate: float) -> float:
    """Return the seconds until all layers are unpacked.

    The layers under way share the rate, and the others follow in order. A layer is unpacked after
    it has arrived, and after those before it.

    Args:
        layers: in order.
        rate: bytes per second, for all layers together.
    """
    now = 0.0
    for layer, arrival in zip(layers, _arrivals(layers, rate), strict=True):
        now = max(now, arrival) + layer.unpacking
    return now


def _arrivals(layers: Sequence[PendingLayer], rate: float) -> list[float]:
    """Return the seconds until each of the layers has arrived."""
    arrivals = [0.0] * len(layers)
    missing = [number for number, layer in enumerate(layers) if layer.missing > 0]
    queue = deque(sorted(missing, key=lambda number: not layers[number].begun))
    slots = max(DOWNLOADS, sum(layers[number].begun for number in missing))
    active: list[tuple[float, int]] = []
    now = each = 0.0  # each: the bytes that a layer got which is under way from the beginning
    while queue or active:
        while queue and len(active) < slots:
            number = queue.popleft()
            heapq.heappush(active, (each + layers[number].missing, number))
        end, number = active[0]
        now += (end - each) * len(active) / rate
        each, arrivals[number] = end, now
        heapq.heappop(active)
    return arrivals


class PullMeter(Component):
    """Measures one pull from what the content store contains at one moment after another. Pure.

    Attributes:
        unpacked: how many layers have their files on the disk; the runtime unpacks them in order.
        chain: the chain ID of these layers. Both are to be set before a measurement.
        total: bytes of all layers.
    """

    layers: tuple[Layer, ...]
    unpack_times: UnpackTimes

    def __post_init__(self) -> None:
        self._arrived: dict[str, int] = {}
        self._moved_at: dict[str, float] = {}
        self._samples: deque[tuple[float, float]] = deque([(0.0, 0.0)])
        """Seconds in which layers were under way, and the bytes that arrived in them."""
        self._counted = 0.0
        self._measured_at: float | None = None
        self._moving_at: float | None = None
        """When a layer was last under way."""
        self._contents: dict[str, Contents] = {}
        self.unpacked, self.chain = 0, ""
        self._unpacked = 0
        self._unpacking_since: float | None = None
        self._first: list[str] = []
        self._written: float | None = None
        """Bytes that the runtime wrote for the layer that it unpacks."""
        self.total = sum(layer.size for layer in self.layers)

    @property
    def unpacking(self) -> bool:
        """Return whether the runtime unpacks a layer."""
        return self._unpacking_since is not None

    @property
    def missing(self) -> list[str]:
        """Return the digests of the layers that are not unpacked."""
        return [layer.digest for layer in self.layers[self.unpacked :]]

    def unknown(self, ingests: Mapping[str, int], stored: Collection[str]) -> list[str]:
        """Return the digests of the layers whose first bytes can be read, and were not."""
        return [
            layer.digest
            for layer in self.layers[self.unpacked :]
            if layer.digest not in self._contents
            and layer.size > HEAD
            and (layer.digest in stored or ingests.get(layer.digest, 0) >= HEAD)
        ]

    def describe(self, digest: str, contents: Contents) -> None:
        """Note what a layer contains."""
        self._contents[digest] = contents

    def measure(
        self,
        ingests: Mapping[str, int],
        stored: Collection[str],
        now: float,
        written: float | None = None,
        others: int = 0,
    ) -> PullProgress:
        """Return the progress.

        Args:
            ingests: bytes that have arrived, by digest.
            stored: digests of complete blobs; those of unpacked layers may be absent.
            now: seconds of a steady clock.
            written: bytes that the runtime unpacked since the last measurement, if known.
            others: layers of other pulls that advance. containerd 2 has one limit for all pulls.
        """
        done = finished = 0
        stuck: list[tuple[float, int]] = []
        for number, layer in enumerate(self.layers, 1):
            if number <= self._unpacked or layer.digest in stored:
                arrived = layer.size
            else:
                arrived = min(max(ingests.get(layer.digest, 0), 0), layer.size)
            waits = not arrived and others >= DOWNLOADS
            if waits or self._arrived.get(layer.digest) != arrived:
                self._arrived[layer.digest], self._moved_at[layer.digest] = arrived, now
            still = now - self._moved_at[layer.digest]
            if arrived < layer.size and layer.digest in ingests and still >= STUCK_S:
                stuck.append((still, number))
            done += arrived
            finished += arrived == layer.size
        self._first = self._find_first(ingests, others)
        unseen = sum(self._unseen(layer, ingests) for layer in self.layers)
        self._count_unpacked(stored, now, written)
        rate = self._rate(done + unseen, unseen > 0, now)
        self._measured_at = now
        waited, number = max(stuck, default=(0.0, 0))
        return PullProgress(
            done,
            self.total,
            len(self.layers),
            finished,
            now - max(self._moved_at.values()),
            rate,
            self._left(ingests, rate, now),
            number,
            waited,
            not unseen and done < self.total and others >= DOWNLOADS,
        )

    def _unseen(self, layer: Layer, ingests: Mapping[str, int]) -> float:
        """Return the bytes that have arrived, on average, but are not written."""
        if not ingests.get(layer.digest) and layer.digest not in self._first:
            return 0.0
        return min(PIECE, layer.size - self._arrived[layer.digest]) / 2

    def _find_first(self, ingests: Mapping[str, int], others: int) -> list[str]:
        """Return the layers under way of which nothing is seen; others wait for their turn."""
        begun = sum(0 < ingests.get(layer.digest, 0) < layer.size for layer in self.layers)
        unseen = [
            layer.digest
            for layer in self.layers
            if layer.digest in ingests and not self._arrived[layer.digest]
        ]
        return unseen[: max(DOWNLOADS - begun - others, 0)]

    def _rate(self, arrived: float, moving: bool, now: float) -> float | None:
        """Return the rate while layers are under way, or None if it is not known.

        Layers also wait for those of other pulls. How long is not known, so it does not count.
        """
        active, counted = self._samples[-1]
        if self._moving_at is not None and self._moving_at == self._measured_at:
            active += now - self._measured_at
            counted += arrived - self._counted
            self._samples.append((active, counted))
        self._counted = arrived
        if moving:
            self._moving_at = now
        while len(self._samples) > 2 and active - self._samples[1][0] >= RATE_S:
            self._samples.popleft()
        began, before = self._samples[0]
        waits = self._moving_at is None or now - self._moving_at >= WAIT_S
        return (
            None if waits or active - began < MIN_RATE_S else (counted - before) / (active - began)
        )

    def _count_unpacked(self, stored: Collection[str], now: float, written: float | None) -> None:
        before, self._unpacked = self._unpacked, self.unpacked
        period = now - self._measured_at if self._measured_at is not None else 0.0
        if self._written is not None and written is not None:
            self._written += written
        if self._unpacked > before and self._measured_at is not None:
            # it ended half a period ago, on average; what was never seen arrived took no time
            since = now if self._unpacking_since is None else self._unpacking_since
            ended = self.layers[before : self.unpacked]
            took = max(now - since - period / 2, 0.0)
            contents = list(zip(self._contents_of(ended), ended, strict=True))
            work = sum(each.work * layer.size for each, layer in contents)
            self.unpack_times.add(work, took, period / 2, len(ended))
            if self._written is not None and written is not None and took >= _LONG_S:
                expected = sum(each.written * layer.size for each, layer in contents)
                self.unpack_times.add_written(expected, self._written - written / 2)
        rest = self.layers[self._unpacked :]
        if not rest or rest[0].digest not in stored:
            self._unpacking_since = self._written = None
        elif self._unpacking_since is None or self._unpacked > before:
            self._unpacking_since = now - period / 2
            self._written = None if written is None else written / 2

    def _contents_of(self, layers: Sequence[Layer]) -> list[Contents]:
        """Return what layers contain; those that were not read, the average of those read."""
        typical, known = UNKNOWN, self._contents.values()
        if known:
            typical = Contents(
                fmean(each.work for each in known), fmean(each.written for each in known)
            )
        return [self._contents.get(layer.digest, typical) for layer in layers]

    def _left(self, ingests: Mapping[str, int], rate: float | None, now: float) -> float | None:
        """Return the seconds until all has arrived and is unpacked, or None if that is unknown."""
        rest = self.layers[self._unpacked :]
        missing = [
            layer.size - self._arrived[layer.digest] - self._unseen(layer, ingests)
            for layer in rest
        ]
        if any(missing) and not rate:
            return None
        contents = self._contents_of(rest)
        seconds = [
            self.unpack_times.seconds(each.work * layer.size)
            for each, layer in zip(contents, rest, strict=True)
        ]
        if self._unpacking_since is not None:
            busy = now - self._unpacking_since
            if self._written is not None:
                size = contents[0].written * rest[0].size
                part = self.unpack_times.part(size, self._written)
                seconds[0] = pace(seconds[0], busy, part) * (1 - part)
            elif busy < seconds[0] or any(missing):
                seconds[0] = max(seconds[0] - busy, 0.0)
            else:
                return None
        pending = [
            PendingLayer(layer_missing, layer_seconds, bool(ingests.get(layer.digest)))
            for layer, layer_missing, layer_seconds in zip(rest, missing, seconds, strict=True)
        ]
        return time_left(pending, rate or 1.0)
