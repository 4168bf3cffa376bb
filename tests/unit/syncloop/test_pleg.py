"""The PLEG: the results and the cost of a relist, and how events and relists combine."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Sequence

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus, RuntimePodSummary
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.errors import PermissionDenied, Unavailable, Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.syncloop.event_stream import EventStream
from kubeletpy.syncloop.lifecycle import (
    LifecycleEvent,
    LifecycleType,
    agrees,
    diff,
    goes_forward,
    summarise,
    without,
    worth_waking,
)
from kubeletpy.syncloop.pleg import Pleg, RelistHealth
from tests.kit.pods import runtime_status
from tests.kit.virtual_time import LoopClock, settle

pytestmark = pytest.mark.virtual_time

C, R, E, U = (
    ContainerState.CREATED,
    ContainerState.RUNNING,
    ContainerState.EXITED,
    ContainerState.UNKNOWN,
)


def summary(containers: dict[str, ContainerState], **sandboxes: bool) -> RuntimePodSummary:
    return RuntimePodSummary("u", "n", "ns", sandboxes, containers)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, R, ["ContainerStarted"]),
        (None, C, ["ContainerChanged"]),
        (None, E, ["ContainerDied"]),
        (C, R, ["ContainerStarted"]),
        (R, E, ["ContainerDied"]),
        (R, U, ["ContainerChanged"]),
        (C, U, []),
        (R, R, []),
        (R, None, ["ContainerDied", "ContainerRemoved"]),
        (C, None, ["ContainerDied", "ContainerRemoved"]),
        (E, None, ["ContainerRemoved"]),
    ],
)
def test_diff_of_one_container(
    old: ContainerState | None, new: ContainerState | None, expected: list[str]
) -> None:
    before = None if old is None else summary({"c": old})
    after = None if new is None else summary({"c": new})
    assert [event.type.value for event in diff(before, after)] == expected


def test_sandboxes_count_as_containers() -> None:
    events = diff(summary({}, s=True), summary({}, s=False))
    assert [(e.container_id, e.type.value) for e in events] == [("s", "ContainerDied")]
    assert diff(None, summary({"c": R, "b": E}, s=True)) == [
        LifecycleEvent("u", LifecycleType.DIED, "b"),
        LifecycleEvent("u", LifecycleType.STARTED, "c"),
        LifecycleEvent("u", LifecycleType.STARTED, "s"),
    ]
    assert diff(None, None) == []


def test_a_list_that_agrees_with_the_cache_needs_no_read() -> None:
    known = runtime_status(state=R)
    reported = summarise(known)
    assert agrees(known, reported)
    assert not agrees(runtime_status(state=E), reported)
    assert not agrees(runtime_status(ready=False), reported)
    assert not agrees(without(known, "c1", 5), reported)


@pytest.mark.parametrize(
    ("kinds", "worth"),
    [
        ([], False),
        ([LifecycleType.CHANGED, LifecycleType.REMOVED], False),
        ([LifecycleType.CHANGED, LifecycleType.STARTED], True),
        ([LifecycleType.DIED, LifecycleType.REMOVED], True),
    ],
)
def test_events_that_wake_a_worker(kinds: list[LifecycleType], worth: bool) -> None:
    assert worth_waking(LifecycleEvent("u", kind, "c") for kind in kinds) is worth


@pytest.mark.parametrize(
    ("known", "event", "forward"),
    [
        (None, runtime_status(), True),
        (runtime_status(state=C), runtime_status(state=R), True),
        (runtime_status(state=R), runtime_status(state=E), True),
        (runtime_status(state=E), runtime_status(state=R), False),
        (runtime_status(state=R), runtime_status(state=C), False),
        (runtime_status(state=R), runtime_status(state=None), False),
        (runtime_status(ready=False), runtime_status(ready=True), False),
        (runtime_status(ready=False), runtime_status(ready=False), True),
        (runtime_status(ready=True), runtime_status(ready=False), True),
        (runtime_status(container_id="a"), runtime_status(container_id="b"), False),
        (runtime_status(state=None), replace(runtime_status(state=None), sandboxes=()), False),
    ],
)
def test_events_are_believed_forwards_only(
    known: PodRuntimeStatus | None, event: PodRuntimeStatus, forward: bool
) -> None:
    assert goes_forward(known, event) is forward


@pytest.mark.parametrize("known", [U, C, R, E])
@pytest.mark.parametrize("newer", [U, C, R, E])
def test_a_state_follows_an_earlier_one(known: ContainerState, newer: ContainerState) -> None:
    order = [U, C, R, E]
    forward = order.index(newer) >= order.index(known)
    assert goes_forward(runtime_status(state=known), runtime_status(state=newer)) is forward


def test_removal_takes_a_sandbox_with_its_containers() -> None:
    assert without(runtime_status(), "s1", 5).empty
    left = without(runtime_status(), "c1", 5)
    assert (len(left.sandboxes), left.containers, left.observed_at) == (1, (), 5)
    other = runtime_status(container_id="c2").containers
    both = replace(runtime_status(), containers=(*runtime_status().containers, *other))
    assert without(both, "c1", 5).containers == other


class FakeRuntime:
    """A runtime with fixed statuses that counts its calls."""

    def __init__(self) -> None:
        self.pods: dict[str, PodRuntimeStatus] = {}
        self.lists = self.reads = 0
        self.error: Exception | None = None

    def put(self, status: PodRuntimeStatus) -> None:
        self.pods[status.uid] = status

    async def list_pods(self) -> list[RuntimePodSummary]:
        self.lists += 1
        if self.error is not None:
            raise self.error
        return [summarise(status) for status in self.pods.values()]

    async def get_pod_status(self, uid: str, name: str, namespace: str) -> PodRuntimeStatus:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.pods[uid]


class Setup:
    def __init__(self) -> None:
        self.runtime, self.cache = FakeRuntime(), PodStatusCache()
        self.changes: list[tuple[str, list[str]]] = []
        self.at: list[float] = []
        self.health = RelistHealth()
        self.pleg = Pleg(
            self.runtime.list_pods,
            self.runtime.get_pod_status,
            self.cache,
            LoopClock(),
            self.changed,
            health=self.health,
            metrics=Metrics().pleg,
        )

    def changed(self, uid: str, events: Sequence[LifecycleEvent]) -> None:
        self.changes.append((uid, [event.type.value for event in events]))
        self.at.append(asyncio.get_running_loop().time())


async def test_a_relist_reads_only_what_changed() -> None:
    s = Setup()
    for n in range(60):
        s.runtime.put(runtime_status(f"u{n}", at=1))
    await s.pleg.relist()
    assert (s.runtime.lists, s.runtime.reads, len(s.changes)) == (1, 60, 60)
    assert s.cache.populated
    await s.pleg.relist()
    assert (s.runtime.lists, s.runtime.reads, len(s.changes)) == (2, 60, 60)
    s.runtime.put(runtime_status("u7", E, at=2, exit_code=3))
    await s.pleg.relist()
    assert s.runtime.reads == 61
    assert s.changes[60:] == [("u7", ["ContainerDied"])]
    ended = s.cache.status("u7")
    assert ended is not None
    assert ended.containers[0].exit_code == 3


async def test_a_status_from_the_worker_is_not_read_again() -> None:
    s = Setup()
    await s.pleg.relist()
    s.runtime.put(runtime_status())
    s.cache.set(runtime_status(), own=True)
    await s.pleg.relist()
    assert (s.runtime.reads, s.changes) == (0, [])


async def test_removed_pods() -> None:
    s = Setup()
    s.runtime.put(runtime_status(state=E, ready=False, at=0))
    await s.pleg.relist()
    s.runtime.pods.clear()
    await s.pleg.relist()
    assert s.changes[1] == ("uid-web", ["ContainerRemoved", "ContainerRemoved"])
    assert s.cache.known_absent("uid-web")


async def test_a_read_that_the_cache_refuses_is_repeated() -> None:
    s = Setup()
    s.cache.set(runtime_status(state=R, at=5))
    s.runtime.put(runtime_status(state=E, at=4))
    await s.pleg.relist()
    assert s.cache.status("uid-web") == runtime_status(state=R, at=5)
    s.runtime.put(runtime_status(state=E, at=6))
    await s.pleg.relist()
    assert s.cache.status("uid-web") == runtime_status(state=E, at=6)
    assert s.changes == [("uid-web", ["ContainerDied", "ContainerStarted"])]


async def test_a_read_that_fails_is_repeated() -> None:
    s = Setup()
    s.runtime.put(runtime_status())
    s.cache.set_error(PodRuntimeStatus("uid-web", "web", "default"), "failed before")
    await s.pleg.relist()
    assert s.cache.usable("uid-web") is not None


async def test_health() -> None:
    s = Setup()
    assert s.health.error() == "pleg has yet to be successful"
    await s.pleg.relist()
    s.runtime.error = Unavailable("ListPodSandbox", "gone")
    await asyncio.sleep(180)
    await s.pleg.relist()
    assert s.health.error() == ""
    await asyncio.sleep(1.5)
    assert s.health.error() == "pleg was last seen active 3m1.5s ago; threshold is 3m0s"


class FakeStream:
    """A stream of container events that the test sends; an exception ends it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[cri.ContainerEventResponse | Exception] = asyncio.Queue()
        self.opened: list[float] = []

    async def get_container_events(self) -> AsyncIterator[cri.ContainerEventResponse]:
        self.opened.append(asyncio.get_running_loop().time())
        while True:
            item = await self.queue.get()
            if isinstance(item, Exception):
                raise item
            yield item


