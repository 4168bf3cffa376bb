"""Local storage limits: when pods are measured and which are evicted, on virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.node.eviction.decide import AT_ONCE, PERIOD_S, Rules, Share
from kubeletpy.node.eviction.keeper import EvictionKeeper
from kubeletpy.node.eviction.machine import Unwatched
from kubeletpy.node.eviction.ranking import Reclaim
from kubeletpy.node.stats.disk_plan import PodStorage
from kubeletpy.pods.pod import Excluded, Pod
from kubeletpy.podworkers.records import KillOptions
from tests.unit.podworkers.builders import make_pod
from tests.virtual_time import EPOCH, on_virtual_time

FULL = PodStorage({"v": 2 << 20})


def limited(name: str) -> Pod:
    return make_pod(name, volumes=[{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}])


class Node:
    """Pods, a test double for measurements, and kills that take ``kill_s``."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = {pod.uid: pod for pod in pods}
        self.uses: dict[str, PodStorage] = {}
        self.looks: list[tuple[float, dict[str, bool]]] = []
        self.measuring_s = 0.0
        self.killed: list[tuple[float, str, KillOptions]] = []
        self.kill_s = 0.0
        self.over: set[str] = set()
        self.events: list[tuple[str, str, str]] = []
        self.evicted: Counter[str] = Counter()
        self.closed = False
        self.failing: dict[str, int] = {}
        """Number of failed attempts to end a pod, by name."""
        self.blind_looks = 0
        self.keeper = EvictionKeeper(
            Rules(),
            Unwatched(),
            Unwatched(),
            self,
            pod=self.pods.get,
            pods=lambda: list(self.pods.values()),
            has_stopped=self.over.__contains__,
            is_over=self.over.__contains__,
            kill=self.kill,
            reclaim=self.reclaim,
            clear=self.clear,
            changed=lambda: None,
            recorder=self,
            evicted=lambda signal: self.evicted.update((signal,)),
            clock=self,
            node_name="n1",
        )

    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    async def measure(self, desired: Mapping[str, bool]) -> Mapping[str, PodStorage]:
        self.looks.append((asyncio.get_running_loop().time(), dict(desired)))
        await asyncio.sleep(self.measuring_s)
        if self.blind_looks:
            self.blind_looks -= 1
            raise OSError("the disk does not answer")
        return {uid: self.uses[uid] for uid in desired if uid in self.uses}

    async def close(self) -> None:
        self.closed = True

    async def kill(self, pod: Pod, options: KillOptions) -> None:
        self.killed.append((asyncio.get_running_loop().time(), pod.name, options))
        if self.failing.get(pod.name):
            self.failing[pod.name] -= 1
            raise RuntimeError("the worker is not what it was")
        async with asyncio.timeout(10):
            await asyncio.sleep(self.kill_s)
        self.over.add(pod.uid)

    async def reclaim(self, what: Reclaim) -> bool:
        raise AssertionError("nothing is short here")

    async def clear(self, uid: str, *, unreported: bool) -> bool:
        return True

    def event(
        self,
        involved: api.ObjectReference,
        kind: str,
        reason: str,
        message: str,
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        assert annotations is None
        self.events.append((involved["name"], f"{kind} {reason}", message))

    def changed(self) -> None:
        self.keeper.pods_changed([uid for uid in self.pods if uid not in self.over])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.keeper.run())
        self.changed()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.keeper.close()
            assert self.closed


@on_virtual_time
async def test_no_timer_without_limits() -> None:
    node = Node(make_pod("plain"))
    async with node.running():
        await asyncio.sleep(1)
        timers = [t for t in asyncio.get_running_loop()._scheduled if not t.cancelled()]  # type: ignore[attr-defined]
        assert timers == []
        await asyncio.sleep(3600)
    assert node.looks == []


