"""The shutdown of a node on virtual time, with a logind in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.host.errors import DBusError
from kubeletpy.node.shutdown.logind import NoLogind
from kubeletpy.node.shutdown.plan import Period
from kubeletpy.node.shutdown.record import read_record
from kubeletpy.node.shutdown.shutdown_manager import ShutdownManager
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.records import KillOptions
from tests.kit.pods import make_pod
from tests.kit.virtual_time import LoopClock, eventually

pytestmark = pytest.mark.virtual_time

PERIODS = (Period(0, 20), Period(1000, 10))


class FakeLogind:
    """A logind in memory that answers at once; shutdowns come from a queue."""

    def __init__(self) -> None:
        self.delay = 30.0
        self.takes = True
        self.raised: list[int] = []
        self.locks: list[int] = []
        self.parts: asyncio.Queue[bool | None] = asyncio.Queue()
        self.under_way = False
        self.connections = 0

    async def inhibit(self) -> int:
        reading, writing = os.pipe()
        self.locks.append(reading)
        return writing

    async def max_delay(self) -> float:
        return self.delay

    async def shutting_down(self) -> bool:
        return self.under_way

    async def raise_max_delay(self, seconds: int) -> None:
        self.raised.append(seconds)
        if self.takes:
            loop = asyncio.get_running_loop()
            loop.call_later(0.5, setattr, self, "delay", float(seconds))

    async def next_shutdown(self) -> bool:
        word = await self.parts.get()
        if word is None:
            raise DBusError("the bus went away")
        return word

    async def close(self) -> None:
        pass

    def held(self) -> bool:
        """Whether the newest lock is held."""
        if not self.locks:
            return False
        os.set_blocking(self.locks[-1], False)
        try:
            return os.read(self.locks[-1], 1) != b""
        except BlockingIOError:
            return True


class Node:
    """Pods that take a given time to end."""

    def __init__(self, root: Path, pods: dict[str, tuple[int, float]]) -> None:
        self.logind = FakeLogind()
        self.pods = [
            make_pod(name, priority=priority, terminationGracePeriodSeconds=15)
            for name, (priority, _) in pods.items()
        ]
        self.takes = {f"uid-{name}": seconds for name, (_, seconds) in pods.items()}
        self.killed: list[tuple[float, str, int | None]] = []
        self.finished: set[str] = set()
        self.events: list[str] = []
        self.changes: list[bool] = []
        self.times: list[tuple[str, float]] = []
        self.ready: set[str] = set()
        self.api_takes = 0.0
        """Seconds until the API has a status."""
        self.asked: list[tuple[float, list[str]]] = []
        self.has_status_of: set[str] = set()
        """Pods whose status the API has, although it refuses another one."""
        self.volumes: set[str] = set()
        self.unstaged = asyncio.Event()
        self.manager = ShutdownManager(
            PERIODS,
            connect=self.connect,
            pods=lambda: self.pods,
            kill=self.kill,
            is_finished=self.finished.__contains__,
            changed=lambda: self.changes.append(self.manager.shutting_down),
            observe=lambda what, at: self.times.append((what, at - LoopClock().now() + now())),
            recorder=self,
            clock=LoopClock(),
            node_name="n",
            root_dir=root,
            is_ready=lambda uid: uid in self.ready,
            is_reported=lambda uid: uid in self.has_status_of,
            reported=self.reported,
            unused_volumes=lambda: set(self.volumes),
            torn_down=self.torn_down,
        )

    async def connect(self) -> Any:
        self.logind.connections += 1
        return self.logind

    async def reported(self, uids: Collection[str]) -> None:
        self.asked.append((now(), sorted(uids)))
        await asyncio.sleep(self.api_takes)

    async def torn_down(self, but: Collection[str]) -> None:
        while not self.volumes <= set(but):
            self.unstaged.clear()
            await self.unstaged.wait()

    async def kill(self, pod: Pod, options: KillOptions) -> None:
        self.killed.append((now(), pod.name, options.grace_override))
        assert options.status_override is not None
        assert options.status_override({"phase": "Running"})["reason"] == "Terminated"
        asyncio.get_running_loop().call_later(self.takes[pod.uid], self.end, pod.uid)
        await asyncio.sleep(self.takes[pod.uid])

    def end(self, uid: str) -> None:
        self.finished.add(uid)
        self.manager.pod_finished()

    def event(self, ref: Any, kind: str, reason: str, text: str, annotations: Any = None) -> None:
        self.events.append(f"{reason}: {text}")


def now() -> float:
    return round(asyncio.get_running_loop().time(), 2)


async def during(node: Node, work: Callable[[], Any]) -> None:
    running = asyncio.ensure_future(node.manager.run())
    try:
        await eventually(lambda: node.logind.held() or node.manager.shutting_down)
        await work()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert not node.logind.held()


async def test_groups_end_in_order_and_the_lock_is_released_last(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": (0, 3), "b": (0, 5), "critical": (2000, 1)})

    async def work() -> None:
        node.logind.parts.put_nowait(True)
        await eventually(lambda: not node.logind.held())
        assert now() == 6
        assert node.manager.shutting_down

    await during(node, work)
    assert node.killed == [(0, "a", 15), (0, "b", 15), (5, "critical", 10)]
    assert node.events == ["Shutdown: Shutdown manager detected shutdown event"]
    assert node.changes == [True]
    assert node.times == [("start", 0), ("end", 6)]

    booted = Node(tmp_path, {})
    await booted.manager.recall()
    assert [what for what, _ in booted.times] == ["start", "end"]
    assert [at for _, at in booted.times] == pytest.approx([0, 6], abs=0.01)


async def test_services_are_given_notice_before_the_first_pod_ends(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": (0, 3), "critical": (2000, 1)})
    node.ready, node.api_takes = {"uid-a"}, 0.5

    async def work() -> None:
        node.logind.parts.put_nowait(True)
        await eventually(lambda: not node.logind.held())

    await during(node, work)
    # half a second until the API has it, and two for the other nodes: a tenth of the period
    assert node.killed == [(2.5, "a", 15), (5.5, "critical", 10)]
    assert node.asked == [(0, ["uid-a"]), (6.5, ["uid-a", "uid-critical"])]


@pytest.mark.parametrize(("ready", "first"), [({"uid-a"}, 2), (set(), 0)])
async def test_an_api_that_does_not_answer_takes_a_bounded_time(
    tmp_path: Path, ready: set[str], first: float
) -> None:
    node = Node(tmp_path, {"a": (0, 100)})
    node.ready, node.api_takes = ready, 1e6

    async def work() -> None:
        node.logind.parts.put_nowait(True)
        await eventually(lambda: not node.logind.held())
        assert now() == 25, "the group's period and five seconds for its status"

    await during(node, work)
    assert [(at, name) for at, name, _ in node.killed] == [(first, "a")]


async def test_a_status_that_is_refused_costs_the_other_pods_no_notice(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": (0, 3), "refused": (0, 3)})
    node.ready, node.api_takes = {"uid-a", "uid-refused"}, 1e6
    node.has_status_of = {"uid-a"}

    async def work() -> None:
        node.logind.parts.put_nowait(True)
        await eventually(lambda: len(node.killed) == 2)

    await during(node, work)
    assert [at for at, _, _ in node.killed] == [4, 4]


async def test_the_notice_is_part_of_the_grace(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": (0, 100)})
    node.ready, node.api_takes = {"uid-a"}, 1.5
    node.pods[0] = make_pod("a", terminationGracePeriodSeconds=600)

    async def work() -> None:
        node.logind.parts.put_nowait(True)
        await eventually(lambda: bool(node.killed))

    await during(node, work)
    assert node.killed == [(3.5, "a", 16)]


async def test_volumes_are_unstaged_before_the_next_group_ends(tmp_path: Path) -> None:
    """The next group may have the driver. A volume that nobody could unstage is not waited for."""
    node = Node(tmp_path, {"a": (0, 3), "critical": (2000, 1)})
    node.volumes = {"left-by-a-driver-that-is-gone"}

    async def work() -> None:
        node.logind.parts.put_nowait(True)
        await asyncio.sleep(1)
        node.volumes.add("data")
        await asyncio.sleep(6)
        node.volumes.discard("data")
        node.unstaged.set()
        await eventually(lambda: not node.logind.held())
        assert now() == 8

    await during(node, work)
    assert [(at, name) for at, name, _ in node.killed] == [(0, "a"), (7, "critical")]


async def test_the_machine_waits_for_the_last_volume(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": (0, 3)})

    async def work() -> None:
        node.logind.parts.put_nowait(True)
        await asyncio.sleep(1)
        node.volumes.add("data")
        await eventually(lambda: not node.logind.held())
        assert now() == 30, "no longer than all periods together"

    await during(node, work)


async def test_a_shutdown_canceled_during_the_notice_ends_no_pod(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": (0, 3)})
    node.ready = {"uid-a"}

    async def work() -> None:
        node.logind.parts.put_nowait(True)
        await asyncio.sleep(1)
        over = node.manager.over()
        assert over is not None
        node.logind.parts.put_nowait(False)
        await over
        await asyncio.sleep(100)
        assert node.manager.over() is None

    await during(node, work)
    assert node.killed == []


async def test_a_shutdown_canceled_while_the_bus_was_lost_is_over(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": (0, 8)})

    async def work() -> None:
        node.logind.parts.put_nowait(True)
        await eventually(lambda: bool(node.killed))
        node.logind.parts.put_nowait(None)
        await eventually(lambda: node.logind.connections == 2)
        await eventually(lambda: not node.manager.shutting_down)
        assert node.logind.held()

    await during(node, work)


async def test_pods_that_could_look_completed_are_recorded_before_they_end(tmp_path: Path) -> None:
    node = Node(tmp_path, {"always": (0, 3)})
    node.pods += [
        make_pod("job", restartPolicy="Never"),
        make_pod("other", restartPolicy="OnFailure"),
    ]
    recorded: list[set[str]] = []

    async def kill(pod: Pod, options: KillOptions) -> None:
        recorded.append(set(read_record(tmp_path).ended))
        node.end(pod.uid)

    node.manager.kill = kill

    async def work() -> None:
        node.logind.parts.put_nowait(True)
        await eventually(lambda: not node.logind.held())

    await during(node, work)
    assert recorded == [{"uid-job", "uid-other"}] * 3
    booted = Node(tmp_path, {})
    await booted.manager.recall()
    running: Any = {"phase": "Running"}
    told = [booted.manager.with_earlier_end(each, running) for each in node.pods]
    assert [each["phase"] for each in told] == ["Running", "Failed", "Failed"]
    assert told[1]["reason"] == "Terminated"
    assert told[1]["conditions"][0]["type"] == "DisruptionTarget"
    done: Any = {"phase": "Succeeded"}
    assert booted.manager.with_earlier_end(node.pods[1], done) is done


async def test_a_stop_waits_until_no_pod_is_being_ended(tmp_path: Path) -> None:
    node, ended = Node(tmp_path, {"a": (0, 3)}), []

    async def kill(pod: Pod, options: KillOptions) -> None:
        try:
            await asyncio.sleep(3)
        finally:
            await asyncio.sleep(0)
            ended.append(pod.name)

    async def work() -> None:
        node.logind.parts.put_nowait(True)
        await asyncio.sleep(1)

    node.manager.kill = kill
    await during(node, work)
    assert ended == ["a"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_pod_that_does_not_end_holds_up_its_group_for_its_period_only(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, {"deaf": (0, 1e6), "critical": (2000, 1e6)})

    async def work() -> None:
        node.logind.parts.put_nowait(True)
        await eventually(lambda: not node.logind.held())
        assert now() == 30

    await during(node, work)
    assert [(at, name) for at, name, _ in node.killed] == [(0, "deaf"), (20, "critical")]


async def test_a_canceled_shutdown_ends_no_more_pods_and_takes_the_lock_again(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, {"a": (0, 8), "critical": (2000, 1)})

    async def work() -> None:
        node.logind.parts.put_nowait(True)
        await asyncio.sleep(2)
        node.logind.parts.put_nowait(False)
        await asyncio.sleep(100)
        assert not node.manager.shutting_down
        assert node.logind.held()

    await during(node, work)
    assert [name for _, name, _ in node.killed] == ["a"]
    assert node.changes == [True, False]
    assert node.events[1:] == ["Shutdown: Shutdown manager detected shutdown cancellation"]


async def test_the_delay_of_logind_is_raised_before_the_lock_is_taken(tmp_path: Path) -> None:
    node = Node(tmp_path, {})
    node.logind.delay = 5.0
    await during(node, lambda: asyncio.sleep(0))
    assert node.logind.raised == [30]
    assert node.logind.delay == 30


async def test_a_logind_that_refuses_a_longer_delay_is_used_anyway(
    tmp_path: Path, caplog: Any
) -> None:
    node = Node(tmp_path, {})
    node.logind.delay, node.logind.takes = 5.0, False
    await during(node, lambda: asyncio.sleep(0))
    assert "will not delay" in caplog.text


async def test_a_lost_bus_is_found_again_and_nothing_is_forgotten(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": (0, 3)})

    async def work() -> None:
        node.logind.parts.put_nowait(None)
        await eventually(lambda: node.logind.connections == 2)
        assert now() == 1
        assert len(node.logind.locks) == 1
        node.logind.parts.put_nowait(True)
        await eventually(lambda: not node.logind.held())

    await during(node, work)
    assert [name for _, name, _ in node.killed] == ["a"]


async def test_an_agent_that_starts_during_a_shutdown_ends_the_pods(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": (0, 3)})
    node.logind.under_way = True
    await during(node, lambda: eventually(lambda: "uid-a" in node.finished))
    assert node.manager.shutting_down


async def test_without_logind_it_is_off_and_logs_that_once(tmp_path: Path, caplog: Any) -> None:
    node = Node(tmp_path, {})

    async def none() -> Any:
        raise NoLogind("there is no system bus")

    node.manager.connect = none
    await node.manager.run()
    assert caplog.text.count("graceful node shutdown is off") == 1


async def test_a_bus_that_is_replaced_is_found_again(tmp_path: Path) -> None:
    node = Node(tmp_path, {"a": (0, 3)})
    missing = iter((False, True, True, False))

    async def connect() -> Any:
        if next(missing):
            raise NoLogind("there is no system bus")
        return await node.connect()

    node.manager.connect = connect

    async def work() -> None:
        node.logind.parts.put_nowait(None)
        await eventually(lambda: node.logind.connections == 2)
        assert now() == 3

    await during(node, work)


async def test_without_periods_logind_is_not_contacted(tmp_path: Path) -> None:
    node = Node(tmp_path, {})
    node.manager._periods = ()
    assert not node.manager.enabled
    await node.manager.run()
    assert node.logind.connections == 0
