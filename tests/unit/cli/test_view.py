"""Command line of ``kubeletpy view``: the printed URL, and errors when it can't serve."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubeletpy.cli import agent_socket, view
from kubeletpy.cli.own_api import OwnApiUnavailable
from kubeletpy.cli.view import Sources


def answering(answer: Callable[..., Any]) -> Callable[..., Any]:
    return lambda path, *parts: answer(*parts)


def test_no_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert view.main(["--socket", str(tmp_path / "explain.sock")]) == 1
    assert "kubeletpy view: no agent runs here" in capsys.readouterr().err


def test_a_port_that_is_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agent_socket, "get_json", answering(lambda *parts: {}))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert view.main(["--socket", "x", "--port", str(port)]) == 1
    assert f"kubeletpy view: can't listen on port {port}: " in capsys.readouterr().err


async def test_it_prints_the_url_and_queries_the_socket(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page reports an absent pod and an agent that exited."""
    requested = []

    def get_json(*parts: str) -> Any:
        requested.append(parts)
        if parts[2:] == ("gone",):
            raise agent_socket.NoSuchPod("no pod default/gone on this node", {})
        if len(requested) > 20:
            raise agent_socket.NoAgent("nobody listens any more")
        return {"name": "node-1", "troubles": [], "pods": []} if parts[0] != "pods" else []

    monkeypatch.setattr(agent_socket, "get_json", answering(get_json))
    serving = asyncio.create_task(view.serve(Path("x"), 0))
    try:
        printed = ""
        while not printed:
            await asyncio.sleep(0)
            printed = capsys.readouterr().out
        url, _, notified = printed.partition("\n")
        port = url.split("/")[2].rpartition(":")[2]
        assert f"ssh -L {port}:127.0.0.1:{port} THIS_NODE" in notified
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{url}stream?pod=default/gone") as stream,
        ):
            assert b"no pod default/gone on this node" in await stream.content.readline()
            requested += [()] * 20
            text = b""
            while b"nobody listens any more" not in text:
                text = await stream.content.readline()
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


# Information that the API of `up` adds to the agent's answers, and answers without that API.

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
