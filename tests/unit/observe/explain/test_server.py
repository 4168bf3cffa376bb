"""The socket: root only, read only, and not blocked by slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import stat
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.cli import agent_socket, explain, timeline
from kubeletpy.config import Notice
from kubeletpy.kubeapi.events.writer import KeptEvent
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import Traces, span
from kubeletpy.node.eviction.decide import Signal
from kubeletpy.node.eviction.report import EvictionOrder
from kubeletpy.node.server_version import VersionReported
from kubeletpy.observe.explain.server import MAX_CONNECTIONS, ExplainServer
from kubeletpy.observe.explain.texts import since
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from tests.kit.observe import facts

VERSION = VersionReported("1.36", "flag", "as named", server="v1.37.2")


class OnePod:
    """Snapshots of a node with one pod."""

    def uids(self) -> list[str]:
        return ["uid-web"]

    def find(self, namespace: str, name: str) -> str | None:
        return "uid-web" if (namespace, name) == ("default", "web") else None

    def namesakes(self, name: str) -> str:
        return "; use shop/lost, which this node has" if name == "lost" else ""

    def facts(self, uid: str) -> Any:
        return facts()

    def seen_at(self, uid: str) -> str:
        return ""


@asynccontextmanager
async def answering(path: Path, traces: Traces, *more: Any, **rest: Any) -> AsyncIterator[Any]:
    """A server on the socket at ``path``, on a node with one pod."""
    made = ExplainServer(path, OnePod(), traces, *more, **rest)  # type: ignore[arg-type]
    await made.serve()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Any]:
    traces = Traces()
    traces.enter("uid-web", "default", "web")
    with span(TraceCall.RUN_POD_SANDBOX, milestone=True):
        pass
    path = tmp_path / "explain.sock"
    async with answering(path, traces) as made:
        yield SimpleNamespace(path=path, server=made, traces=traces)
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
    assert await run(timeline, at, "web", "-o", "svg") == 0
    assert capsys.readouterr().out.startswith("<svg")
    assert await run(timeline, at, "web", "-o", "html") == 0
    assert capsys.readouterr().out.startswith("<!DOCTYPE html>")
    assert await run(timeline, at, "web", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["name"] == "web"
    assert await asyncio.to_thread(agent_socket.get_json, server.path, "usage") == {"pods": []}


async def test_usage_and_events(tmp_path: Path) -> None:
    """For `kubeletpy view`; also for a removed pod whose trace still exists."""

    async def used() -> dict[str, Any]:
        return {"at": 1.0, "pods": []}

    def events(uid: str) -> list[KeptEvent]:
        return [KeptEvent(2.0, "Normal", "Pulled", f"for {uid}", "", 1, 2.0)]

    traces = Traces()
    traces.enter("uid-gone", "default", "gone")
    path = tmp_path / "explain.sock"
    async with answering(path, traces, usage=used, events=events):
        assert await asyncio.to_thread(agent_socket.get_json, path, "usage") == {
            "at": 1.0,
            "pods": [],
        }
        for name, uid in (("web", "uid-web"), ("gone", "uid-gone"), ("other", "")):
            requested = path, "pods", "default", name, "events"
            (event,) = await asyncio.to_thread(agent_socket.get_json, *requested)
            assert (event["message"], event["count"], event["at"]) == (f"for {uid}", 1, 2.0)


async def test_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For `kubeletpy view`, through the agent's log reader; never for unknown pods."""
    record = ContainerStatus("c1", "main", ContainerState.RUNNING, log_path="/logs/main/0.log")
    runtime = PodRuntimeStatus("uid-web", "web", "default", containers=(record,))
    monkeypatch.setattr(OnePod, "facts", lambda self, uid: facts(runtime=runtime))
    path = tmp_path / "explain.sock"
    reads: list[str] = []

    def read(run: ContainerStatus) -> str:
        reads.append(run.log_path)
        return "first\nsecond\n"

    for log_end, web in ((read, {"main": ["first", "second"]}), (None, {})):
        async with answering(path, Traces(), log_end=log_end):
            for name, found in (("web", web), ("other", {})):
                requested = path, "pods", "default", name, "logs"
                answer = await asyncio.to_thread(agent_socket.get_json, *requested)
                assert answer == {"containers": found}
    assert reads == ["/logs/main/0.log"]


