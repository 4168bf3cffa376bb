"""Which directories of a pod are measured, when, and how long an answer waits for that."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.clock import SystemClock
from kubeletpy.base.host.errors import NoThread
from kubeletpy.base.host.files import remove_tree
from kubeletpy.node.eviction.decide import Limit, LocalStorageLimits, judge
from kubeletpy.node.stats import disks
from kubeletpy.node.stats.disk_plan import PodTrees, pod_disk, pod_storage, trees
from kubeletpy.node.stats.disks import (
    BATCH,
    PATIENCE_S,
    DiskMeter,
    Walked,
    space,
    space_with_device,
    walk,
)
from kubeletpy.node.stats.usage import PodDisk, PodRef, TreeUse, VolumeUse
from kubeletpy.server.logs.rotate import LogRotator, RotationSettings
from tests.kit.costs import open_descriptors
from tests.kit.pods import make_pod
from tests.kit.stats import ThreadClock
from tests.kit.virtual_time import on_virtual_time, timed

REF = PodRef("u-1", "web", "shop")


class Walks:
    """A fake of the real walks that counts them; ``/slow`` blocks until ``may_end`` is set."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.may_end = threading.Event()

    def __call__(
        self, path: str, *, max_entries: int | None, stopped: Callable[[], bool]
    ) -> Walked | None:
        if path == "/slow":
            self.may_end.wait(10)
        self.seen.append(path)
        return None if path == "/nothing" else Walked(100, 2)


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Walks:
    made = Walks()
    monkeypatch.setattr(disks, "walk", made)
    return made


@on_virtual_time
async def test_a_tree_is_measured_once_a_minute(walks: Walks) -> None:
    clock = ThreadClock()
    meter = DiskMeter(clock)
    clock.now()
    first = await meter.measure(["/", "/nothing"])
    assert {path: (use.used, use.inodes) for path, use in first.items()} == {"/": (100, 2)}
    await asyncio.sleep(59)
    assert (await meter.measure(["/", "/nothing"])).keys() == {"/"}
    assert walks.seen == ["/", "/nothing"]
    await asyncio.sleep(2)
    # known values are returned at once, newer ones with the next answer
    assert (await meter.measure(["/", "/nothing"]))["/"].at == first["/"].at
    await asyncio.sleep(1)
    assert (await meter.measure(["/"]))["/"].at > first["/"].at
    assert walks.seen == ["/", "/nothing"] * 2
    await meter.measure([])
    await meter.measure(["/"])
    assert walks.seen.count("/") == 3, "a result that nobody requests is dropped"
    await meter.close()


async def test_an_answer_does_not_wait_for_a_slow_tree(
    walks: Walks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "PATIENCE_S", 0.05)
    meter = DiskMeter(SystemClock())
    paths = [*(f"/{number}" for number in range(BATCH)), "/slow", "/after"]
    found = await meter.measure(paths)
    assert len(found) == BATCH
    assert meter.pending(paths) == {"/slow", "/after"}
    assert walks.may_end.is_set() is False
    walks.may_end.set()
    monkeypatch.setattr(disks, "PATIENCE_S", 5.0)
    assert set(await meter.measure(paths)) == set(paths)
    assert walks.seen.count("/slow") == 1
    assert meter.pending(paths) == set()
    await meter.close()


async def test_a_slow_tree_is_left_alone_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = DiskMeter(SystemClock(), seconds_between=0.0)
    monkeypatch.setattr(disks, "walk", lambda path, max_entries, stopped: Walked(1, 1))
    ticks = iter([0.0, 30.0])
    known = meter._some(["/"], lambda: next(ticks))["/"]
    assert known.next_at == 30.0 + 30.0 * disks.IDLE_SHARE


def fill(tree: Path, empty: int) -> Path:
    """A large file behind empty ones."""
    below = tree / "empty"
    below.mkdir(parents=True)
    for number in range(empty):
        (below / str(number)).touch()
    (below / "more").mkdir()
    (below / "more" / "big").write_bytes(b"x" * (8 << 20))
    return tree