@on_virtual_time
async def test_a_limit_exceeded_between_two_measurements() -> None:
    node = Node(limited("a"), limited("b"), make_pod("plain"))
    async with node.running():
        await asyncio.sleep(PERIOD_S * 2.5)
        assert [at for at, _ in node.looks] == [10, 20]
        assert node.looks[0][1] == {"uid-a": False, "uid-b": False}
        assert node.killed == []
        node.uses["uid-a"] = FULL
        await asyncio.sleep(PERIOD_S)
        ((at, name, options),) = node.killed
        assert (at, name) == (30, "a")
        assert (options.grace_override, options.evict) == (1, True)
        assert options.status_override is not None
        message = 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '
        status = options.status_override({"phase": "Running"})
        assert status == {"phase": "Failed", "reason": "Evicted", "message": message}
        assert node.events == [("a", "Warning Evicted", message)]
        assert node.evicted == {"emptydirfs.limit": 1}
        await asyncio.sleep(60)
        assert len(node.killed) == len(node.events) == 1
        assert node.looks[-1][1] == {"uid-b": False}


@on_virtual_time
async def test_the_timer_ends_with_the_last_pod_that_has_a_limit() -> None:
    node = Node(limited("a"))
    async with node.running():
        await asyncio.sleep(15)
        del node.pods["uid-a"]
        node.changed()
        await asyncio.sleep(600)
        assert len(node.looks) == 1
        node.pods["uid-b"] = limited("b")
        node.changed()
        await asyncio.sleep(15)
        assert node.looks[1:] == [(625, {"uid-b": False})]


@on_virtual_time
async def test_a_pod_removed_during_its_measurement() -> None:
    node = Node(limited("gone"), limited("over"))
    node.uses = {"uid-gone": FULL, "uid-over": FULL}
    node.measuring_s = 2
    async with node.running():
        await asyncio.sleep(11)
        assert len(node.looks) == 1
        del node.pods["uid-gone"]
        node.over.add("uid-over")
        node.changed()
        await asyncio.sleep(60)
    assert node.killed == []
    assert node.events == []


@on_virtual_time
async def test_unmeasured_pods_are_measured_again() -> None:
    node = Node(limited("a"))
    async with node.running():
        await asyncio.sleep(35)
        assert len(node.looks) == 3
        assert node.killed == []
        node.uses["uid-a"] = FULL
        await asyncio.sleep(PERIOD_S)
        assert len(node.killed) == 1


@on_virtual_time
async def test_a_pod_that_does_not_end_is_reported_once_and_blocks_no_other() -> None:
    node = Node(limited("a"), limited("b"))
    node.uses["uid-a"] = FULL
    node.kill_s = 3600
    async with node.running():
        await asyncio.sleep(12)
        node.uses["uid-b"] = FULL
        await asyncio.sleep(60)
    assert [(at, name) for at, name, _ in node.killed] == [(10, "a"), (20, "b")]
    assert len(node.events) == 2


@on_virtual_time
async def test_many_pods_are_ended_a_few_at_a_time() -> None:
    node = Node(*(limited(f"p{n}") for n in range(2 * AT_ONCE + 1)))
    node.uses = dict.fromkeys(node.pods, FULL)
    node.kill_s = 3
    async with node.running():
        await asyncio.sleep(60)
    assert Counter(at for at, _, _ in node.killed) == {10: AT_ONCE, 13: AT_ONCE, 16: 1}


@on_virtual_time
async def test_a_pod_may_be_removed_while_its_eviction_is_queued() -> None:
    node = Node(*(limited(f"p{n}") for n in range(AT_ONCE + 1)))
    node.uses = dict.fromkeys(node.pods, FULL)
    node.kill_s = 3
    last = list(node.pods)[-1]
    async with node.running():
        await asyncio.sleep(11)
        del node.pods[last]
        node.changed()
        await asyncio.sleep(60)
    assert len(node.killed) == len(node.events) == AT_ONCE


