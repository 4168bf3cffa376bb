"""The socket: root's alone, read only, and not to be held up by its clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kubeletpy.cli import agent_socket, explain, timeline
from kubeletpy.explain.server import MAX_CONNECTIONS, ExplainServer
from kubeletpy.trace.names import Call
from kubeletpy.trace.spans import Traces, span
from tests.unit.explain.facts import facts


class OnePod:
    """Snapshots of a node with one pod."""

    def uids(self) -> list[str]:
        return ["uid-web"]

    def find(self, namespace: str, name: str) -> str | None:
        return "uid-web" if (namespace, name) == ("default", "web") else None

    def facts(self, uid: str) -> Any:
        return facts()

    def seen_at(self, uid: str) -> str:
        return ""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Any]:
    traces = Traces()
    traces.enter("uid-web", "default", "web")
    with span(Call.RUN_POD_SANDBOX, milestone=True):
        pass
    path = tmp_path / "explain.sock"
    made = ExplainServer(path, OnePod(), traces)  # type: ignore[arg-type]
    await made.start()
    yield SimpleNamespace(path=path, server=made, traces=traces)
    await made.close()
    assert not path.exists()


async def run(command: Any, *arguments: str) -> int:
    code: int = await asyncio.to_thread(command.main, arguments)
    return code


async def test_a_pod_all_pods_and_a_timeline(server: Any, capsys: Any, tmp_path: Path) -> None:
    at = f"--socket={server.path}"
    assert await run(explain, at) == 0
    assert capsys.readouterr().out == "default/web  running and ready, for 20s\n"
    for name in (["web"], ["default/web"], ["pod/web"], ["-n", "default", "web"]):
        assert await run(explain, at, *name) == 0
        assert capsys.readouterr().out.startswith("default/web: running and ready, for 20s\n")
    assert await run(explain, at, "web", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "running and ready, for 20s"
    drawing = tmp_path / "web.svg"
    assert await run(timeline, at, "web", "--svg", str(drawing)) == 0
    assert "RunPodSandbox" in capsys.readouterr().out
    assert drawing.read_text().startswith("<svg")
    assert await run(timeline, at, "web", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["name"] == "web"


async def test_a_watch_shows_changes_and_outlasts_the_agent(
    server: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each change; it ends when the pod is gone, or by ctrl-c."""
    answers: list[Any] = [
        "running",
        "running",
        agent_socket.NoAgent("nobody answers"),
        agent_socket.NoAgent("nobody answers"),
        "stopped",
        KeyboardInterrupt(),
    ]

    def show() -> str:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return f"{answer}\n"

    monkeypatch.setattr(explain, "WATCH_S", 0)
    assert explain.watch(show) == 0
    assert capsys.readouterr().out.split("\n") == [
        *("running", "", "nobody answers", "", "stopped", "", "")
    ]
    answers[:] = [agent_socket.NoAgent("nobody answers")]
    with pytest.raises(agent_socket.NoAgent):
        explain.watch(show)

    at, asked = f"--socket={server.path}", OnePod.find
    left = iter((True, False, False, True))
    monkeypatch.setattr(
        OnePod, "find", lambda self, *names: asked(self, *names) if next(left, False) else None
    )
    assert await run(explain, at, "web", "--watch") == 1
    shown = capsys.readouterr()
    assert shown.out.count("default/web: running and ready") == 2, "it was only away for a while"
    assert "no pod" in shown.err


async def test_errors_say_what_to_do(server: Any, capsys: Any, tmp_path: Path) -> None:
    at = f"--socket={server.path}"
    assert await run(explain, at, "other") == 1
    assert capsys.readouterr().err == "kubeletpy explain: no pod default/other on this node\n"
    assert await run(timeline, at, "other") == 1
    assert "nothing was done for a pod default/other" in capsys.readouterr().err
    assert await run(explain, f"--socket={tmp_path / 'none'}") == 1
    assert "no agent runs here" in capsys.readouterr().err
    with pytest.raises(agent_socket.NoAgent, match="say --socket DIR"):
        agent_socket.find(None, [tmp_path / "none"])


