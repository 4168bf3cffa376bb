"""The DRA driver as a process of its own, and the objects that its installation creates."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kubeletpy.base.api.types import JSON
from tests.dra_driver.__main__ import POOL
from tools.env.process import Daemon

ROOT = Path(__file__).resolve().parents[2]


class DriverProcess:
    """One driver of a node, which can die.

    Attributes:
        cdi: directory of its CDI files, which the runtime reads.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        registry: Path,
        cdi: Path,
        kubectl: Path,
        kubeconfig: Path,
    ) -> None:
        """``registry``: the node's plugins_registry; ``kubeconfig``: of a reader of claims."""
        directory.mkdir()
        cdi.mkdir(exist_ok=True)
        self.directory, self.cdi = directory, cdi
        self._process = Daemon("dra-driver", directory)
        self._command = [sys.executable, "-m", "tests.dra_driver", str(directory)]
        self._command += [f"--name={name}", f"--registry={registry}", f"--cdi={cdi}"]
        self._command += [f"--kubectl={kubectl}", f"--kubeconfig={kubeconfig}"]

    def now(self, **devices: str) -> None:
        """Set the driver's devices: name -> health."""
        fresh = self.directory / ".devices"
        fresh.write_text(json.dumps(devices))
        fresh.replace(self.directory / "devices.json")

    def start(self) -> None:
        """Start it; it registers by itself."""
        path = os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])
        self._process.start(self._command, env={**os.environ, "PYTHONPATH": path})

    def calls(self) -> list[str]:
        """Each call, with its claims: ``prepare CLAIM``."""
        file = self.directory / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def kill(self) -> None:
        """Kill -9 the driver."""
        self._process.kill()


def resource_slice(driver: str, node_name: str, devices: Sequence[str]) -> JSON:
    """The ResourceSlice ``slice`` of a driver; its devices have the attribute ``index``."""
    pool = {"name": POOL, "generation": 1, "resourceSliceCount": 1}
    listed = [
        {"name": name, "attributes": {"index": {"int": index}}}
        for index, name in enumerate(devices)
    ]
    spec = {"driver": driver, "nodeName": node_name, "pool": pool, "devices": listed}
    return _object("ResourceSlice", "slice", spec)


def allocation(driver: str, device: str) -> JSON:
    """The status of a claim whose request ``one`` has a device, as a scheduler would write it."""
    result = {"request": "one", "driver": driver, "pool": POOL, "device": device}
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


def device_class(name: str, driver: str) -> JSON:
    """A DeviceClass of all devices of a driver."""
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    return _object("DeviceClass", name, {"selectors": [selector]})


def _object(kind: str, name: str, spec: JSON) -> JSON:
    about = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
    return {**about, "spec": spec}