async def test_a_watch_shows_changes_and_outlasts_the_agent(
    server: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One output per change; it ends when the pod is removed, or by Ctrl-C."""
    answers: list[Any] = [
        "running",
        "running",
        agent_socket.NoAgent("nobody answers"),
        agent_socket.NoAgent("nobody answers"),
        "stopped",
        KeyboardInterrupt(),
    ]

    def show() -> explain.ExplainOutput:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return explain.ExplainOutput(f"{answer} for {len(answers)} s\n", answer)

    monkeypatch.setattr(explain, "WATCH_S", 0)
    assert explain.watch(show) == 0
    assert capsys.readouterr().out.split("\n") == [
        *("running for 5 s", "", "nobody answers", "", "stopped for 1 s", "", "")
    ]
    answers[:] = [agent_socket.NoAgent("nobody answers")]
    with pytest.raises(agent_socket.NoAgent):
        explain.watch(show)

    at, requested = f"--socket={server.path}", OnePod.find
    left = iter((True, False, False, True))
    monkeypatch.setattr(
        OnePod, "find", lambda self, *names: requested(self, *names) if next(left, False) else None
    )
    assert await run(explain, at, "web", "--watch") == 1
    reported = capsys.readouterr()
    assert reported.out.count("default/web: running and ready") == 2, "it was only away for a while"
    assert "no pod" in reported.err


async def test_errors_name_the_remedy(server: Any, capsys: Any, tmp_path: Path) -> None:
    at = f"--socket={server.path}"
    assert await run(explain, at, "other") == 1
    assert capsys.readouterr().err == "kubeletpy explain: no pod default/other on this node\n"
    assert await run(timeline, at, "lost") == 1
    assert capsys.readouterr().err == (
        "kubeletpy timeline: no timeline for pod default/lost on this node; use shop/lost, which "
        "this node has\n"
    )
    assert await run(explain, f"--socket={tmp_path / 'none'}") == 1
    assert "no agent runs here: there is no socket" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (None, None, "no agent runs here: there is no socket {a}, and there is no socket {b}. St"),
        ("stale", None, "here: nobody listens on {a} any more, and there is no socket {b}. Start"),
        (None, "stale", "here: there is no socket {a}, and nobody listens on {b} any more. Start"),
        ("file", None, "here: nobody listens on {a} any more, and there is no socket {b}. Start"),
        ("loop", None, "{a} does not answer: Too many levels of symbolic links, and there is no"),
    ],
)
async def test_without_an_agent_both_sockets_are_named(
    tmp_path: Path, first: str | None, second: str | None, expected: str
) -> None:
    paths = [tmp_path / "a.sock", tmp_path / "b.sock"]
    for path, kind in zip(paths, (first, second), strict=True):
        if kind == "stale":
            with socket.socket(socket.AF_UNIX) as left:
                left.bind(str(path))
        elif kind == "file":
            path.touch()
        elif kind == "loop":
            path.symlink_to(path)
    with pytest.raises(agent_socket.NoAgent) as error:
        agent_socket.find(None, paths, tmp_path / "table")
    assert expected.format(a=paths[0], b=paths[1]) in str(error.value)
    for remedy in ("kubeletpy up", "./up.sh", "systemctl start", "--socket DIR/kubelet/explain"):
        assert remedy in str(error.value)


def test_a_socket_for_root_alone_is_named_beside_the_other() -> None:
    refused = {Path("/a"): PermissionError(13, "x"), Path("/b"): FileNotFoundError(2, "x")}
    assert agent_socket.no_agent(refused) == (
        "no agent can be queried: this user may not use /a, and there is no socket /b. "
        "Run this as root"
    )


async def test_an_agent_that_the_kernels_table_lacks_is_found(server: Any, tmp_path: Path) -> None:
    """The table has the sockets of one network namespace."""
    candidates = [tmp_path / "none", server.path]
    assert agent_socket.find(None, candidates, tmp_path / "table") == server.path


@pytest.mark.parametrize(
    ("there", "listening", "found"),
    [
        (["a"], ["a"], "a"),
        (["a", "b"], ["b"], "b"),
        ([], ["elsewhere"], "elsewhere"),
        (["a"], ["elsewhere"], "elsewhere"),
        (["a"], ["elsewhere", "b", "a"], "a"),
        ([], ["elsewhere", "there"], "several agents run here: use --socket {}/elsewhere/"),
    ],
)
def test_the_running_agent_is_found(
    tmp_path: Path, there: list[str], listening: list[str], found: str
) -> None:
    """The kernel's table of sockets decides; sockets of others or mere files do not count."""

    def at(name: str) -> Path:
        return tmp_path / name / "explain.sock"

    for name in there:
        at(name).parent.mkdir()
        at(name).touch()
    rows = ["Num RefCount Protocol Flags Type St Inode Path", "ffff: 02 00 00010000 0001 01 1"]
    rows += [f"ffff: 02 00 00010000 0001 01 2 {at(name)}" for name in listening]
    rows += [f"ffff: 03 00 00000000 0001 03 3 {at('client')}"]
    rows += ["ffff: 02 00 00010000 0001 01 4 @explain.sock", "ffff: 02 00 00010000 0001 01 5 /x"]
    (tmp_path / "table").write_text("\n".join(rows) + "\n")
    candidates = [at("a"), at("b")]
    if len(found) < 20:
        assert agent_socket.find(None, candidates, tmp_path / "table") == at(found)
        return
    with pytest.raises(agent_socket.NoAgent, match=found.format(tmp_path)):
        agent_socket.find(None, candidates, tmp_path / "table")


async def test_answers_about_pods_that_are_not_on_the_node(tmp_path: Path, capsys: Any) -> None:
    """The state before removal; the node and reason from the API; or that neither is known."""
    last: dict[str, Any] = {"went": (facts(), 90.0), "old-n1": (facts(), 90.0)}
    ready = {"type": "Ready", "status": "True"}
    unscheduled = {"type": "PodScheduled", "reason": "Unschedulable", "message": "1 cpu"}

    async def elsewhere(namespace: str, name: str) -> Any:
        if name == "refused":
            raise LookupError("the API does not answer: timeout")
        return {
            "waits": {"status": {"conditions": [unscheduled]}},
            "new": {"spec": {"nodeName": "n1"}},
            "other": {"spec": {"nodeName": "n2"}, "status": {"conditions": [ready]}},
        }.get(name)

    at = f"--socket={tmp_path / 'explain.sock'}"
    async with answering(
        tmp_path / "explain.sock",
        Traces(),
        troubles=lambda: ["the runtime is \x1bdown"],
        removed=lambda namespace, name: last.get(name),
        elsewhere=elsewhere,
        node_name="n1",
    ):
        for name, parts in {
            "waits": "no pod default/waits on this node: not scheduled: Unschedulable: 1 cpu",
            "new": "this node has not taken up pod default/new yet: Pending, not Ready",
            "other": "no pod default/other on this node; it is on node n2: running and ready",
            "refused": "no pod default/refused on this node (the API does not answer: timeout)",
            "never": "no pod default/never on this node",
            "lost": "no pod default/lost on this node; use shop/lost, which this node has",
        }.items():
            assert await run(explain, at, name) == 1
            assert capsys.readouterr().err == (
                f"kubeletpy explain: {parts}\nnode n1: the runtime is down\n"
            )
        assert await run(explain, at, "went") == 1
        reported = capsys.readouterr().out
        assert reported.startswith("no pod default/went on this node any more: it ended 1m30s ago")
        assert "; this is how it was:\n\ndefault/web: running and ready, for 20s\n" in reported
        assert await run(explain, at, "old") == 1, "the name of a removed static pod's manifest"
        assert "how it was:\n\ndefault/web: running" in capsys.readouterr().out
        assert await run(explain, at, "went", "-o", "json") == 1
        assert json.loads(capsys.readouterr().out)["last"]["cause"] == "running"
        assert await run(explain, at) == 0
        assert capsys.readouterr().out == (
            "node n1: the runtime is down\ndefault/web  running and ready, for 20s\n"
        )
        assert await run(explain, at, "-n", "shop") == 0
        assert capsys.readouterr().out.endswith("no pods on this node\n")
        assert await run(explain, at, "-n", "default", "-o", "json") == 0
        assert [each["cause"] for each in json.loads(capsys.readouterr().out)] == ["running"]


async def test_only_the_owner_may_connect(server: Any) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600


async def test_idle_clients_keep_nobody_out_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("kubeletpy.observe.explain.server.MAX_LIFE_S", 0.5)
    path = tmp_path / "explain.sock"
    made = ExplainServer(path, OnePod(), Traces())  # type: ignore[arg-type]
    await made.serve()
    idle = [await asyncio.open_unix_connection(str(path)) for _ in range(MAX_CONNECTIONS)]
    for _, writer in idle:
        writer.write(b"GET /pods HTTP/1.1\r\n")
    assert await run(explain, f"--socket={path}") == 0
    async with asyncio.timeout(5):
        for reader, writer in idle:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
    await made.close()


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


async def test_only_the_socket_of_a_dead_agent_is_replaced(
    server: Any, tmp_path: Path, caplog: Any
) -> None:
    async with answering(server.path, Traces()):
        assert "no socket" in caplog.text
    assert server.path.exists()
    stale = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(stale))
    async with answering(stale, Traces()):
        assert await run(explain, f"--socket={stale}") == 0
    file = tmp_path / "file.sock"
    file.write_text("mine")
    async with answering(file, Traces()):
        pass
    assert file.read_text() == "mine"


