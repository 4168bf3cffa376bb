"""The agent's copy of its own Node object: its content, and when it changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletpy.kubeapi.errors import Unavailable
from kubeletpy.kubeapi.protocol import WatchEvent
from kubeletpy.node.own_node import OwnNode
from tests.kit.api import ScriptedApi
from tests.kit.events import Recorder
from tests.kit.virtual_time import LoopClock, settle

pytestmark = pytest.mark.virtual_time


def node(version: str, name: str = "n", **fields: Any) -> Any:
    return {
        "metadata": {"name": name, "resourceVersion": version, "labels": {"v": version}},
        "spec": fields,
        "status": {"allocatable": {"pods": "1", "example.com/gpu": "2"}},
    }


INITIAL: Any = {
    "metadata": {"name": "n", "labels": {"v": "own"}},
    "status": {"allocatable": {"pods": "9"}, "features": {"supplementalGroupsPolicy": True}},
}


class Api(ScriptedApi):
    live: Any = None

    async def get(self, resource: Any, name: str, namespace: str | None = None, **_: Any) -> Any:
        if self.live is None:
            raise Unavailable("down")
        return self.live


def listed(*nodes: Any) -> Any:
    return {"metadata": {"resourceVersion": "1"}, "items": list(nodes)}


async def test_the_watch_keeps_up_with_an_administrator() -> None:
    events = Recorder()
    api = Api(
        [listed(node("3"))],
        [
            [
                1.0,
                WatchEvent("MODIFIED", node("4", unschedulable=True)),
                1.0,
                WatchEvent("MODIFIED", node("5")),
                WatchEvent("MODIFIED", node("9", name="another")),
                WatchEvent("DELETED", node("6")),
                1000.0,
            ]
        ],
    )
    own = OwnNode("n", api, events, LoopClock(), initial=INITIAL)
    assert own.current() is INITIAL
    task = asyncio.create_task(own.run())
    await own.wait_synced(within=5)
    assert own.current()["metadata"]["labels"] == {"v": "3"}
    assert own.current()["status"]["allocatable"] == {"pods": "9", "example.com/gpu": "2"}
    assert own.current()["status"]["features"] == {"supplementalGroupsPolicy": True}
    assert own.current() is own.current()
    await asyncio.sleep(3)
    assert own.current()["metadata"]["labels"] == {"v": "5"}
    assert events.seen == [
        "Normal NodeNotSchedulable: Node n status is now: NodeNotSchedulable",
        "Normal NodeSchedulable: Node n status is now: NodeSchedulable",
    ]
    task.cancel()
    await settle()


async def test_the_newest_known_object_counts() -> None:
    written: list[Any] = [node("7")]
    api = Api()
    own = OwnNode("n", api, Recorder(), LoopClock(), initial=INITIAL, written=lambda: written[0])
    assert own.current()["metadata"]["labels"] == {"v": "7"}
    assert await own.newest() is None
    api.live = node("8")
    found = await own.newest()
    assert found is not None
    assert found["metadata"]["labels"] == {"v": "8"}
    assert own.current()["metadata"]["labels"] == {"v": "8"}
    written[0] = node("9")
    assert own.current()["metadata"]["labels"] == {"v": "9"}


async def test_without_an_api_or_an_answer() -> None:
    alone = OwnNode("n", None, Recorder(), LoopClock(), initial=INITIAL)
    await alone.wait_synced(within=5)
    await alone.run()
    assert await alone.newest() is None
    assert alone.current() is INITIAL
    deaf = OwnNode("n", Api(), Recorder(), LoopClock(), initial=INITIAL)
    loop = asyncio.get_running_loop()
    before = loop.time()
    await deaf.wait_synced(within=5)
    assert loop.time() - before == 5


def of_uid(uid: str, version: str) -> Any:
    found = node(version)
    found["metadata"]["uid"] = uid
    return found


async def test_a_deleted_node_is_reported_until_it_is_shown_again() -> None:
    reported: list[str] = []
    written: list[Any] = [of_uid("a", "3")]
    pause = 10.0
    api = Api(
        [listed(of_uid("a", "3"))],
        [
            [
                pause,
                WatchEvent("DELETED", of_uid("a", "5")),
                pause,
                WatchEvent("ADDED", of_uid("b", "6")),
                1000.0,
            ]
        ],
    )
    own = OwnNode(
        "n",
        api,
        Recorder(),
        LoopClock(),
        initial=INITIAL,
        written=lambda: written[0],
        reported=lambda: reported.append(own.live_uid()),
    )
    task = asyncio.create_task(own.run())
    await asyncio.sleep(5)
    assert (own.deleted(), own.live_uid(), own.problem()) == (False, "a", "")
    await asyncio.sleep(10)
    assert own.deleted()
    written[0] = of_uid("a", "4")  # the answer to a write before the deletion
    assert own.deleted()
    assert own.problem() == (
        "the API has no Node object n any more: it was deleted at 2023-11-14T22:13:30Z. The agent "
        "does not register a deleted node again by itself: it may have been removed on purpose. "
        "To have it back, restart the agent, or create the Node object: the agent then serves it "
        "at once"
    )
    await asyncio.sleep(10)
    assert (own.deleted(), own.live_uid(), own.problem()) == (False, "b", "")
    assert reported == ["a", "", "b"]
    task.cancel()
    await settle()


async def test_a_list_without_the_node_means_that_it_was_deleted() -> None:
    written: list[Any] = [None]
    own = OwnNode("n", Api(), Recorder(), LoopClock(), initial=INITIAL, written=lambda: written[0])
    own._replace([])
    assert not own.deleted(), "it has not been registered yet"
    written[0] = of_uid("a", "3")
    own._replace([])
    assert not own.deleted(), "this list was begun before the registration"
    own._replace([of_uid("a", "3")])
    own._replace([])
    assert own.deleted()
    written[0] = of_uid("b", "4")
    assert (own.deleted(), own.live_uid()) == (False, "b")
    own.not_found()
    assert own.deleted()


async def test_the_node_of_a_restored_cluster_counts_although_its_revision_is_older() -> None:
    own = OwnNode(
        "n", Api(), Recorder(), LoopClock(), initial=INITIAL, written=lambda: of_uid("a", "900")
    )
    own._replace([of_uid("a", "900")])
    own._replace([of_uid("b", "7")])
    assert own.live_uid() == "b"
