"""A driver registers with a whole agent, which publishes it in the CSINode."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.node.machine import Node

DRIVER = "test.csi.example.com"
MODULE = "tests.csi_driver"


@contextmanager
def driver(directory: Path, registry: Path) -> Iterator[None]:
    """A driver that runs alone."""
    command = [sys.executable, "-m", MODULE, str(directory), "--registry", str(registry)]
    with subprocess.Popen([*command, "--option", "max_volumes=5"]) as running:
        try:
            yield
        finally:
            running.terminate()


def drivers(node: Node) -> list[tuple[str, str, int]]:
    """Drivers in the CSINode: name, the node's name for them, how many volumes fit."""
    found = json.loads(node.kubectl("get", "csinode", node.name, "-o", "json"))
    entries = found["spec"].get("drivers") or []
    return [(each["name"], each["nodeID"], each["allocatable"]["count"]) for each in entries]


def test_a_driver_comes_and_goes(node2: Node) -> None:
    directory = node2.root_dir / "plugins" / DRIVER
    directory.mkdir(parents=True)
    entry = (DRIVER, "node", 5)
    with driver(directory, node2.root_dir / "plugins_registry"):
        node2.until(lambda: drivers(node2) == [entry], "the driver in CSINode")
        reported = node2.kubectl("get", "node", node2.name, "-o", "json")
        ids = json.loads(reported)["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"]
        assert json.loads(ids) == {DRIVER: "node"}
        state = "actual_state_of_world"
        assert node2.metric("plugin_manager_total_plugins", state=state) == 1
        node2.kill()
        node2.start_agent()
        assert drivers(node2) == [entry]
        node2.until(
            lambda: node2.metric("plugin_manager_total_plugins", state=state) == 1,
            "the driver registered with the new agent",
        )
    node2.until(lambda: not drivers(node2), "no driver in CSINode")
