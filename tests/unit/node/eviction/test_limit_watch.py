"""Local storage limits: when pods are measured and which are evicted, on virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.node.eviction.decide import (
    AT_ONCE,
    CONTAINER_SIGNAL,
    PERIOD_S,
    POD_SIGNAL,
    VOLUME_SIGNAL,
    Limit,
    LimitPlace,
    LocalStorageEviction,
    LocalStorageLimits,
    Rules,
    Share,
    evicted_status,
    judge,
    limits_of,
    nearest,
    next_to_go,
)
from kubeletpy.node.eviction.keeper import EvictionKeeper
from kubeletpy.node.eviction.machine import Unwatched
from kubeletpy.node.eviction.ranking import Reclaim
from kubeletpy.node.stats.disk_plan import PodStorage
from kubeletpy.pods.pod import Excluded, Pod
from kubeletpy.podworkers.records import KillOptions
from tests.kit.pods import make_pod
from tests.kit.virtual_time import EPOCH

pytestmark = pytest.mark.virtual_time

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


async def test_no_timer_without_limits() -> None:
    node = Node(make_pod("plain"))
    async with node.running():
        await asyncio.sleep(1)
        timers = [t for t in asyncio.get_running_loop()._scheduled if not t.cancelled()]  # type: ignore[attr-defined]
        assert timers == []
        await asyncio.sleep(3600)
    assert node.looks == []


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


async def test_unmeasured_pods_are_measured_again() -> None:
    node = Node(limited("a"))
    async with node.running():
        await asyncio.sleep(35)
        assert len(node.looks) == 3
        assert node.killed == []
        node.uses["uid-a"] = FULL
        await asyncio.sleep(PERIOD_S)
        assert len(node.killed) == 1


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


async def test_many_pods_are_ended_a_few_at_a_time() -> None:
    node = Node(*(limited(f"p{n}") for n in range(2 * AT_ONCE + 1)))
    node.uses = dict.fromkeys(node.pods, FULL)
    node.kill_s = 3
    async with node.running():
        await asyncio.sleep(60)
    assert Counter(at for at, _, _ in node.killed) == {10: AT_ONCE, 13: AT_ONCE, 16: 1}


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


async def test_a_failed_measurement_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(limited("a"))
    node.uses["uid-a"] = FULL
    node.blind_looks = 2
    async with node.running():
        await asyncio.sleep(60)
    assert [at for at, _, _ in node.killed] == [30]
    assert caplog.text.count("local storage could not be measured") == 2


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


async def test_layers_are_measured_where_they_count() -> None:
    resources: Any = {"limits": {"ephemeral-storage": "1Mi"}}
    pod = make_pod("a", containers=[{"name": "main", "image": "i", "resources": resources}])
    node = Node(pod)
    node.uses["uid-a"] = PodStorage({}, {"main": 2 << 20}, 0)
    async with node.running():
        await asyncio.sleep(12)
    assert node.looks[0][1] == {"uid-a": True}
    assert node.evicted == {"ephemeralcontainerfs.limit": 1}


async def test_the_record_of_evicted_pods() -> None:
    node = Node(limited("a"), limited("b"), limited("c"), limited("d"))
    node.uses = {"uid-a": FULL, "uid-b": PodStorage({"v": 100}), "uid-c": PodStorage({"v": 900})}
    async with node.running():
        await asyncio.sleep(PERIOD_S + 1)
    (eviction,) = node.keeper.done_for_limits
    assert eviction.at == EPOCH + PERIOD_S
    assert (eviction.pod.name, eviction.pod.share) == ("a", Share("emptyDir v", 2 << 20, 1 << 20))
    assert [(each.name, each.share.used) for each in eviction.ranking] == [("c", 900), ("b", 100)]


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


async def test_a_critical_pod_is_never_next() -> None:
    volumes = [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]
    node = Node(limited("a"), make_pod("critical", volumes=volumes, priority=2_000_000_000))
    node.uses = {"uid-a": FULL, "uid-critical": PodStorage({"v": 1000})}
    async with node.running():
        await asyncio.sleep(PERIOD_S * 1.5)
        (eviction,) = node.keeper.done_for_limits
        assert eviction.pod.uid == "uid-a"
        assert eviction.ranking == ()


# Which local storage limit a pod exceeds, and the message.

KI, MI = 1024, 1 << 20
MEBIBYTE = Limit(Decimal(MI), "1Mi")


def container(name: str = "main", limit: str | None = None, **more: Any) -> dict[str, Any]:
    limits = {} if limit is None else {"ephemeral-storage": limit}
    return {"name": name, "image": "img", "resources": {"limits": limits}, **more}


def volume(name: str, **source: Any) -> dict[str, Any]:
    return {"name": name, "emptyDir": source}


def judged(pod: Pod, use: PodStorage) -> LocalStorageEviction | None:
    limits = limits_of(pod)
    assert limits is not None
    return judge(limits, use)


def test_a_volume_over_its_size() -> None:
    pod = make_pod(volumes=[volume("cache", sizeLimit="4Mi"), volume("free")])
    assert judged(pod, PodStorage({"cache": 4 * MI, "free": 1 << 40}, {}, 1 << 41)) is None
    assert judged(pod, PodStorage({"cache": 4 * MI + 1})) == LocalStorageEviction(
        VOLUME_SIGNAL,
        'Usage of EmptyDir volume "cache" exceeds the limit "4Mi". ',
        Share("emptyDir cache", 4 * MI + 1, 4 * MI),
    )


def test_the_first_volume_in_the_spec_is_named() -> None:
    pod = make_pod(volumes=[volume("b", sizeLimit="1k"), volume("a", sizeLimit="1k")])
    verdict = judged(pod, PodStorage({"a": 5000, "b": 5000}))
    assert verdict is not None
    assert '"b"' in verdict.message


def test_a_container_over_its_limit() -> None:
    pod = make_pod(containers=[container("a", "1Mi"), container("b", "4Mi"), container("c")])
    assert judged(pod, PodStorage({}, {"a": MI, "b": 4 * MI, "c": 1 << 40}, 5 * MI)) is None
    assert judged(pod, PodStorage({}, {"a": MI + 1}, MI + 1)) == LocalStorageEviction(
        CONTAINER_SIGNAL,
        'Container a exceeded its local ephemeral storage limit "1Mi". ',
        Share("container a", MI + 1, MI),
    )


def test_a_pod_over_the_sum_of_its_containers() -> None:
    pod = make_pod(containers=[container("a", "1Mi"), container("b", "3Mi")])
    assert judged(pod, PodStorage({}, {"a": MI, "b": 3 * MI}, 4 * MI)) is None
    assert judged(pod, PodStorage({}, {}, 4 * MI + 1)) == LocalStorageEviction(
        POD_SIGNAL,
        "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ",
        Share("all of the pod", 4 * MI + 1, 4 * MI),
    )


def test_volumes_are_checked_before_the_pod_and_the_pod_before_containers() -> None:
    pod = make_pod(containers=[container("a", "1Mi")], volumes=[volume("v", sizeLimit="1Mi")])
    much = PodStorage({"v": 2 * MI}, {"a": 2 * MI}, 4 * MI)
    verdict = judged(pod, much)
    assert verdict is not None
    assert verdict.signal == VOLUME_SIGNAL
    verdict = judged(pod, PodStorage({"v": 0}, much.containers, much.total))
    assert verdict is not None
    assert verdict.signal == POD_SIGNAL


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (("1Gi",), "1Gi"),
        (("1024Mi",), "1Gi"),
        (("0", "1024Mi"), "1Gi"),
        (("0", "0Ki"), "0"),
        (("512Mi", "512Mi"), "1Gi"),
        (("1536Mi", "512Mi"), "2Gi"),
        (("1Gi", "1Mi"), "1025Mi"),
        (("1Gi", "1G"), "2073741824"),
        (("1Mi", "1024k"), "2024Ki"),
        (("1024k", "1Mi"), "2072576"),
        (("1G", "1500M"), "2500M"),
        (("500", "500"), "1k"),
        (("0", "1Gi"), "1Gi"),
        (("0", "1Ki", "1Ki"), "2Ki"),
        (("1500m",), "1500m"),
    ],
)
def test_how_a_sum_is_written(limits: tuple[str, ...], text: str) -> None:
    pod = make_pod(containers=[container(f"c{n}", each) for n, each in enumerate(limits)])
    found = limits_of(pod)
    assert found is not None
    assert found.pod is not None
    assert found.pod.text == text


def test_limits_of_init_containers_count_for_the_pod_only() -> None:
    sidecar = container("side", "1Mi", restartPolicy="Always")
    pod = make_pod(
        containers=[container("main", "1Mi")], initContainers=[sidecar, container("init", "9Mi")]
    )
    found = limits_of(pod)
    assert found is not None
    assert found.pod is not None
    assert found.pod.size == 10 * MI
    assert set(found.containers) == {"main", "side"}
    verdict = judge(found, PodStorage({}, {"side": 2 * MI}, 2 * MI))
    assert verdict is not None
    assert verdict.signal == CONTAINER_SIGNAL
    assert verdict.message == ('Container side exceeded its local ephemeral storage limit "1Mi". ')


def test_a_limit_of_one_container_limits_the_pod() -> None:
    pod = make_pod(containers=[container("a", "1Mi"), container("b")])
    verdict = judged(pod, PodStorage({}, {"b": 2 * MI}, 2 * MI))
    assert verdict is not None
    assert verdict.signal == POD_SIGNAL


def test_a_limit_of_zero() -> None:
    pod = make_pod(containers=[container("a", "0")])
    found = limits_of(pod)
    assert found is not None
    assert found.containers == {}
    assert found.pod is not None
    assert found.pod.size == Decimal(0)
    assert judge(found, PodStorage()) is None
    verdict = judge(found, PodStorage(total=1))
    assert verdict is not None
    assert verdict.message.endswith("limit of containers 0. ")


@pytest.mark.parametrize(
    "pod",
    [
        make_pod(),
        make_pod(volumes=[volume("v"), {"name": "c", "configMap": {"name": "c"}}]),
        make_pod(volumes=[volume("v", sizeLimit="1Mi", medium="Memory")]),
        make_pod(volumes=[volume("v", sizeLimit="0")]),
        make_pod(volumes=[volume("v", sizeLimit="-1")]),
        make_pod(volumes=[volume("v", sizeLimit="much")]),
        make_pod(volumes=[{"name": "v", "emptyDir": None}]),
        make_pod(containers=[{"name": "a", "image": "i", "resources": None}]),
        make_pod(containers=[container("a", "much")]),
    ],
    ids=(
        "nothing",
        "no size",
        "in memory",
        "zero",
        "negative",
        "unreadable volume",
        "empty source",
        "no resources",
        "unreadable container",
    ),
)
def test_pods_without_limits(pod: Pod) -> None:
    assert limits_of(pod) is None


def test_huge_pages_are_limited_like_a_disk() -> None:
    found = limits_of(make_pod(volumes=[volume("v", sizeLimit="2Mi", medium="HugePages")]))
    assert found is not None
    assert set(found.volumes) == {"v"}


def test_readable_limits_apply() -> None:
    found = limits_of(make_pod(containers=[container("a", "1Mi"), container("b", "much")]))
    assert found == LocalStorageLimits({}, {"a": MEBIBYTE}, None)
    found = limits_of(make_pod(volumes=[volume("v", sizeLimit="1")]))
    assert found == LocalStorageLimits({"v": Limit(Decimal(1), "1")})


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        (LocalStorageLimits({"v": MEBIBYTE}), False),
        (LocalStorageLimits({}, {"a": MEBIBYTE}), True),
        (LocalStorageLimits({}, {}, MEBIBYTE), True),
    ],
)
def test_which_limits_layers_count_for(limits: LocalStorageLimits, count: bool) -> None:
    assert limits.of_layers is count
    assert nearest(limits, PodStorage()).used == 0


def test_layers_are_measured_only_where_they_count() -> None:
    only_volumes = limits_of(make_pod(volumes=[volume("v", sizeLimit="1Mi")]))
    assert only_volumes is not None
    assert not only_volumes.of_layers
    containers = limits_of(make_pod(containers=[container("a", "1Mi")]))
    assert containers is not None
    assert containers.of_layers


def test_the_status_of_an_evicted_pod() -> None:
    ready: Any = {"type": "Ready", "status": "False"}
    old: Any = {"phase": "Running", "conditions": [ready], "hostIP": "10.0.0.1"}
    new = evicted_status(
        old, LocalStorageEviction(VOLUME_SIGNAL, "too much. ", Share("emptyDir v", 2, 1))
    )
    assert new == {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "too much. ",
        "conditions": [ready],
        "hostIP": "10.0.0.1",
    }
    assert old["phase"] == "Running", "what arrived is never changed"


@pytest.mark.parametrize(
    ("use", "share"),
    [
        (PodStorage({"v": 3 * MI}, {"a": MI}, 4 * MI), Share("emptyDir v", 3 * MI, 4 * MI)),
        (PodStorage({"v": MI}, {"a": 3 * MI}, 4 * MI), Share("container a", 3 * MI, 4 * MI)),
        (PodStorage({"v": MI}, {"a": MI}, 7 * MI), Share("all of the pod", 7 * MI, 8 * MI)),
        (PodStorage(), Share("emptyDir v", 0, 4 * MI)),
    ],
)
def test_the_limit_that_is_the_nearest(use: PodStorage, share: Share) -> None:
    pod = make_pod(
        containers=[container("a", "4Mi"), container("b", "4Mi")],
        volumes=[volume("v", sizeLimit="4Mi"), volume("free")],
    )
    limits = limits_of(pod)
    assert limits is not None
    assert nearest(limits, use) == share


def test_pods_closest_to_their_limits() -> None:
    def place(uid: str, used: int, limit: int) -> LimitPlace:
        return LimitPlace("ns", uid, uid, Share("emptyDir v", used, limit))

    places = [place("d", 9, 100), place("b", 5, 10), place("a", 50, 100), place("z", 1, 0)]
    assert [each.uid for each in next_to_go(places)] == ["z", "a", "b", "d"]
    assert len(next_to_go([place(str(n), n, 100) for n in range(9)])) == 5
