"""The list of ``kubeletpy explain`` includes pods without a node under `up`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.cli import agent_socket, explain, own_api

PLACED = {"namespace": "ns", "name": "placed", "healthy": True, "verdict": "running and ready"}
WEB = {"namespace": "x", "name": "web", "healthy": False, "verdict": "node: none; not scheduled"}


@pytest.fixture(autouse=True)
def agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent with one pod, and an API that has another."""

    class Api:
        async def unplaced(self) -> list[Any]:
            return [WEB]

    answers = {"pods": [PLACED], "node": {"name": "n1", "troubles": []}}

    def get_json(path: Path, *parts: str) -> Any:
        return list_or_same(answers[parts[0]])

    monkeypatch.setattr(agent_socket, "get_json", get_json)
    monkeypatch.setattr(own_api, "kubeconfig", lambda socket: socket)
    monkeypatch.setattr(own_api, "once", lambda path, read: asyncio.run(read(Api())))


def list_or_same(found: Any) -> Any:
    return [*found] if isinstance(found, list) else found


def reported(*arguments: str) -> explain.ExplainOutput:
    return explain.answer(explain.parser().parse_args(arguments), Path("explain.sock"))


def test_pods_without_a_node_are_listed() -> None:
    assert reported().text == (
        "x/web      node: none; not scheduled\nns/placed  running and ready\n"
    )
    assert json.loads(reported("-o", "json").text) == [PLACED, WEB]
    assert reported("-n", "ns").text == "ns/placed  running and ready\n"


def test_without_up_there_is_no_such_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_api, "kubeconfig", lambda socket: None)
    assert reported().text == "ns/placed  running and ready\n"


def test_an_api_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def once(path: Path, read: Any) -> Any:
        raise own_api.OwnApiUnavailable("its API did not answer: x")

    monkeypatch.setattr(own_api, "once", once)
    stated = "pods that no node has are not shown: its API did not answer: x\n"
    assert reported().text == f"ns/placed  running and ready\n{stated}"
    assert json.loads(reported("-o", "json").text) == [PLACED]
    assert capsys.readouterr().err == stated


def test_a_pod_that_only_the_api_of_up_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Api:
        async def pod(self, *, namespace: str, name: str) -> own_api.PodInApi:
            metadata = {"namespace": namespace, "name": name, "uid": "u"}
            return own_api.PodInApi({"metadata": metadata, "spec": {}, "status": {}}, [], [])

    def get_json(path: Path, *parts: str) -> Any:
        if parts[0] == "pods":
            raise agent_socket.NoSuchPod("no pod x/web on this node")
        return {"name": "n1", "troubles": ["it is slow"]}

    monkeypatch.setattr(agent_socket, "get_json", get_json)
    monkeypatch.setattr(own_api, "OwnApi", Api)
    assert explain.main(["--socket=s", "x/web"]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("x/web: ")
    assert "scheduler" in shown.out
    assert shown.err == "node n1: it is slow\n"