@on_virtual_time
async def test_a_failed_eviction_is_retried_and_blocks_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node(limited("a"), limited("b"))
    node.uses = dict.fromkeys(node.pods, FULL)
    node.failing = {"a": 2}
    async with node.running():
        await asyncio.sleep(12)
        assert node.over == {"uid-b"}
        await asyncio.sleep(60)
        assert node.over == {"uid-a", "uid-b"}
    assert [(at, name) for at, name, _ in node.killed if name == "a"] == [
        (10, "a"),
        (20, "a"),
        (30, "a"),
    ]
    assert caplog.text.count("pod could not be evicted; trying again") == 2
    assert "exception was never retrieved" not in caplog.text


@on_virtual_time
async def test_a_failed_measurement_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(limited("a"))
    node.uses["uid-a"] = FULL
    node.blind_looks = 2
    async with node.running():
        await asyncio.sleep(60)
    assert [at for at, _, _ in node.killed] == [30]
    assert caplog.text.count("local storage could not be measured") == 2


@on_virtual_time
async def test_a_uid_that_returns_is_watched_again() -> None:
    node = Node(limited("a"))
    node.uses["uid-a"] = FULL
    async with node.running():
        await asyncio.sleep(12)
        node.changed()
        node.over.clear()
        node.changed()
        await asyncio.sleep(12)
    assert len(node.killed) == 2


@on_virtual_time
async def test_layers_are_measured_where_they_count() -> None:
    resources: Any = {"limits": {"ephemeral-storage": "1Mi"}}
    pod = make_pod("a", containers=[{"name": "main", "image": "i", "resources": resources}])
    node = Node(pod)
    node.uses["uid-a"] = PodStorage({}, {"main": 2 << 20}, 0)
    async with node.running():
        await asyncio.sleep(12)
    assert node.looks[0][1] == {"uid-a": True}
    assert node.evicted == {"ephemeralcontainerfs.limit": 1}


@on_virtual_time
async def test_the_record_of_evicted_pods() -> None:
    node = Node(limited("a"), limited("b"), limited("c"), limited("d"))
    node.uses = {
        "uid-a": FULL,
        "uid-b": PodStorage({"v": 100}),
        "uid-c": PodStorage({"v": 900}),
    }
    async with node.running():
        await asyncio.sleep(PERIOD_S + 1)
    (eviction,) = node.keeper.done_for_limits
    assert eviction.at == EPOCH + PERIOD_S
    assert (eviction.pod.name, eviction.pod.share) == ("a", Share("emptyDir v", 2 << 20, 1 << 20))
    assert [(each.name, each.share.used) for each in eviction.ranking] == [("c", 900), ("b", 100)]


@on_virtual_time
async def test_a_critical_pod_over_its_limit_is_kept_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    volumes = [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]
    node = Node(make_pod("critical", volumes=volumes, priority=2_000_000_000), limited("other"))
    node.uses = {"uid-critical": FULL}
    async with node.running():
        assert node.keeper.excluded("uid-critical") is None
        await asyncio.sleep(PERIOD_S * 3.5)
        assert node.killed == []
        assert node.keeper.excluded("uid-critical") == Excluded("emptyDir v", 2 << 20, 1 << 20, 10)
        assert node.keeper.excluded("uid-other") is None
        stated = [each for each in caplog.records if "critical pod exceeds" in each.message]
        assert len(stated) == 1
        node.uses = {"uid-critical": PodStorage({"v": 1})}
        await asyncio.sleep(PERIOD_S)
        assert node.keeper.excluded("uid-critical") is None


@on_virtual_time
async def test_a_critical_pod_is_never_next() -> None:
    volumes = [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]
    node = Node(limited("a"), make_pod("critical", volumes=volumes, priority=2_000_000_000))
    node.uses = {"uid-a": FULL, "uid-critical": PodStorage({"v": 1000})}
    async with node.running():
        await asyncio.sleep(PERIOD_S * 1.5)
        (eviction,) = node.keeper.done_for_limits
        assert eviction.pod.uid == "uid-a"
        assert eviction.ranking == ()