async def test_nothing_hides_behind_empty_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "QUICK_ENTRIES", 20)
    meter = DiskMeter(SystemClock(), seconds_between=1000.0)
    tree, other = str(fill(tmp_path / "tree", 200)), str(tmp_path / "tree" / "empty" / "more")
    first = await meter.measure([tree, other])
    assert (first[tree].at_least, first[other].at_least) == (True, False)
    assert (first[tree].used or 0) < 8 << 20
    assert meter._large_work is not None
    await meter._large_work
    whole = (await meter.measure([tree, other]))[tree]
    assert ((whole.used or 0) >= 8 << 20, whole.inodes, whole.at_least) == (True, 204, False)
    assert math.isfinite(meter._known[tree].next_at)
    await meter.close()


async def test_the_rest_of_a_large_tree_pauses_and_ends_with_its_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "QUICK_ENTRIES", 20)
    monkeypatch.setattr(disks, "STOP_EVERY", 1)
    meter = DiskMeter(SystemClock(), seconds_between=0.0)
    tree = str(fill(tmp_path / "tree", 200))
    meter._known[tree] = disks._MeasuredTree(TreeUse(1, 1 << 30, 1), 0.0)
    assert meter._some([tree], lambda: 0.0)[tree] == disks._MeasuredTree(
        TreeUse(1, 1 << 30, 1), math.inf
    )
    ticks = itertools.count()
    rests: list[float] = []
    monkeypatch.setattr(meter._closed, "wait", rests.append)
    known = meter._whole(tree, 5.0, lambda: float(next(ticks)))
    assert set(rests) == {disks.PAUSES}
    assert known.use is not None and not known.use.at_least
    # each second tick is the end of a pause, which is no work
    assert known.next_at > len(rests) * 2 + (5.0 + len(rests) - 1) * disks.IDLE_SHARE
    del meter._known[tree]
    assert (meter._whole(tree, 0.0, lambda: 0.0).use or TreeUse(0, 0, 0)).at_least
    await meter.close()


async def test_a_tree_without_a_free_thread_is_measured_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "QUICK_ENTRIES", 3)
    for number in range(5):
        (tmp_path / str(number)).touch()
    tree = str(tmp_path)
    meter = DiskMeter(SystemClock())
    with monkeypatch.context() as patch:
        patch.setattr(meter._thread, "submit", _no_thread)
        assert await meter.measure([tree]) == {}
        assert meter._work is not None
        assert meter._work.exception() is None
    with monkeypatch.context() as patch:
        patch.setattr(meter._large_thread, "submit", _no_thread)
        assert (await meter.measure([tree]))[tree].at_least
        assert meter._large_work is not None
        await asyncio.wait([meter._large_work])
        assert meter._large_work.exception() is None
        assert tree in meter._large, "it is still to be counted"
    await meter.close()


def _no_thread(*_: object) -> None:
    raise NoThread


async def test_measuring_is_off(walks: Walks) -> None:
    meter = DiskMeter(SystemClock(), seconds_between=-1.0)
    assert await meter.measure(["/"]) == {}
    assert walks.seen == []
    await meter.close()


@on_virtual_time
async def test_patience_is_virtual(walks: Walks) -> None:
    clock = ThreadClock()
    clock.now()
    meter = DiskMeter(clock)
    _, took = await timed(meter.measure(["/a"]))
    assert took < PATIENCE_S


def test_space_of_a_file_system(tmp_path: Path) -> None:
    found = space(str(tmp_path), 5)
    assert found is not None
    assert found.at == 5
    assert 0 < found.available <= found.free <= found.capacity
    named = space_with_device(str(tmp_path), 5)
    assert named is not None
    assert named.device == "" or named.device.startswith("/dev/")
    assert space("/nowhere", 5) is None
    assert space_with_device("/nowhere", 5) is None


