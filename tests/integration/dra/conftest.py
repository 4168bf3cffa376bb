"""A node with a DRA driver for the tests of a module."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.api.types import JSON
from tests.dra_driver.__main__ import POOL
from tests.integration.node.conftest import make_node, namespace, node2
from tests.integration.node.machine import Node
from tools.env.process import Daemon

__all__ = ["make_node", "namespace", "node2"]

ROOT = Path(__file__).resolve().parents[3]
DRIVER = "gpu.example.com"
CLASS = "gpu"


class DriverProcess:
    """The DRA driver as a process of its own, which can die."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.directory = node.directory / "dra-driver"
        self.directory.mkdir()
        self.cdi = node.containerd.directory / "cdi"
        self.cdi.mkdir(exist_ok=True)
        self._process = Daemon("dra-driver", self.directory)
        self.now(d0="Healthy", d1="Healthy")

    def now(self, **devices: str) -> None:
        """Set the driver's devices: name -> health."""
        fresh = self.directory / ".devices"
        fresh.write_text(json.dumps(devices))
        fresh.replace(self.directory / "devices.json")

    def start(self) -> None:
        """Start it; it registers by itself."""
        kubectl, env = self._node.kubectl_program()
        command = [sys.executable, "-m", "tests.dra_driver", str(self.directory)]
        command += [f"--name={DRIVER}", f"--registry={self._node.root_dir / 'plugins_registry'}"]
        command += [
            f"--cdi={self.cdi}",
            f"--kubectl={kubectl}",
            f"--kubeconfig={env['KUBECONFIG']}",
        ]
        path = os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])
        self._process.start(command, env={**os.environ, "PYTHONPATH": path})

    def publish(self) -> None:
        """Write the ResourceSlice and the DeviceClass, as whoever installs a driver does."""
        pool = {"name": POOL, "generation": 1, "resourceSliceCount": 1}
        devices = [
            {"name": name, "attributes": {"index": {"int": index}}}
            for index, name in enumerate(("d0", "d1"))
        ]
        node = self._node.name
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        self._node.apply(
            _object("ResourceSlice", "slice", spec),
            _object("DeviceClass", CLASS, {"selectors": [selector]}),
            namespace="default",
        )

    def calls(self) -> list[str]:
        """Each call, with its claims."""
        file = self.directory / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def kill(self) -> None:
        """Kill -9 the driver."""
        self._process.kill()

    def close(self) -> None:
        """End the driver."""
        self._process.kill()


def _object(kind: str, name: str, spec: JSON) -> JSON:
    about = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
    return {**about, "spec": spec}


@pytest.fixture(scope="module")
def driver(node2: Node) -> Iterator[DriverProcess]:
    """A DRA driver that is there."""
    made = DriverProcess(node2)
    made.start()
    made.publish()
    yield made
    made.close()
