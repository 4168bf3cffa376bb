"""Image garbage collection: which images are removed, in which order, and the events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubeletpy.images import gc
from kubeletpy.images.gc import (
    AGES_FILE,
    ImageAges,
    ImageGarbageCollector,
    ImageGCError,
    ages_text,
    read_ages,
)
from kubeletpy.images.gc_selection import (
    Disk,
    ImageGCPolicy,
    ImageRecord,
    bytes_to_free,
    eviction_order,
    refresh,
    too_old,
    used_image_ids,
)
from kubeletpy.images.image_manager import ImageManager
from kubeletpy.images.reference import LocalImage
from kubeletpy.images.uses import ImageUses
from kubeletpy.pods.pod import ContainerKind
from kubeletpy.remote.errors import Internal
from kubeletpy.remote.generated import api_pb2 as cri
from tests.kit.events import Recorder
from tests.kit.images import Counts, FakeImages
from tests.kit.pods import make_pod
from tests.kit.traces import Recording
from tests.kit.virtual_time import LoopClock, step_wall_clock

pytestmark = pytest.mark.virtual_time


def record(name: str, last_used: float = 0, detected: float = 0, **more: Any) -> ImageRecord:
    return ImageRecord(name, more.pop("size", 10), more.pop("pinned", False), detected, last_used)


def test_refresh_keeps_detection_times_and_drops_removed_images() -> None:
    known = {"a": record("a", 5, 1), "gone": record("gone")}
    fresh = refresh(known, [record("a", 0, 9), record("b", 0, 9)], frozenset({"b"}), 10)
    assert fresh == {"a": record("a", 5, 1), "b": record("b", 10, 9)}


def test_order() -> None:
    records = [record("a", 5), record("b", 3, 9), record("c", 3, 2), record("d", pinned=True)]
    records.append(record("e", 1))
    order = eviction_order({r.id: r for r in records}, frozenset({"e"}))
    assert [r.id for r in order] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("available", "expected"), [(160, 0), (151, 49), (150, 50), (100, 100), (2000, 0)]
)
def test_bytes_to_free(available: int, expected: int) -> None:
    assert bytes_to_free(Disk(1000, available), ImageGCPolicy()) == expected


def test_age_counts_from_the_last_use_or_the_detection() -> None:
    policy = ImageGCPolicy(max_age=100)
    images = [record("a", 0, 899), record("b", 0, 900), record("c", 900, 1), record("d", 899, 1)]
    assert [image.id for image in too_old(images, policy, 1000)] == ["a", "d"]
    assert too_old(images, ImageGCPolicy(), 1000) == []


def test_in_use_by_id_digest_or_tag() -> None:
    images = [
        cri.Image(id="1"),
        cri.Image(id="2", repo_digests=["x@sha256:2"]),
        cri.Image(id="3", repo_tags=["x:3"]),
        cri.Image(id="4", repo_tags=["x:4"]),
    ]
    containers = [
        cri.Container(image_id="1"),
        cri.Container(image_ref="x@sha256:2"),
        cri.Container(image=cri.ImageSpec(image="x:3")),
    ]
    assert used_image_ids(containers, images) == {"1", "2", "3"}


@dataclass
class Node:
    images: FakeImages = field(default_factory=FakeImages)
    events: Recorder = field(default_factory=Recorder)
    counts: Counts = field(default_factory=Counts)
    containers: list[cri.Container] = field(default_factory=list)
    available: int = 100
    capacity: int = 1000

    async def list_containers(self, filter: object = None) -> list[cri.Container]:
        return self.containers

    named: tuple[str, ...] = ()
    uses: ImageUses = field(default_factory=ImageUses)
    root: Path | None = None

    info: dict[str, str] = field(default_factory=dict)
    tracer: Recording = field(default_factory=Recording)

    async def status(self, verbose: bool = False) -> cri.StatusResponse:
        assert verbose
        return cri.StatusResponse(info=self.info)

    def collector(self, **policy: Any) -> ImageGarbageCollector:
        def statvfs(path: str) -> Any:
            return SimpleNamespace(f_blocks=self.capacity, f_frsize=1, f_bavail=self.available)

        return ImageGarbageCollector(
            cast(Any, self.images),
            cast(Any, self),
            self.events,
            LoopClock(),
            self.counts,
            node_name="n",
            policy=ImageGCPolicy(**policy),
            statvfs=statvfs,
            ages=ImageAges(self.root) if self.root is not None else None,
            named=lambda: self.named,
            uses=self.uses,
            tracer=self.tracer,
        )


async def test_frees_down_to_the_low_threshold() -> None:
    node = Node()
    for name in ("a", "b", "c", "used"):
        node.images.add(name, size=60)
    node.containers = [cri.Container(image_id="sha256:used")]
    collector = node.collector()
    await collector.detect()
    await asyncio.sleep(121)
    assert await collector.collect() == 120
    assert [each.name for each in node.tracer.spans] == ["Images/GarbageCollect"]
    assert node.images.removed == ["sha256:a", "sha256:b"]
    assert node.counts.collected == ["space", "space"]
    assert node.events.seen == []


async def test_young_images_are_kept_and_too_little_freed_is_reported() -> None:
    node = Node()
    node.images.add("young", size=60)
    collector = node.collector()
    await collector.run()
    assert node.images.removed == []
    assert [seen.split(":")[0] for seen in node.events.seen] == ["Warning FreeDiskSpaceFailed"]
    await collector.run()
    assert node.events.seen[-1].startswith("Warning ImageGCFailed: Insufficient free disk space")


async def test_age_and_off() -> None:
    node = Node(available=900)
    node.images.add("a")
    node.images.add("old", pinned=True)
    node.images.add("x:1")
    node.named = ("x:1",)
    collector = node.collector(max_age=1000)
    await collector.run()
    await asyncio.sleep(1001)
    await collector.run()
    assert node.counts.collected == ["age"]
    assert node.collector(high_threshold_percent=100).policy.off


async def test_errors_of_a_removal_are_reported() -> None:
    node = Node()
    node.images.add("a")
    collector = node.collector()
    await collector.detect()
    await asyncio.sleep(200)
    node.images.remove_error = Internal("RemoveImage", "read-only")
    with pytest.raises(ImageGCError, match=r"wanted to free 100 bytes, but freed 0 .*read-only"):
        await collector.collect()
    node.images.remove_error = None
    assert await collector.collect() == 1000
    node.capacity = 0
    await collector.run()
    assert node.events.seen == [
        "Warning InvalidDiskCapacity: invalid capacity 0 on image filesystem"
    ]


async def test_a_nearly_full_disk_loses_all_unused_images_except_young_ones() -> None:
    node = Node(available=900)
    for name, size in (("old", 60), ("empty", 0), ("used", 60)):
        node.images.add(name, size=size)
    node.containers = [cri.Container(image_id="sha256:used")]
    collector = node.collector()
    await collector.detect()
    await asyncio.sleep(121)
    node.images.add("young", size=60)
    assert await collector.remove_unused() == 60
    assert sorted(node.images.removed) == ["sha256:empty", "sha256:old"]


# -- uses that begin during a round ---------------------------------------------------------------


def _images(node: Node, *names: str) -> None:
    for name in names:
        node.images.add(name, size=60)


def _during_each_removal(node: Node, act: Callable[[], Awaitable[None]]) -> None:
    remove = node.images.remove_image

    async def slow(image: cri.ImageSpec) -> None:
        await act()
        await remove(image)

    node.images.remove_image = slow  # type: ignore[method-assign]


@pytest.mark.parametrize("under_pressure", [False, True])
async def test_an_image_of_a_pod_that_came_during_the_round_is_kept(under_pressure: bool) -> None:
    node = Node()
    _images(node, "a:1", "b:1", "c:1")
    collector = node.collector()
    await collector.detect()
    await asyncio.sleep(121)

    async def pod_comes() -> None:
        node.named = ("b:1",)

    _during_each_removal(node, pod_comes)
    freed = await (collector.remove_unused() if under_pressure else collector.collect())
    assert (freed, node.images.removed) == (120, ["sha256:a:1", "sha256:c:1"])


async def test_an_image_that_started_under_another_name_is_kept() -> None:
    node = Node()
    _images(node, "a:1", "localhost/b:1", "c:1")
    collector = node.collector()
    await collector.detect()
    await asyncio.sleep(121)

    async def starts_and_has_started() -> None:
        start = "uid", "main"
        if not node.images.removed:
            assert await node.uses.hold(start, "sha256:localhost/b:1", node.uses.removals)
            node.uses.release(start)

    _during_each_removal(node, starts_and_has_started)
    assert await collector.remove_unused() == 120
    assert node.images.removed == ["sha256:a:1", "sha256:c:1"]
    assert await collector.remove_unused() == 60  # its container has been removed since


async def test_a_start_that_holds_its_image_keeps_it_from_round_to_round() -> None:
    node = Node()
    _images(node, "a:1")
    collector = node.collector()
    await node.uses.hold(("uid", "main"), "sha256:a:1", 0)
    await collector.detect()
    await asyncio.sleep(121)
    assert await collector.remove_unused() == 0
    node.uses.release(("uid", "main"))
    assert await collector.remove_unused() == 60


async def test_a_start_during_a_removal_waits_and_pulls_the_image_again() -> None:
    node = Node()
    _images(node, "a:1")
    node.images.registry["a:1"] = ""
    collector = node.collector()
    manager = ImageManager(
        cast(Any, node.images), node.events, LoopClock(), node.counts, uses=node.uses
    )
    await collector.detect()
    await asyncio.sleep(121)
    starts: list[asyncio.Task[LocalImage]] = []

    async def start() -> None:
        pod = make_pod(containers=[{"name": "c", "image": "a:1"}])
        starts.append(
            asyncio.create_task(
                manager.ensure_image_exists(pod, pod.containers[0], ContainerKind.REGULAR)
            )
        )
        await asyncio.sleep(5)

    _during_each_removal(node, start)
    assert await collector.remove_unused() == 60
    assert (await starts[0]).ref == "sha256:a:1"
    assert node.images.pulls == [("a:1", "")]
    assert await collector.remove_unused() == 0  # it is held


async def test_a_pull_that_found_the_image_before_its_removal_is_repeated() -> None:
    node = Node()
    _images(node, "a:1")
    node.images.registry["a:1"] = ""
    node.images.pull_seconds = 10
    collector = node.collector()
    manager = ImageManager(
        cast(Any, node.images), node.events, LoopClock(), node.counts, uses=node.uses
    )
    pod = make_pod(containers=[{"name": "c", "image": "a:1", "imagePullPolicy": "Always"}])
    ensure = manager.ensure_image_exists(pod, pod.containers[0], ContainerKind.REGULAR)
    await collector.detect()
    await asyncio.sleep(121)
    pulling = asyncio.create_task(ensure)
    await asyncio.sleep(5)
    assert await collector.remove_unused() == 60
    assert (await pulling).ref == "sha256:a:1"
    assert node.images.pulls == [("a:1", "")] * 2


# -- over restarts -------------------------------------------------------------------------------


async def test_ages_outlive_the_agent(tmp_path: Path) -> None:
    node = Node(available=900, root=tmp_path)
    node.images.add("a")
    node.images.add("used")
    node.containers = [cri.Container(image_id="sha256:used")]
    await node.collector(max_age=1000).run()
    await asyncio.sleep(600)
    await node.collector(max_age=1000).run()
    node.containers = []
    await asyncio.sleep(401)
    await node.collector(max_age=1000).run()
    assert node.images.removed == ["sha256:a"]
    await asyncio.sleep(600)
    await node.collector(max_age=1000).run()
    assert node.images.removed == ["sha256:a", "sha256:used"]


async def test_under_pressure_an_old_image_is_removed_right_after_a_restart(tmp_path: Path) -> None:
    node = Node(root=tmp_path)
    node.images.add("a")
    await node.collector(high_threshold_percent=100).run()
    await asyncio.sleep(121)
    node.images.add("new")
    freed = await node.collector(high_threshold_percent=100).remove_unused()
    assert (freed, node.images.removed) == (1000, ["sha256:a"])


async def test_the_age_of_a_pulled_image_begins_with_its_pull() -> None:
    node = Node()
    collector = node.collector()
    await collector.record_images()
    node.images.add("a")
    collector.pulled("sha256:a")
    await asyncio.sleep(121)
    assert await collector.remove_unused() == 1000


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
async def test_ages_do_not_follow_the_wall_clock_while_an_agent_runs(
    tmp_path: Path, step: float
) -> None:
    node = Node(root=tmp_path)
    node.images.add("a")
    collector = node.collector()
    await collector.record_images()
    step_wall_clock(step)
    await asyncio.sleep(119)
    assert await collector.remove_unused() == 0  # young, whatever the wall clock shows
    # the next agent continues from the present wall clock
    assert ImageAges(tmp_path).load(LoopClock().now())["sha256:a"][0] == pytest.approx(
        LoopClock().now() - 119
    )
    await asyncio.sleep(2)
    assert await collector.remove_unused() == 1000


async def test_a_runtime_that_does_not_answer_loses_no_ages(tmp_path: Path) -> None:
    node = Node(root=tmp_path)
    node.images.add("a")
    await node.collector().record_images()
    await asyncio.sleep(121)
    later = node.collector()
    listed, node.images.list_images = node.images.list_images, _down  # type: ignore[method-assign]
    await later.record_images()
    node.images.list_images = listed  # type: ignore[method-assign]
    assert await later.remove_unused() == 1000


async def _down(filter: object = None) -> Any:
    raise Internal("ListImages", "down")


async def test_an_unpinned_sandbox_image_is_kept() -> None:
    node = Node(info={"config": '{"sandboxImage": "pause:1"}'})
    node.images.add("pause:1")
    node.images.add("a")
    collector = node.collector()
    await collector.record_images()
    await asyncio.sleep(121)
    await collector.remove_unused()
    assert node.images.removed == ["sha256:a"]


# The file of image ages: its content, and the effect of a corrupt one.


def test_written_ages_are_read_back(tmp_path: Path) -> None:
    kept = ImageAges(tmp_path)
    assert kept.load(1000) == {}
    kept.save([ImageRecord("a", 1, False, 100.4, 0), ImageRecord("b", 1, True, 100, 900.6)])
    assert kept.load(1000) == {"a": (100, 0), "b": (100, 901)}
    assert (tmp_path / AGES_FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [AGES_FILE]


def test_future_times_become_now() -> None:
    assert read_ages(b'{"images": {"a": [5000, 9000]}}', 1000) == {"a": (1000, 1000)}


@pytest.mark.parametrize(
    "entry", ["1", "[1]", "[1, 2, 3]", "[-1, 0]", '["1", 0]', "[NaN, 0]", "[true, 0]", "null"]
)
def test_invalid_entries_are_left_out(entry: str) -> None:
    text = f'{{"images": {{"bad": {entry}, "good": [1, 2]}}}}'
    assert read_ages(text.encode(), 1000) == {"good": (1, 2)}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"images": 1}', b"\xff", b"[" * 100_000, b" " * (5 << 20)]
)
def test_a_corrupt_file_makes_all_images_new(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / AGES_FILE).write_bytes(content)
    assert ImageAges(tmp_path).load(1000) == {}
    (notified,) = caplog.messages
    assert notified == "ages of images not read: all count as new"


def test_an_absent_directory_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ImageAges(tmp_path / "gone").save([])
    assert caplog.messages == ["ages of images not kept"]


def test_the_file_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "MOST_IMAGES", 2)
    records = [ImageRecord(str(n), 1, False, 0, n) for n in range(5)]
    text = ages_text([*records, ImageRecord("x" * 300, 1, False, 10, 99)])
    assert list(json.loads(text)["images"]) == ["4", "3"]
    assert len(read_ages(b'{"images": {"a": [1, 1], "b": [1, 1], "c": [1, 1]}}', 5)) == 2
