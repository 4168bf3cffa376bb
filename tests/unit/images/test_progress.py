"""How far pulls are: the manifest that counts, layers that arrive, times left, stalls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kubeletpy.images.policy import PullProgress
from kubeletpy.images.progress import PullMonitor, choose_layers, source_filter, stall
from kubeletpy.images.pull_meter import MAX_LAYERS, Layer, chain_id, parse_layers
from kubeletpy.images.reference import parse_reference
from kubeletpy.remote.containerd import StoredBlob
from kubeletpy.remote.errors import CRIError, Unavailable, Unimplemented
from tests.kit.virtual_time import LoopClock

pytestmark = pytest.mark.virtual_time
MIB = 1 << 20
MB = 1_000_000


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def manifest(*layers: Any) -> bytes:
    return json.dumps({"config": {}, "layers": list(layers)}).encode()


def layer(number: int, size: Any = 5) -> dict[str, Any]:
    return {"digest": digest(number), "size": size}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (manifest(layer(1), layer(2, 7)), (Layer(digest(1), 5), Layer(digest(2), 7))),
        (manifest(), ()),
        (b'{"manifests": [{"digest": "sha256:1"}]}', ()),
        (b"no JSON", ()),
        (b"[" * 100_000, ()),
        (b"null", ()),
        (manifest({"digest": digest(1)}), ()),
        (manifest(layer(1, -1)), ()),
        (manifest(layer(1, 1 << 60)), ()),
        (manifest(layer(1, "many")), ()),
        (manifest({"digest": 'sha256:1"', "size": 1}), ()),
        (manifest(*map(layer, range(MAX_LAYERS + 1))), ()),
    ],
)
def test_layers_of_a_manifest(text: bytes, expected: tuple[Layer, ...]) -> None:
    assert parse_layers(text) == expected


OLD, NEW, NEWER = ((Layer(digest(n), 1), Layer(digest(9), 1)) for n in (1, 2, 3))


def blob(number: int, created_at: float) -> StoredBlob:
    return StoredBlob(digest(number), 500, created_at, has_children=True)


@pytest.mark.parametrize(
    ("candidates", "requested", "active", "expected"),
    [
        ([(blob(11, 50), OLD)], digest(11), [], OLD),
        ([(blob(11, 50), OLD), (blob(12, 101), NEW), (blob(13, 105), NEWER)], "", [], NEW),
        ([(blob(11, 50), OLD), (blob(12, 60), NEW)], "", [digest(1)], OLD),
        ([(blob(11, 50), OLD), (blob(12, 60), NEW)], "", [digest(9)], NEW),
        ([(blob(11, 50), OLD)], "", [digest(7)], ()),
        ([(blob(11, 150), ()), (blob(12, 160), NEW)], "", [], NEW),
        ([], "", [digest(1)], ()),
    ],
    ids=[
        "by digest",
        "the first after it began",
        "resumed",
        "the newest",
        "none",
        "index",
        "empty",
    ],
)
def test_the_manifest_of_a_pull(
    candidates: Any, requested: str, active: Any, expected: tuple[Layer, ...]
) -> None:
    assert choose_layers(candidates, requested, 100, active) == expected


@pytest.mark.parametrize(
    ("image", "label", "pattern"),
    [
        ("busybox", "docker.io", "library/busybox"),
        ("localhost:5000/team/app.x:1", "localhost", "team/app[.]x"),
    ],
)
def test_blobs_of_a_repository(image: str, label: str, pattern: str) -> None:
    assert source_filter(parse_reference(image)) == (
        f'labels."containerd.io/distribution.source.{label}"~="(^|,){pattern}(,|$)"'
    )


@dataclass
class Pull:
    """A pull by containerd: three layers at a time, unpacked in order."""

    name: str
    sizes: Sequence[float]
    """Megabytes."""
    rate: float = 10.0
    """Megabytes a second for all layers; each layer after its number in ``stalls`` stops."""
    stalls: int = 0
    shared: Sequence[int] = ()
    """Layers that are there already."""
    unpacks: float = 100.0
    """Megabytes a second."""
    first: int = 0
    """Number of its first layer's digest."""

    def __post_init__(self) -> None:
        self.layers = [Layer(digest(self.first + n), int(s * MB)) for n, s in enumerate(self.sizes)]
        self.arrived = [0.0] * len(self.layers)
        for each in self.shared:
            self.arrived[each] = self.layers[each].size
        self.unpacked = 0.0
        self.count = 0

    def step(self, seconds: float) -> bool:
        """Advance; return whether the image is there."""
        open_layers = [n for n, each in enumerate(self.layers) if self.arrived[n] < each.size]
        moving = [n for n in open_layers[:3] if n + 1 != self.stalls or self.arrived[n] < MB]
        for n in moving:
            more = self.rate * MB * seconds / len(moving)
            self.arrived[n] = min(self.arrived[n] + more, self.layers[n].size)
        if self.count < len(self.layers):
            size = self.layers[self.count].size
            if self.arrived[self.count] >= size:
                self.unpacked += self.unpacks * MB * seconds
                if self.unpacked >= size + 0.1 * self.unpacks * MB:
                    self.unpacked, self.count = 0.0, self.count + 1
        return self.count == len(self.layers)


