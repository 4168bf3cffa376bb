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
