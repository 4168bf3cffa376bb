"""Clients that are killed in the middle of a stream leave nothing behind."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

from tests.integration.node.conftest import remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import pod
from tests.integration.server.test_kubectl import call, running
from tools.env.waiting import wait_until


def test_killed_clients_leave_nothing_behind(node: Node, namespace: str) -> None:
    node.apply(pod("many"), namespace=namespace)
    node.wait_running(namespace, "many")
    assert call(node, "new", namespace, "exec", "many", "--", "true")[0] == 0
    wait_until(lambda: _steady(node), "a quiet agent", timeout=30)
    before = _descriptors(node)
    commands = [
        ("logs", "-f", "many"),
        ("exec", "many", "--", "sleep", "1000"),
        ("exec", "-i", "many", "--", "cat"),
        ("attach", "many"),
        ("port-forward", "many", ":80"),
    ]
    for version in ("old", "new"):
        processes = []
        for command in commands * 3:
            with_stdin = {"stdin": subprocess.PIPE} if "-i" in command else {}
            entered = running(node, version, namespace, *command, **with_stdin)
            processes.append((entered, entered.__enter__()))
        wait_until(lambda: _descriptors(node) > before + 10, "streams", timeout=30)
        for entered, _ in processes:
            entered.__exit__(None, None, None)
        wait_until(lambda: _descriptors(node) <= before + 2, "nothing left open", timeout=30)
    assert call(node, "new", namespace, "exec", "many", "--", "true")[0] == 0


def test_clients_killed_while_they_connect_hold_up_nothing(node: Node, namespace: str) -> None:
    """A runtime that can't answer a client's streams may never process its container's exit."""
    node.apply(pod("brief"), namespace=namespace)
    node.wait_running(namespace, "brief")
    commands = [("attach", "brief"), ("attach", "-i", "brief"), ("exec", "-i", "brief", "cat")] * 5
    wait_until(lambda: _steady(node), "a quiet agent", timeout=30)
    before = _descriptors(node)
    for version in ("old", "new"):
        for number in range(3):
            wait_until(lambda: _descriptors(node) <= before + 2, "nothing left open", timeout=30)
            with contextlib.ExitStack() as killed:
                for command in commands:
                    killed.enter_context(
                        running(node, version, namespace, *command, stdin=subprocess.PIPE)
                    )
                _more(node, before + 2 + 4 * number)
    requested = time.monotonic()
    remove_pods(node, namespace)
    assert time.monotonic() - requested < 10


def _more(node: Node, than: int) -> None:
    wait_until(lambda: _descriptors(node) > than, "streams", timeout=30, interval=0.001)


def _descriptors(node: Node) -> int:
    return len(list(Path(f"/proc/{node.agent.pid}/fd").iterdir()))


def _steady(node: Node) -> bool:
    first = _descriptors(node)
    return all(_descriptors(node) == first for _ in range(3))