@dataclass
class Store:
    """The content store during pulls."""

    pulls: list[Pull] = field(default_factory=list)
    calls: int = 0
    error: CRIError | None = None
    writes: bool = False
    """It is known what the runtime writes: two bytes for each of a layer."""

    async def ingests(self) -> Mapping[str, int]:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return {
            f"layer-{each.digest}": int(pull.arrived[n]) // MIB * MIB
            for pull in self.pulls
            for n, each in enumerate(pull.layers)
            if 0 < pull.arrived[n] < each.size
        }

    async def blobs(self, filters: Sequence[str]) -> list[StoredBlob]:
        if "labels" in filters[0]:
            return [
                StoredBlob(f"manifest of {pull.name}", 500, LoopClock().now(), has_children=True)
                for pull in self.pulls
                if f"{pull.name}(,|$)" in filters[0]
            ]
        requested = {each.removeprefix("digest==") for each in filters}
        return [
            StoredBlob(
                each.digest,
                each.size,
                diff_id=f"of {each.digest}" if n < pull.count or n in pull.shared else "",
            )
            for pull in self.pulls
            for n, each in enumerate(pull.layers)
            if each.digest in requested and pull.arrived[n] >= each.size
        ]

    async def read(self, digest: str, most: int) -> bytes:
        (pull,) = [pull for pull in self.pulls if digest == f"manifest of {pull.name}"]
        return manifest(*({"digest": each.digest, "size": each.size} for each in pull.layers))

    async def head(self, digest: str, size: int) -> bytes:
        return b""

    async def has_files(self, chain: str) -> bool:
        there = set()
        for pull in self.pulls:
            below = ""
            for each in pull.layers[: pull.count]:
                below = chain_id(below, f"of {each.digest}")
                there.add(below)
        return chain in there

    async def written(self) -> int | None:
        if not self.writes:
            return None
        arrived = sum(sum(pull.arrived) for pull in self.pulls)
        unpacked = sum(
            sum(each.size for each in pull.layers[: pull.count]) + pull.unpacked
            for pull in self.pulls
        )
        return int(arrived + 2 * unpacked)


