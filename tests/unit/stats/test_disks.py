"""What of a pod is measured, when, and how long an answer waits for it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from kubeletpy.clock import SystemClock
from kubeletpy.stats import disks
from kubeletpy.stats.disk_plan import PodTrees, pod_disk, trees
from kubeletpy.stats.disks import BATCH, PATIENCE_S, DiskMeter, space, space_with_device
from kubeletpy.stats.tree_walk import Walked
from kubeletpy.stats.usage import PodRef, TreeUse
from tests.unit.podworkers.builders import make_pod
from tests.unit.stats.machine import ThreadClock
from tests.virtual_time import on_virtual_time, timed

REF = PodRef("u-1", "web", "shop")


class Walks:
    """Stands for the real walks and counts them; ``/slow`` takes until it may end."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.may_end = threading.Event()

    def __call__(self, path: str, *, stopped: object) -> Walked | None:
        if path == "/slow":
            self.may_end.wait(10)
        self.seen.append(path)
        return None if path == "/nothing" else Walked(100, 2)


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Walks:
    made = Walks()
    monkeypatch.setattr(disks, "walk", made)
    return made


def test_a_tree_is_measured_once_a_minute(walks: Walks) -> None:
    @on_virtual_time
    async def check() -> None:
        clock = ThreadClock()
        meter = DiskMeter(clock)
        clock.now()
        first = await meter.measure(["/", "/nothing"])
        assert {path: (use.used, use.inodes) for path, use in first.items()} == {"/": (100, 2)}
        await asyncio.sleep(59)
        assert (await meter.measure(["/", "/nothing"])).keys() == {"/"}
        assert walks.seen == ["/", "/nothing"]
        await asyncio.sleep(2)
        # what is known is answered at once, what is newer comes with the next answer
        assert (await meter.measure(["/", "/nothing"]))["/"].at == first["/"].at
        await asyncio.sleep(1)
        assert (await meter.measure(["/"]))["/"].at > first["/"].at
        assert walks.seen == ["/", "/nothing"] * 2
        await meter.measure([])
        await meter.measure(["/"])
        assert walks.seen.count("/") == 3, "what nobody asks for is forgotten"
        await meter.close()

    check()


async def test_an_answer_does_not_wait_for_a_slow_tree(
    walks: Walks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "PATIENCE_S", 0.05)
    meter = DiskMeter(SystemClock())
    paths = [*(f"/{number}" for number in range(BATCH)), "/slow", "/after"]
    found = await meter.measure(paths)
    assert len(found) == BATCH
    assert walks.may_end.is_set() is False
    walks.may_end.set()
    monkeypatch.setattr(disks, "PATIENCE_S", 5.0)
    assert set(await meter.measure(paths)) == set(paths)
    assert walks.seen.count("/slow") == 1
    await meter.close()


async def test_a_slow_tree_is_left_alone_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = DiskMeter(SystemClock(), seconds_between=0.0)
    monkeypatch.setattr(disks, "walk", lambda path, stopped: Walked(1, 1))
    ticks = iter([0.0, 30.0])
    known = meter._some(["/"], lambda: next(ticks))["/"]
    assert known.next_at == 30.0 + 30.0 * disks.IDLE_SHARE


async def test_measuring_is_off(walks: Walks) -> None:
    meter = DiskMeter(SystemClock(), seconds_between=-1.0)
    assert await meter.measure(["/"]) == {}
    assert walks.seen == []
    await meter.close()


def test_patience_is_virtual(walks: Walks) -> None:
    @on_virtual_time
    async def check() -> None:
        clock = ThreadClock()
        clock.now()
        meter = DiskMeter(clock)
        _, took = await timed(meter.measure(["/a"]))
        assert took < PATIENCE_S

    check()


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


def test_what_is_measured_of_a_pod() -> None:
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
    assert found.all_words == "/root/pods/u-1/containers"
    assert found.words == {"main": "/root/pods/u-1/containers/main"}
    assert len(list(found.paths())) == 9


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


def test_logs_of_containers_that_are_gone_count_once() -> None:
    found = plan(volumes=[{"name": "disk", "emptyDir": {}}])
    assert found is not None
    measured = {
        "/logs/shop_web_u-1": TreeUse(1, 100, 10),
        "/logs/shop_web_u-1/main": TreeUse(1, 30, 3),
        found.hosts: TreeUse(1, 4, 1),
        found.volumes[0].path: TreeUse(1, 50, 5),
    }
    disk = pod_disk(found, measured)
    assert disk.logs["main"].used == 30
    assert sum(each.used or 0 for each in (*disk.others, *disk.logs.values())) == 104
    assert [each.use.used for each in disk.volumes] == [50]
    assert pod_disk(found, {}).volumes == ()
