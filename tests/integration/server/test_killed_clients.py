"""Clients that are killed in the middle of a stream leave nothing behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.integration.node.machine import Node
from tests.integration.node.pods import pod
from tests.integration.server.test_kubectl import call, running
from tools.env.waiting import wait_until


def test_killed_clients_leave_nothing_behind(node: Node, namespace: str) -> None:
    node.apply(pod("many"), namespace=namespace)
    node.wait_running(namespace, "many")
    assert call(node, "new", namespace, "exec", "many", "--", "true")[0] == 0
    pid = node.agent.pid
    assert pid is not None

    def descriptors() -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    wait_until(lambda: _steady(descriptors), "a quiet agent", timeout=30)
    before = descriptors()
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
        wait_until(lambda: descriptors() > before + 10, "streams", timeout=30)
        for entered, _ in processes:
            entered.__exit__(None, None, None)
        wait_until(lambda: descriptors() <= before + 2, "nothing left open", timeout=30)
    assert call(node, "new", namespace, "exec", "many", "--", "true")[0] == 0


def _steady(count: object) -> bool:
    assert callable(count)
    first = count()
    return all(count() == first for _ in range(3))