@dataclass
class Node:
    store: Store = field(default_factory=Store)
    shown: dict[str, tuple[int, int]] = field(default_factory=dict)
    stalls: list[PullProgress | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.monitor = PullMonitor(self.store, LoopClock(), self.show)

    def show(self, pulls: Mapping[str, tuple[int, int]]) -> None:
        self.shown = dict(pulls)

    async def pull(
        self, pull: Pull, *, watch: bool = True, limit: float = 1e9
    ) -> list[tuple[float, PullProgress]]:
        """Return the samples of a pull, each with the seconds that were really left."""
        loop, samples = asyncio.get_running_loop(), []
        self.store.pulls.append(pull)
        began = loop.time()
        with self.monitor.watching(pull.name, parse_reference(pull.name), self.stalls.append):
            while not pull.step(0.1) and loop.time() - began < limit:
                await asyncio.sleep(0.1)
                if watch and (found := self.monitor.progress(pull.name)) is not None:
                    samples.append((loop.time(), found))
        self.store.pulls.remove(pull)
        return [(loop.time() - at, found) for at, found in samples]


PULLS = [
    Pull("one", [40]),
    Pull("small", [12], 2),
    Pull("two", [5, 60]),
    Pull("slow", [20, 30], 2),
    Pull("fast", [200, 50], 20),
    Pull("shared", [30, 40, 50], shared=[0, 2]),
    Pull("unpacking", [150, 20], 20),
    Pull("unpacking-more", [40, 150, 20, 30], 20),
    Pull("three", [1, 80, 1], 5),
    Pull("many", [3, 1, 40, 0.2, 7, 12, 25, 0.1, 2, 60, 5, 9]),
    Pull("even", [10] * 12, 4),
    Pull("last", [0.5, 0.5, 90], 15),
    Pull("first", [90, 0.5, 0.5], 15),
    Pull("big", [400, 300, 2], 20),
    Pull("tiny-layers", [0.3] * 10 + [45], 3),
]


async def test_a_layer_that_is_there_is_unpacked_again_above_another_one() -> None:
    node = Node(Store(writes=True))
    running = asyncio.create_task(node.monitor.run())
    await node.pull(Pull("before", [20, 40], unpacks=5))
    samples = await node.pull(Pull("again", [10, 90], shared=[1], unpacks=5))
    assert samples[0][0] > 19, "what arrives takes a second, and unpacking 20"
    for left, found in samples[10:]:
        assert found.left is None or abs(found.left - left) < 0.5 * left + 1
    running.cancel()


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("unpacks", [8, 30, 100])
async def test_the_time_left_is_right(unpacks: float, writes: bool) -> None:
    """Within 25 % in 90 % of the samples after the first tenth, once something was unpacked."""
    node = Node(Store(writes=writes))
    running = asyncio.create_task(node.monitor.run())
    good: dict[str, bool] = {}
    total = right = 0
    await node.pull(Pull("before", [1, 20, 4, 60, 60], unpacks=unpacks))
    for pull in PULLS:
        samples = await node.pull(replace(pull, unpacks=unpacks))
        later = [each for each in samples if each[0] <= 0.9 * samples[0][0]]
        close = [
            found.left is not None and abs(found.left - left) <= 0.25 * left + 0.6
            for left, found in later
        ]
        good[pull.name] = sum(close) >= 0.9 * len(close)
        total, right = total + len(close), right + sum(close)
    running.cancel()
    assert right >= 0.9 * total, (right, total, good)


async def test_layers_that_arrive_are_counted() -> None:
    node = Node()
    running = asyncio.create_task(node.monitor.run())
    samples = await node.pull(Pull("shared", [30, 40, 50], shared=[0, 2]))
    first, last = samples[0][1], samples[-1][1]
    assert (first.total, first.layers, first.finished) == (120 * MB, 3, 2)
    assert 80 * MB <= first.done < 90 * MB
    assert last.unpacking
    assert (last.done, last.finished) == (120 * MB, 3)
    assert node.shown == {"shared": (120 * MB, 120 * MB)}
    await asyncio.sleep(1)
    assert node.shown == {}
    running.cancel()


async def test_a_layer_that_stops_is_named() -> None:
    node = Node()
    running = asyncio.create_task(node.monitor.run())
    samples = await node.pull(Pull("x", [5, 5, 20, 5, 5, 5, 5], stalls=3), limit=60)
    at = {60 - round(left): found for left, found in samples}
    assert at[8].stuck_layer == 0
    assert at[15].stuck_layer == 3
    assert (at[50].stuck_layer, round(at[50].stuck_for)) == (3, 50)
    assert at[50].left is None
    (event,) = node.stalls
    assert event is not None
    assert stall(event).startswith("layer 3 of 7, 30000000 of 50000000 bytes")
    running.cancel()


async def test_a_pull_that_waits_for_layers_of_others_has_not_stalled() -> None:
    """containerd 2 downloads three layers at once, whichever pulls they belong to."""
    node, waiting = Node(), Pull("waits", [30], rate=0, first=9)
    running = asyncio.create_task(node.monitor.run())
    waiting.arrived[0] = 0.1  # the ingest is there
    others = asyncio.create_task(node.pull(Pull("others", [300] * 3)))
    samples = await node.pull(waiting, limit=60)
    assert samples[-1][1].waiting
    assert samples[-1][1].left is None
    assert node.stalls == []
    await others
    await asyncio.sleep(0)
    assert not (await node.pull(waiting, limit=5))[-1][1].waiting
    running.cancel()


async def test_a_pull_without_a_manifest_stalls() -> None:
    node = Node()
    running = asyncio.create_task(node.monitor.run())
    with node.monitor.watching("x", parse_reference("x"), node.stalls.append):
        await asyncio.sleep(60)
    assert node.stalls == [None]
    assert stall(None).startswith("no manifest has arrived")
    running.cancel()


@pytest.mark.parametrize(("watch", "most"), [(False, 6), (True, 50)])
async def test_measurements_are_few_unless_somebody_looks(watch: bool, most: int) -> None:
    node = Node()
    running = asyncio.create_task(node.monitor.run())
    await node.pull(Pull("x", [200]), watch=watch)
    assert most / 2 < node.store.calls <= most
    before = node.store.calls
    await asyncio.sleep(100)
    assert node.store.calls == before
    running.cancel()


async def test_pods_that_wait_for_one_pull_share_its_progress() -> None:
    node = Node()
    running = asyncio.create_task(node.monitor.run())
    other: list[PullProgress | None] = []
    with node.monitor.watching("x", parse_reference("x"), other.append):
        samples = await node.pull(Pull("x", [30]))
        assert samples
        assert node.monitor.progress("x") is not None
    assert node.monitor.progress("x") is None
    running.cancel()


async def test_a_canceled_pull_gets_no_report_of_the_pull_that_others_wait_for() -> None:
    node = Node()
    running = asyncio.create_task(node.monitor.run())
    canceled: list[PullProgress | None] = []
    with node.monitor.watching("x", parse_reference("x"), node.stalls.append):
        with node.monitor.watching("x", parse_reference("x"), canceled.append):
            await asyncio.sleep(1)
        await asyncio.sleep(60)
    assert (node.stalls, canceled) == ([None], [])
    running.cancel()


async def test_a_runtime_without_a_store_is_asked_once() -> None:
    node = Node(Store(error=Unimplemented("ListStatuses", "unknown service")))
    running = asyncio.create_task(node.monitor.run())
    assert await node.pull(Pull("x", [200])) == []
    assert (node.store.calls, node.monitor.supported) == (1, False)
    await running


async def test_an_error_of_the_store_costs_a_measurement() -> None:
    node = Node(Store(error=Unavailable("ListStatuses", "gone")))
    running = asyncio.create_task(node.monitor.run())
    assert await node.pull(Pull("x", [100]), limit=5) == []
    node.store.error = None
    assert await node.pull(Pull("y", [30]))
    running.cancel()
