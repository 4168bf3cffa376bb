"""A node with a device plugin for the tests of a module."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.node.machine import Node
from tools.env.process import Daemon

ROOT = Path(__file__).resolve().parents[3]
RESOURCE = "test.example/dev"


class PluginProcess:
    """The device plugin as a process of its own, which can die."""

    def __init__(self, node: Node) -> None:
        self.directory = node.directory / "device-plugin"
        self.directory.mkdir()
        kind = f"kubeletpy-{os.getpid()}.example/env"
        self.cdi = f"{kind}=one"
        cdi = node.containerd.directory / "cdi"
        cdi.mkdir(exist_ok=True)
        self.cdi_file = cdi / f"kubeletpy-test-{os.getpid()}.json"
        edits = {"containerEdits": {"env": ["FROM_CDI=yes"]}, "name": "one"}
        spec = {"cdiVersion": "0.6.0", "kind": kind, "devices": [edits]}
        self.cdi_file.write_text(json.dumps(spec))
        self._sockets = Path(node.root_dir) / "device-plugins"
        self._process = Daemon("device-plugin", self.directory)
        self.now(d0="Healthy", d1="Healthy", d2="Healthy")

    def now(self, **devices: str) -> None:
        """Set the plugin's devices: id -> health."""
        fresh = self.directory / ".devices"
        fresh.write_text(json.dumps(devices))
        fresh.replace(self.directory / "devices.json")

    def devices(self) -> dict[str, str]:
        """The plugin's devices now: id -> health."""
        read: dict[str, str] = json.loads((self.directory / "devices.json").read_text())
        return read

    def start(self) -> None:
        """Start it; it registers when it can."""
        command = [sys.executable, "-m", "tests.device_plugin", str(self.directory)]
        command += [f"--sockets={self._sockets}", f"--resource={RESOURCE}", f"--cdi={self.cdi}"]
        path = os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])
        self._process.start(command, env={**os.environ, "PYTHONPATH": path})

    def kill(self) -> None:
        """Kill -9 the plugin."""
        self._process.kill()

    def calls(self, method: str) -> list[str]:
        """Device ids of each call of a method."""
        file = self.directory / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{method} ")]

    def close(self) -> None:
        """End the plugin."""
        self._process.kill()
        self.cdi_file.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def plugin(node2: Node) -> Iterator[PluginProcess]:
    """A device plugin that has registered."""
    made = PluginProcess(node2)
    made.start()
    yield made
    made.close()
