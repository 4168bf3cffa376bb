"""Init containers, and no others, are polled early if the runtime has no events."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.errors import Unavailable
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.syncloop.event_stream import EarlyPolls
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

        looks: Any = EarlyPolls(
            Runtime(),  # type: ignore[arg-type]
            self.cache,
            pleg,  # type: ignore[arg-type]
            lambda uid: (current, None) if uid == current.uid else None,
        )
        self.cache.subscribe(looks.changed)

    def runs(self, name: str, container_id: str, at: int = 1) -> None:
        record = ContainerStatus(container_id, name, ContainerState.RUNNING)
        self.cache.set(
            PodRuntimeStatus("uid-web", "web", "default", containers=(record,), observed_at=at)
        )


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
