"""Early polls: of init containers, and of what the runtime's task events report as ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    SandboxStatus,
)
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.errors import Unavailable, Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.syncloop.event_stream import MAX_EARLY_EXITS, EarlyPolls
from tests.kit.pods import pod_object
from tests.kit.virtual_time import settle

pytestmark = pytest.mark.virtual_time


@dataclass
class Node:
    """The pod web with init containers first, proxy (a sidecar) and the container main."""

    has_events: bool = False
    running: bool = True
    fails: bool = False
    looks: list[tuple[float, str]] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    cache: PodStatusCache = field(default_factory=PodStatusCache)
    exits: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        first = {"name": "first", "image": "i"}
        proxy = {"name": "proxy", "image": "i", "restartPolicy": "Always"}
        current = Pod(pod_object("web", initContainers=[first, proxy]))
        node = self
        pleg = SimpleNamespace(
            has_events=self.has_events, read_soon=lambda uid, *_: node.reads.append(uid)
        )

        class Runtime:
            async def container_status(self, container_id: str) -> cri.ContainerStatusResponse:
                node.looks.append((asyncio.get_running_loop().time(), container_id))
                if node.fails:
                    raise Unavailable("ContainerStatus", "gone")
                state = cri.CONTAINER_RUNNING if node.running else cri.CONTAINER_EXITED
                return cri.ContainerStatusResponse(status=cri.ContainerStatus(state=state))

            async def pod_sandbox_status(self, sandbox_id: str) -> cri.PodSandboxStatusResponse:
                node.looks.append((asyncio.get_running_loop().time(), sandbox_id))
                state = cri.SANDBOX_READY if node.running else cri.SANDBOX_NOTREADY
                return cri.PodSandboxStatusResponse(status=cri.PodSandboxStatus(state=state))

        async def exits() -> AsyncIterator[str]:
            while (exited := await node.exits.get()) is not None:
                yield exited
            raise Unavailable("Subscribe", "lost")

        self.polls: Any = EarlyPolls(
            Runtime(),  # type: ignore[arg-type]
            self.cache,
            pleg,  # type: ignore[arg-type]
            lambda uid: (current, None) if uid == current.uid else None,
            exits,
        )
        self.cache.subscribe(self.polls.changed)

    def runs(
        self,
        name: str,
        container_id: str,
        at: int = 1,
        state: ContainerState = ContainerState.RUNNING,
    ) -> None:
        record = ContainerStatus(container_id, name, state)
        sandbox = SandboxStatus("s1", ready=True)
        self.cache.set(
            PodRuntimeStatus(
                "uid-web", "web", "default", (sandbox,), containers=(record,), observed_at=at
            )
        )

    def follow(self) -> asyncio.Task[None]:
        """Follow the exits that the test puts into the queue."""
        return asyncio.ensure_future(self.polls.follow_exits())


async def test_polls_come_at_growing_intervals_until_the_exit_and_the_pod_is_read_then() -> None:
    node = Node()
    node.runs("first", "c1")
    await asyncio.sleep(0.15)
    node.running = False
    await asyncio.sleep(5)
    assert [round(at, 3) for at, _ in node.looks] == [0.02, 0.06, 0.14, 0.3]
    assert node.reads == ["uid-web"]


async def test_a_long_one_is_left_to_the_relist() -> None:
    node = Node()
    node.runs("first", "c1")
    await asyncio.sleep(100)
    assert len(node.looks) == 6
    assert node.reads == []
    # the same container is not polled again, the next one is
    node.cache.set_error(PodRuntimeStatus("uid-web", "web", "default"), "boom")
    node.runs("first", "c1", at=2)
    await asyncio.sleep(100)
    assert len(node.looks) == 6
    node.runs("first", "c2", at=3)
    await asyncio.sleep(0.03)
    node.runs("first", "c3", at=4)
    await asyncio.sleep(0.03)
    assert [container for _, container in node.looks[6:]] == ["c2", "c3"]


async def test_other_containers_are_not_polled() -> None:
    flowing = Node(has_events=True)
    flowing.runs("first", "c1")
    other = Node()
    other.runs("proxy", "c2")
    other.runs("main", "c3", at=2)
    await asyncio.sleep(10)
    assert flowing.looks == other.looks == []


async def test_a_runtime_that_does_not_answer_is_left_alone() -> None:
    node = Node(fails=True)
    node.runs("first", "c1")
    await asyncio.sleep(10)
    await settle()
    assert len(node.looks) == 1


async def test_a_reported_exit_is_polled_until_the_status_shows_it() -> None:
    node = Node()
    task = node.follow()
    node.runs("main", "c1")
    await asyncio.sleep(30)
    node.exits.put_nowait("c1")
    await asyncio.sleep(0.1)
    node.running = False
    await asyncio.sleep(5)
    assert [round(at - 30, 3) for at, _ in node.looks] == [0.02, 0.06, 0.14]
    assert node.reads == ["uid-web"]
    task.cancel()


async def test_a_reported_exit_of_a_sandbox_is_polled_too() -> None:
    node = Node(running=False)
    task = node.follow()
    node.runs("main", "c1")
    node.exits.put_nowait("s1")
    await asyncio.sleep(5)
    assert [what for _, what in node.looks] == ["s1"]
    assert node.reads == ["uid-web"]
    task.cancel()


@pytest.mark.parametrize("exited", ["of-another-client", "c1", "c1 later"])
async def test_exits_that_nobody_needs_cost_no_call(exited: str) -> None:
    """Those of others, known ones, and what a worker finds out during the first pause."""
    node = Node()
    task = node.follow()
    ended = ContainerState.EXITED
    node.runs("main", "c1", state=ContainerState.RUNNING if exited == "c1 later" else ended)
    node.exits.put_nowait(exited.removesuffix(" later"))
    await settle()
    node.runs("main", "c1", at=2, state=ended)
    await asyncio.sleep(5)
    assert node.looks == []
    assert node.reads == []
    task.cancel()


async def test_an_exit_may_come_before_the_first_status_of_its_container() -> None:
    node = Node(running=False)
    task = node.follow()
    node.exits.put_nowait("c1")
    await asyncio.sleep(0.1)
    node.runs("first", "c1")
    await asyncio.sleep(5)
    assert [what for _, what in node.looks] == ["c1"]
    assert node.reads == ["uid-web"]
    task.cancel()


async def test_few_early_exits_are_remembered() -> None:
    node = Node(running=False)
    task = node.follow()
    for number in range(MAX_EARLY_EXITS + 1):
        node.exits.put_nowait(f"c{number}")
    await asyncio.sleep(0.1)
    node.runs("main", "c0")
    node.runs("main", "c1", at=2)
    await asyncio.sleep(5)
    assert [what for _, what in node.looks] == ["c1"]
    task.cancel()


async def test_init_containers_are_not_polled_while_exits_are_reported() -> None:
    node = Node()
    task = node.follow()
    await asyncio.sleep(1.5)
    node.runs("first", "c1")
    await asyncio.sleep(5)
    assert node.looks == []
    node.exits.put_nowait(None)
    with pytest.raises(Unavailable):
        await task
    node.runs("first", "c2", at=2)
    await asyncio.sleep(5)
    assert {what for _, what in node.looks} == {"c2"}


async def test_a_runtime_without_task_events() -> None:
    node = Node()
    node.polls.task_exits = None
    with pytest.raises(Unimplemented):
        await node.follow()