def plan(**spec: object) -> PodTrees | None:
    pod = make_pod("web", "u-1", **spec)
    return trees(REF, pod, ("main",), "/root/pods", "/logs")


def test_directories_measured_for_a_pod() -> None:
    volumes = [
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "key", "secret": {"secretName": "s"}},
        {"name": "host", "hostPath": {"path": "/"}},
    ]
    found = plan(volumes=volumes)
    assert found is not None
    base = "/root/pods/u-1/volumes"
    assert [(each.name, each.path, each.ephemeral) for each in found.volumes] == [
        ("disk", f"{base}/kubernetes.io~empty-dir/disk", True),
        ("memory", f"{base}/kubernetes.io~empty-dir/memory", False),
        ("config", f"{base}/kubernetes.io~configmap/config", True),
        ("key", f"{base}/kubernetes.io~secret/key", False),
    ]
    assert found.logs == {"main": "/logs/shop_web_u-1/main"}
    assert found.pod_logs == "/logs/shop_web_u-1"
    assert found.hosts == "/root/pods/u-1/etc-hosts"
    assert found.all_parts == "/root/pods/u-1/containers"
    assert found.parts == {"main": "/root/pods/u-1/containers/main"}
    assert len(list(found.paths())) == 9


@pytest.mark.parametrize(
    ("missing", "pending"),
    [
        ((), False),
        (("/root/pods/u-1/volumes/kubernetes.io~empty-dir/disk",), True),
        (("/logs/shop_web_u-1/main",), True),
        (("/logs/another",), False),
    ],
)
def test_missing_measurements_make_a_pod_pending(missing: tuple[str, ...], pending: bool) -> None:
    found = plan(volumes=[{"name": "disk", "emptyDir": {}}])
    assert found is not None
    assert pod_disk(found, {}, missing).pending is pending


@pytest.mark.parametrize(
    ("ref", "container"),
    [
        (PodRef("../..", "web", "shop"), "main"),
        (PodRef("u", "../../etc", "shop"), "main"),
        (PodRef("u", "web", "shop"), "../../../etc"),
    ],
)
def test_a_name_that_leads_elsewhere_is_not_measured(ref: PodRef, container: str) -> None:
    assert trees(ref, None, (container,), "/root/pods", "/logs") is None


def test_logs_of_removed_containers_count_once() -> None:
    found = plan(volumes=[{"name": "disk", "emptyDir": {}}])
    assert found is not None
    measured = {
        "/logs/shop_web_u-1": TreeUse(1, 100, 10),
        "/logs/shop_web_u-1/main": TreeUse(1, 30, 3),
        found.hosts: TreeUse(1, 4, 1),
        found.volumes[0].path: TreeUse(1, 50, 5),
        found.parts["main"]: TreeUse(1, 7, 1),
    }
    assert pod_disk(found, measured) == PodDisk(
        volumes=(VolumeUse("disk", TreeUse(1, 50, 5), True),),
        logs={"main": TreeUse(1, 30, 3)},
        parts={"main": TreeUse(1, 7, 1)},
        others=(TreeUse(1, 4, 1), TreeUse(1, 70, 7)),
    )
    assert pod_disk(found, {}) == PodDisk((), {}, ())


@pytest.mark.parametrize(
    ("whole", "own", "others"),
    [
        (TreeUse(1, None, None), TreeUse(1, None, None), TreeUse(1, 0, 0)),
        (TreeUse(1, 100, 10), TreeUse(1, None, None), TreeUse(1, 100, 10)),
        # a log that has grown since all directories were measured
        (TreeUse(1, 100, 10), TreeUse(1, 900, 90), TreeUse(1, 0, 0)),
    ],
)
def test_logs_that_are_not_counted_and_logs_that_grow(
    whole: TreeUse, own: TreeUse, others: TreeUse
) -> None:
    found = plan()
    assert found is not None
    measured = {found.pod_logs: whole, found.logs["main"]: own}
    assert pod_disk(found, measured).others == (others,)


