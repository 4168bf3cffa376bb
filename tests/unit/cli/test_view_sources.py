"""Information that the API of `up` adds to the agent's answers, and answers without that API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletpy.cli import view
from kubeletpy.cli.own_api import OwnApiUnavailable
from kubeletpy.cli.view import Sources

NOT_HERE = {"error": "no pod ns/web on this node", "last": None}


def agent(*parts: str) -> Any:
    match parts:
        case ("node",):
            return {"name": "n1", "troubles": ["the disk is full"]}
        case ("pods",):
            return ["placed"]
        case ("pods", _, "placed"):
            return {"uid": "u"}
        case ("pods", _, "gone"):
            return {**NOT_HERE, "last": {"uid": "u"}}
        case ("pods", _, _):
            return NOT_HERE
        case (*_, "events"):
            return [{"at": 1.0}, {"at": 3.0}]
    return {"of": parts}


class Api:
    """API with the pod ns/web, which has no node."""

    def __init__(self) -> None:
        self.unread = ""
        self.hangs = False

    async def _answer(self, found: Any) -> Any:
        if self.unread:
            raise OwnApiUnavailable(self.unread)
        if self.hangs:
            await asyncio.Event().wait()
        return found

    async def unplaced(self) -> Any:
        return await self._answer(["web"])

    async def unplaced_pod(self, namespace: str, name: str) -> Any:
        return await self._answer({"uid": "none"} if (namespace, name) == ("ns", "web") else None)

    async def events(self, namespace: str, name: str) -> Any:
        return await self._answer([{"at": 2.0, "source": "default-scheduler"}])


async def answer_of(sources: Sources, *parts: str) -> Any:
    return await asyncio.to_thread(sources, *parts)


async def test_without_such_an_api_the_agent_answers_alone() -> None:
    sources = Sources(agent, None, asyncio.get_running_loop())
    for parts in (("node",), ("pods",), ("pods", "ns", "web"), ("pods", "ns", "web", "events")):
        assert await answer_of(sources, *parts) == agent(*parts)


async def test_the_api_adds_pods_and_events() -> None:
    sources = Sources(agent, Api(), asyncio.get_running_loop())  # type: ignore[arg-type]
    assert await answer_of(sources, "pods") == ["placed", "web"]
    assert await answer_of(sources, "pods", "ns", "web") == {"uid": "none"}
    for parts in (("pods", "ns", "other"), ("pods", "ns", "gone"), ("pods", "ns", "placed")):
        assert await answer_of(sources, *parts) == agent(*parts)
    assert await answer_of(sources, "pods", "ns", "placed", "events") == [
        {"at": 1.0},
        {"at": 2.0, "source": "default-scheduler"},
        {"at": 3.0},
    ]
    for path in ("node", "usage", "pods/ns/placed/timeline"):
        assert await answer_of(sources, *path.split("/")) == agent(*path.split("/"))


@pytest.mark.parametrize(
    ("unread", "why"),
    [("its API did not answer: x", "x"), ("", "its API did not answer within 0.01 s")],
)
async def test_an_api_that_does_not_answer_is_a_trouble_of_the_node(
    monkeypatch: pytest.MonkeyPatch, unread: str, why: str
) -> None:
    monkeypatch.setattr(view, "PATIENCE_S", 0.01)
    api = Api()
    api.unread, api.hangs = unread, not unread
    sources = Sources(agent, api, asyncio.get_running_loop())  # type: ignore[arg-type]
    assert await answer_of(sources, "pods") == ["placed"]
    assert await answer_of(sources, "pods", "ns", "web") == NOT_HERE
    first, trouble = (await answer_of(sources, "node"))["troubles"]
    assert first == "the disk is full"
    assert trouble.startswith("pods without a node and events of the scheduler are missing: ")
    assert trouble.endswith(why)
    api.unread, api.hangs = "", False
    assert await answer_of(sources, "pods") == ["placed", "web"]
    assert (await answer_of(sources, "node"))["troubles"] == ["the disk is full"]