class FakeExits:
    """A stream of exits, which the test breaks; None: it ends without an error."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.opened: list[float] = []

    async def follow(self) -> None:
        self.opened.append(asyncio.get_running_loop().time())
        if (error := await self.queue.get()) is not None:
            raise error


class Streaming(Setup):
    def __init__(self) -> None:
        super().__init__()
        self.service = FakeStream()
        self.notified: PodRuntimeStatus | None = None
        self.exits = FakeExits()
        self.stream = EventStream(
            self.service,  # type: ignore[arg-type]
            self.read_event,
            self.cache,
            self.pleg,
            clock=LoopClock(),
            on_change=self.changed,
            follow_exits=self.exits.follow,
            rng=random.Random(1),
        )
        self.tasks = [
            asyncio.ensure_future(self.stream.run()),
            asyncio.ensure_future(self.pleg.run()),
        ]

    async def read_event(
        self, event: cri.ContainerEventResponse, previous: PodRuntimeStatus | None
    ) -> PodRuntimeStatus | None:
        return self.notified

    def send(
        self, kind: str, status: PodRuntimeStatus | None, container_id: str = "c1", ago: float = 0.0
    ) -> None:
        self.notified = status
        event = cri.ContainerEventResponse(
            container_id=container_id,
            container_event_type=f"CONTAINER_{kind}_EVENT",
            created_at=int((LoopClock().now() - ago) * 1e9),
        )
        event.pod_sandbox_status.metadata.uid = "uid-web"
        event.pod_sandbox_status.metadata.name = "web"
        self.service.queue.put_nowait(event)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def now_ns() -> int:
    return int(LoopClock().now() * 1e9)


@pytest.mark.parametrize(
    "refusal",
    [Unimplemented("Subscribe"), PermissionDenied("Subscribe"), None],
    ids=["unknown", "denied", "followed"],
)
async def test_without_events_the_runtime_is_listed_each_second(refusal: Exception | None) -> None:
    s = Streaming()
    s.service.queue.put_nowait(Unimplemented("GetContainerEvents", "no"))
    if refusal is not None:
        s.exits.queue.put_nowait(refusal)
    await asyncio.sleep(10.5)
    assert s.runtime.lists == 11
    assert not s.pleg.has_events
    assert s.tasks[0].done() == (refusal is not None)
    assert len(s.service.opened) == len(s.exits.opened) == 1
    await s.stop()


async def test_a_broken_stream_of_exits_is_tried_again_after_growing_pauses() -> None:
    s = Streaming()
    no = Unimplemented("GetContainerEvents", "no")
    ends = [Unavailable("Subscribe", "lost"), None] * 4
    for end in ends:
        s.service.queue.put_nowait(no)
        s.exits.queue.put_nowait(end)
    s.service.queue.put_nowait(no)
    await asyncio.sleep(60.5)
    assert s.runtime.lists == 61
    at = s.exits.opened
    assert len(at) == len(ends) + 1
    assert all(0.05 <= b - a <= 5.0 for a, b in itertools.pairwise(at))
    assert at[-1] > 5.0
    # after a while without an error the next pause is short again
    s.service.queue.put_nowait(no)
    s.exits.queue.put_nowait(None)
    await asyncio.sleep(0.15)
    assert 60.5 < at[-1] <= 60.6
    await s.stop()


async def test_a_runtime_that_has_events_after_an_upgrade_is_followed() -> None:
    s = Streaming()
    s.service.queue.put_nowait(Unimplemented("GetContainerEvents", "no"))
    await asyncio.sleep(10)
    s.exits.queue.put_nowait(Unavailable("Subscribe", "the runtime restarts"))
    await asyncio.sleep(2)
    assert s.pleg.has_events
    assert len(s.exits.opened) == 1
    await s.stop()


async def test_while_events_flow_relists_become_rare() -> None:
    s = Streaming()
    await asyncio.sleep(1000)
    first = s.runtime.lists
    assert first <= 12
    await asyncio.sleep(3000)
    assert s.runtime.lists - first <= 11
    await s.stop()


async def test_an_exit_is_known_at_once() -> None:
    s = Streaming()
    s.runtime.put(runtime_status(at=now_ns()))
    await asyncio.sleep(20.5)
    lists = s.runtime.lists
    s.runtime.put(runtime_status(state=E, at=now_ns()))
    s.send("STOPPED", s.runtime.pods["uid-web"])
    await settle()
    assert s.changes[-1] == ("uid-web", ["ContainerDied"])
    assert s.at[-1] == 20.5
    assert (s.runtime.lists, s.runtime.reads) == (lists, 1)
    await s.stop()


async def test_events_from_before_the_subscription_are_ignored() -> None:
    s = Streaming()
    s.send("STOPPED", runtime_status(state=E, at=now_ns()), ago=5)
    await asyncio.sleep(0.5)
    assert s.changes == []
    assert s.cache.known_absent("uid-web")
    assert s.runtime.lists >= 1
    s.send("STARTED", runtime_status(at=now_ns()))
    await settle()
    assert s.changes[-1][0] == "uid-web"
    await s.stop()


async def test_an_event_that_contradicts_a_newer_status_triggers_a_read() -> None:
    s = Streaming()
    s.runtime.put(runtime_status(state=E, at=now_ns()))
    await asyncio.sleep(20.5)
    s.send("STARTED", runtime_status(state=R, at=now_ns()))
    await settle()
    assert s.runtime.reads == 2
    known = s.cache.status("uid-web")
    assert known is not None
    assert known.containers[0].state is E
    s.send("STARTED", None)
    await settle()
    assert s.runtime.reads == 3
    await s.stop()


async def test_an_exit_that_a_newer_status_lacks_triggers_a_read() -> None:
    s = Streaming()
    s.runtime.put(runtime_status(state=R, at=now_ns()))
    await asyncio.sleep(20.5)
    s.cache.set(runtime_status(state=R, at=now_ns()), own=True)
    s.runtime.put(runtime_status(state=E, at=now_ns() + 1))
    s.send("STOPPED", runtime_status(state=E, at=now_ns() - 1), ago=0.1)
    await settle()
    assert s.changes[-1] == ("uid-web", ["ContainerDied"])
    assert s.runtime.reads == 2
    s.send("STOPPED", runtime_status(state=E, at=now_ns() - 1), ago=0.1)
    await settle()
    assert s.runtime.reads == 2, "it contains nothing new"
    await s.stop()


async def test_removals_cost_no_question() -> None:
    s = Streaming()
    s.runtime.put(runtime_status(state=E, ready=False, at=now_ns()))
    await asyncio.sleep(20.5)
    s.runtime.pods.clear()
    s.send("DELETED", None, "c1")
    s.send("DELETED", None, "s1")
    await settle()
    assert [events for _, events in s.changes[1:]] == [["ContainerRemoved"], ["ContainerRemoved"]]
    assert s.cache.known_absent("uid-web")
    assert s.runtime.reads == 1
    await s.stop()


@pytest.mark.parametrize("doubt", ["never read", "read before", "acted on"])
async def test_a_removal_does_not_make_a_doubtful_pod_absent(doubt: str) -> None:
    """Otherwise a pod without a status yet would count as absent while its containers run."""
    s = Streaming()
    await asyncio.sleep(20.5)
    s.runtime.put(runtime_status(state=R, at=now_ns()))
    if doubt != "never read":
        s.cache.set(runtime_status(state=R, at=now_ns()))
    if doubt == "acted on":
        s.cache.invalidate("uid-web")
    else:
        nothing = PodRuntimeStatus("uid-web", "web", "default")
        s.cache.set_error(nothing, "ContainerStatus: it did not answer")
    reads = s.runtime.reads
    s.send("DELETED", None, "an older one")
    for _ in range(2):
        assert not s.cache.known_absent("uid-web")
        assert s.cache.is_doubtful("uid-web") or s.runtime.reads > reads
        await settle()
    assert s.runtime.reads == reads + 1
    found = s.cache.usable("uid-web")
    assert found is not None
    assert found.running_containers
    await s.stop()


async def test_a_broken_stream_is_tried_again_and_relisted_meanwhile() -> None:
    s = Streaming()
    await asyncio.sleep(100)
    for _ in range(30):
        s.service.queue.put_nowait(Unavailable("GetContainerEvents", "lost"))
    before, opened = s.runtime.lists, len(s.service.opened)
    await asyncio.sleep(30)
    assert s.runtime.lists - before >= 28
    assert 7 <= len(s.service.opened) - opened <= 20
    await s.stop()


async def test_a_missed_event_makes_relists_frequent_again() -> None:
    s = Streaming()
    await asyncio.sleep(2000)
    s.runtime.put(runtime_status(at=now_ns()))
    await asyncio.sleep(301)
    assert s.changes, "the relist finds what no event reported"
    found, lists = s.at[-1], s.runtime.lists
    s.runtime.put(runtime_status(state=E, at=now_ns()))
    await asyncio.sleep(found + 5.1 - asyncio.get_running_loop().time())
    assert s.runtime.lists > lists or s.at[-1] <= found + 5.1
    await s.stop()