def test_an_uncountable_tree_exceeds_any_limit() -> None:
    found = plan(volumes=[{"name": "disk", "emptyDir": {}}])
    assert found is not None
    limits = LocalStorageLimits({"disk": Limit(Decimal(1 << 62), "4Ei")})
    for use, verdict in (
        (TreeUse(1, 50, 5, at_least=True), False),
        (TreeUse(1, 50, 5, at_least=True, beyond=True), True),
    ):
        disk = pod_disk(found, {found.volumes[0].path: use})
        storage = pod_storage(disk, {}, layers_apart=False)
        assert (judge(limits, storage) is not None, storage.total > 50) == (verdict, verdict)


# Measuring directory trees while other processes write to them.

BLOCK = b"x" * 4096


def file(path: Path, blocks: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(BLOCK * blocks)
    return path


def test_files_and_directories(tmp_path: Path) -> None:
    file(tmp_path / "a" / "b" / "c" / "one")
    file(tmp_path / "a" / "two", 3)
    file(tmp_path / "three", 2)
    found = walk(str(tmp_path))
    assert found is not None
    directories = sum((tmp_path / d).stat().st_blocks for d in ("", "a", "a/b", "a/b/c")) * 512
    assert found.used == 6 * 4096 + directories
    assert found.inodes == 7
    assert not found.at_least


def test_a_file_counts_itself_and_nothing_is_nothing(tmp_path: Path) -> None:
    found = walk(str(file(tmp_path / "etc-hosts")))
    assert found is not None
    assert (found.used, found.inodes) == (4096, 1)
    assert walk(str(tmp_path / "none")) is None


def test_links_are_counted_and_not_followed(tmp_path: Path) -> None:
    file(tmp_path / "outside" / "big", 100)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "to-file").symlink_to(tmp_path / "outside" / "big")
    (inside / "to-directory").symlink_to(tmp_path / "outside")
    (inside / "up").symlink_to("..")
    found = walk(str(inside))
    assert found is not None
    assert found.used < 100 * 4096
    assert found.inodes == 4
    (tmp_path / "itself").symlink_to(inside)
    link = walk(str(tmp_path / "itself"))
    assert link is not None
    assert link.inodes == 1


def test_a_file_with_several_names_counts_once(tmp_path: Path) -> None:
    first = file(tmp_path / "first", 10)
    for number in range(5):
        os.link(first, tmp_path / f"again-{number}")
    found = walk(str(tmp_path))
    assert found is not None
    assert found.inodes == 2
    assert found.used < 12 * 4096


def test_too_many_entries_give_a_lower_bound(tmp_path: Path) -> None:
    for number in range(30):
        file(tmp_path / f"d{number % 3}" / f"f{number}")
    found = walk(str(tmp_path), max_entries=10)
    assert found is not None
    assert found.at_least
    assert 0 < found.inodes <= 14


def test_nothing_hides_in_the_depth_of_a_tree(tmp_path: Path) -> None:
    depth = 12_000  # its paths are too long for a system call
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    big = os.open("big", os.O_CREAT | os.O_WRONLY, dir_fd=here)
    os.posix_fallocate(big, 0, 8 << 20)
    os.close(big)
    os.close(here)
    before = open_descriptors()
    try:
        found = walk(str(tmp_path))
        assert open_descriptors() == before, "every directory is closed"
    finally:
        remove_tree(str(tmp_path))
    assert found is not None
    assert (found.inodes, found.at_least) == (depth + 2, False)
    assert found.used >= 8 << 20


def test_directories_that_wait_are_bounded_and_files_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "MAX_PENDING_BYTES", 5 * len("d00\0"))
    for number in range(10, 30):
        file(tmp_path / f"d{number}" / "inside")
        file(tmp_path / f"f{number}")
    found = walk(str(tmp_path))
    assert found is not None
    assert found.at_least and found.beyond
    assert 1 + 20 + 2 * 5 <= found.inodes < 1 + 20 + 2 * 20