async def test_a_path_too_long_for_a_socket_is_reported(tmp_path: Path, caplog: Any) -> None:
    async with answering(tmp_path / ("x" * 120), Traces()):
        assert "path is too long" in caplog.text


async def test_a_socket_that_cannot_be_made_is_logged_with_its_path(
    tmp_path: Path, caplog: Any
) -> None:
    path = tmp_path / "none" / "explain.sock"
    async with answering(path, Traces()):
        pass
    (record,) = [each for each in caplog.records if "no socket" in each.message]
    assert record.why == f"[Errno 2] No such file or directory: '{path}'"


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
    evicted = {
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
    other = {**evicted, "pod": None, "outcome": "reclaimed"}
    pressure: dict[str, Any] = {
        "at": 1.0,
        "conditions": [],
        "levels": [],
        "doubts": [["pid.available", "it is old"]],
        "evictions": [evicted, other],
        "helps": [],
    }
    path = tmp_path / "explain.sock"
    notices = [Notice("contentType", '"x"', "requests to the API are in JSON")]
    used: dict[str, Any] = {
        "protocols": {"HTTP/2": 2},
        "streams": 13,
        "watches": 12,
        "since": 1.7e9,
        "lost": 3,
        "lost_at": 1.7e9 + 100,
        "lost_why": "no answer to a PING",
        "content_type": "application/json",
    }
    order, broken = EvictionOrder((Signal.MEMORY,), False, (), (), 0, 2), False

    async def evictions() -> Sequence[EvictionOrder]:
        if broken:
            raise ValueError("nothing could be measured")
        return [order]

    share = {"of": "emptyDir v", "used": 2048, "limit": 1024}
    limited = {"at": 0.0, "pod": {**place, "share": share}, "ranking": []}
    at = f"--socket={path}"
    async with answering(
        path,
        Traces(),
        lambda: pressure,
        notices,
        by_limit={"uid-web": limited}.get,
        troubles=lambda: ["x: y"],
        connections=lambda: used,
        evictions=evictions,
        version=lambda: VERSION,
    ):
        assert await run(explain, at, "--node") == 0
        text = capsys.readouterr().out
        begun, lost = (since(used[each], time.time()) for each in ("since", "lost_at"))
        assert text.endswith(
            'Set without effect\n  contentType="x": requests to the API are in JSON\n'
        )
        assert text.startswith("The node is under no pressure.")
        assert "\nDoes not work\n  x: y\n" in text
        assert "\nKubernetes version\n  runs as 1.36: as named\n  API server: v1.37.2\n" in text
        assert (
            f"\nAPI server\n  connections: 2 over HTTP/2 since {begun}, in application/json; 12 "
            f"watches, 1 requests; 3 lost, the last at {lost}: no answer to a PING\n"
        ) in text
        assert "  pid.available: it is old" in text
        assert (
            "\nEviction order\n  memory.available (enough now)\n"
            "    no pod can be evicted\n    2 critical or static pods stay\n"
        ) in text
        assert await run(explain, at, "--node", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out) == {
            "name": "",
            "pressure": pressure,
            "without_effect": [to_builtins(each) for each in notices],
            "troubles": ["x: y"],
            "api": used,
            "version": to_builtins(VERSION),
            "evictions": [json.loads(json.dumps(to_builtins(order)))],
        }
        broken = True
        assert await run(explain, at, "--node") == 0
        out, error = capsys.readouterr()
        assert out.startswith("The node is under no pressure.")
        assert "Eviction order" not in out
        assert error.startswith("kubeletpy explain: who would be evicted is not known: ")
        assert await run(explain, at, "web") == 0
        assert "Evicted because the node ran short\n" in capsys.readouterr().out
        assert await run(explain, at, "web", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out)["eviction"] == evicted
        pressure["evictions"] = []
        assert await run(explain, at, "web") == 0
        text = capsys.readouterr().out
        assert "Evicted because it exceeded a limit of its local storage\n" in text
        assert "emptyDir v used 2.0 KiB of 1.0 KiB\n" in text
        with pytest.raises(SystemExit):
            await run(explain, at, "--node", "web")
