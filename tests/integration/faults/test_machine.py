"""Faults of the machine: no space, inodes, writes, descriptors, threads or time.

The agent reports each, and recovers when it ends. All are in one module: they share a node.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.integration.faults.conftest import FIELD, NAMESPACE
from tests.integration.lifecycle.command import explained
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tools.env.machine_faults import (
    no_descriptors,
    no_inodes,
    no_room,
    no_threads,
    read_only,
    standing_still,
)

SECONDS = 4.0


@pytest.mark.parametrize(
    ("fault", "parts", "remedy"),
    [
        (no_room, "No space left on device", "du -xh"),
        (no_inodes, "No space left on device", "du -x --inodes"),
        (read_only, "Read-only file system", "mount -o remount,rw"),
    ],
    ids=["bytes", "inodes", "read-only"],
)
def test_new_pods_wait_and_start_by_themselves(
    small_node: Node, fault: Callable[[Path], AbstractContextManager[None]], parts: str, remedy: str
) -> None:
    name = fault.__name__.replace("_", "-")
    volumes = [{"name": "fields", "downwardAPI": {"items": [{"path": "n", **FIELD}]}}]
    main = container(volumeMounts=[{"name": "fields", "mountPath": "/f"}])
    small = small_node.root_dir.parent
    seen = len(small_node.log_lines())
    with fault(small):
        small_node.apply(pod(name, main, volumes=volumes), namespace=NAMESPACE)
        why = small_node.wait_event(NAMESPACE, name, f".*{parts}", timeout=30)
        assert f"file system {small}: " in why, "the message names what is full"
        assert f": '{small}/" in why, "and the path"
        notified = explained(small_node, NAMESPACE, name)
        assert notified["cause"] == "node-fault"
        assert f"file system {small} of this node" in notified["hint"]
        assert remedy in notified["hint"]
        small_node.kill()
        small_node.start_agent()
        small_node.wait_ready()
    small_node.wait_running(NAMESPACE, name)
    stated = [line for line in small_node.log_lines()[seen:] if parts in line]
    assert len(stated) < 20, "it is logged, not repeated"
    assert not [line for line in small_node.log_lines()[seen:] if "Traceback" in line]


@pytest.mark.parametrize("fault", [no_descriptors, no_threads, standing_still])
def test_the_agent_goes_on_by_itself(
    small_node: Node, fault: Callable[[int], AbstractContextManager[None]]
) -> None:
    name = fault.__name__.replace("_", "-")
    agent = small_node.agent.pid
    assert agent is not None
    seen = len(small_node.log_lines())
    with (
        fault(agent),
        # clients try to connect all the time, and the agent must not log much of that
        socket.create_connection(("127.0.0.1", small_node.health_port)),
        socket.create_connection(("127.0.0.1", small_node.port)),
    ):
        small_node.apply(pod(name), namespace=NAMESPACE)
        time.sleep(SECONDS)
    small_node.wait_running(NAMESPACE, name)
    assert small_node.agent.pid == agent
    stated = small_node.log_lines()[seen:]
    assert len(stated) < 20, "it is logged, not repeated"
    assert "Traceback" not in "\n".join(stated)