def test_directories_one_after_the_other_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "MAX_PENDING_BYTES", 3)
    for number in range(20):
        file(tmp_path / "/".join(["d"] * (number + 1)) / "inside")
    found = walk(str(tmp_path))
    assert found is not None
    assert (found.inodes, found.at_least) == (41, False)


def test_files_with_many_names_beyond_those_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "MAX_LINKED", 2)
    for number in range(6):
        os.link(file(tmp_path / f"a{number}", 10), tmp_path / f"b{number}")
    found = walk(str(tmp_path))
    assert found is not None
    assert 6 * 10 * 4096 <= found.used < 6 * 11 * 4096


def test_a_walk_that_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "STOP_EVERY", 1)
    for number in range(30):
        file(tmp_path / f"d{number % 3}" / f"f{number}")
    requested = itertools.count()
    found = walk(str(tmp_path), stopped=lambda: next(requested) >= 10)
    assert found is not None
    assert found.at_least
    assert found.inodes < 15


def test_special_files_and_names_are_counted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "closed").mkdir(mode=0)
    file(tmp_path / b"\xff\xfe".decode("utf-8", "surrogateescape"))
    found = walk(str(tmp_path))
    assert found is not None
    assert found.inodes == 4


def test_a_directory_that_is_swapped_for_a_link_while_it_is_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file(tmp_path / "outside" / "big", 100)
    file(tmp_path / "tree" / "sub" / "x")
    real, seen = os.open, []

    def swapping(path: object, flags: int, *rest: object, **more: object) -> int:
        if path == b"sub":
            (tmp_path / "tree" / "sub").rename(tmp_path / "moved")
            (tmp_path / "tree" / "sub").symlink_to(tmp_path / "outside")
        seen.append(path)
        return real(path, flags, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", swapping)
    found = walk(str(tmp_path / "tree"))
    assert found is not None
    assert b"sub" in seen
    assert found.inodes == 1


@pytest.mark.parametrize("moves", [1, disks.MOVED_AGAIN])
def test_a_directory_that_is_moved_away_while_it_is_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    file(tmp_path / "tree" / "sub" / "x")
    (tmp_path / "elsewhere").mkdir()
    file(tmp_path / "elsewhere" / "big", 100)
    here, there = tmp_path / "tree" / "sub", tmp_path / "elsewhere" / "sub"
    real, left = os.open, iter(range(moves))

    def moving(path: object, flags: int, *rest: object, **more: object) -> int:
        if path == str(tmp_path / "tree") and there.exists():
            there.rename(here)
        if path == ".." and next(left, None) is not None:
            here.rename(there)
        return real(path, flags, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", moving)
    before = open_descriptors()
    found = walk(str(tmp_path / "tree"))
    assert open_descriptors() == before
    assert found is not None
    always = moves == disks.MOVED_AGAIN
    assert (found.at_least, found.beyond, found.inodes) == (always, always, 3)


# Work that containers can prolong does not use the threads that start pods.


@asynccontextmanager
async def hanging() -> AsyncIterator[None]:
    """Block all threads of the event loop."""
    over = threading.Event()
    threads = ThreadPoolExecutor(1)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(threads)
    held = loop.run_in_executor(None, over.wait)
    try:
        async with asyncio.timeout(10):
            yield
    finally:
        over.set()
        await held
        threads.shutdown()


async def test_trees_are_measured(tmp_path: Path) -> None:
    meter = DiskMeter(SystemClock())
    async with hanging():
        assert str(tmp_path) in await meter.measure([str(tmp_path)])
    await meter.close()


async def test_logs_are_rotated(tmp_path: Path) -> None:
    cache = cast(Any, {})
    nobody = cast(Any, None)
    rotator = LogRotator(nobody, cache, str(tmp_path), RotationSettings(), SystemClock())
    async with hanging():
        await rotator.rotate_due()