async def test_only_the_owner_may_ask(server: Any) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600


async def test_idle_clients_do_not_keep_others_out_for_long(
    server: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("kubeletpy.explain.server.MAX_LIFE_S", 0.2)
    idle = []
    for _ in range(MAX_CONNECTIONS):
        reader, writer = await asyncio.open_unix_connection(str(server.path))
        writer.write(b"GET /pods HTTP/1.1\r\n")
        idle.append((reader, writer))
    await asyncio.sleep(0)
    reader, writer = await asyncio.open_unix_connection(str(server.path))
    writer.write(b"GET /pods HTTP/1.1\r\nHost: x\r\n\r\n")
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    for reader, writer in idle:
        assert await reader.read() == b""
        writer.close()
    assert await run(explain, f"--socket={server.path}") == 0


@pytest.mark.parametrize(
    "request_head",
    [b"POST /pods HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 100_000,
     b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
     b"GET /pods/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
     b"\x00\xff" * 5000],
)  # fmt: skip
async def test_nonsense_is_refused(server: Any, request_head: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(str(server.path))
    writer.write(request_head)
    answer = await reader.read(100)
    assert answer.split(b" ")[1:2] in ([b"400"], [b"404"], [b"405"])
    writer.close()


async def test_the_socket_of_a_dead_agent_is_replaced_and_that_of_a_living_one_is_not(
    server: Any, tmp_path: Path, caplog: Any
) -> None:
    second = ExplainServer(server.path, OnePod(), Traces())  # type: ignore[arg-type]
    await second.start()
    assert "no socket" in caplog.text
    await second.close()
    assert server.path.exists()
    stale = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(stale))
    third = ExplainServer(stale, OnePod(), Traces())  # type: ignore[arg-type]
    await third.start()
    assert await run(explain, f"--socket={stale}") == 0
    await third.close()
    file = tmp_path / "file.sock"
    file.write_text("mine")
    fourth = ExplainServer(file, OnePod(), Traces())  # type: ignore[arg-type]
    await fourth.start()
    await fourth.close()
    assert file.read_text() == "mine"


async def test_a_path_that_no_socket_can_have_is_no_reason_to_die(
    tmp_path: Path, caplog: Any
) -> None:
    made = ExplainServer(tmp_path / ("x" * 120), OnePod(), Traces())  # type: ignore[arg-type]
    await made.start()
    assert "path is too long" in caplog.text
    await made.close()


async def test_the_node_and_an_evicted_pod(tmp_path: Path, capsys: Any) -> None:
    place = {
        "namespace": "default",
        "name": "web",
        "uid": "uid-web",
        "priority": 0,
        "critical": False,
        "used": 2048,
        "request": 0,
        "over": True,
    }
    deed = {
        "at": 0.0,
        "outcome": "evicted",
        "signal": "memory.available",
        "threshold": 1024,
        "available": 0,
        "capacity": 4096,
        "grace": 0,
        "since": 0.0,
        "reclaimed": [],
        "pod": place,
        "ranking": [place],
        "next": None,
    }
    other = {**deed, "pod": None, "outcome": "reclaimed"}
    pressure = {
        "at": 1.0,
        "conditions": [],
        "levels": [],
        "doubts": [["pid.available", "it is old"]],
        "deeds": [deed, other],
        "helps": [],
    }
    path = tmp_path / "explain.sock"
    made = ExplainServer(path, OnePod(), Traces(), lambda: pressure)  # type: ignore[arg-type]
    await made.start()
    at = f"--socket={path}"
    try:
        assert await run(explain, at, "--node") == 0
        text = capsys.readouterr().out
        assert text.startswith("The node is under no pressure.")
        assert "  pid.available: it is old" in text
        assert await run(explain, at, "--node", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out) == pressure
        assert await run(explain, at, "web") == 0
        assert "Evicted because the node ran short\n" in capsys.readouterr().out
        assert await run(explain, at, "web", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out)["eviction"] == deed
        with pytest.raises(SystemExit):
            await run(explain, at, "--node", "web")
    finally:
        await made.close()
