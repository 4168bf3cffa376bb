"""A CSI driver for tests as a process of its own, which can die."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import grpc

from kubeletpy.base.host import machine
from kubeletpy.remote.generated import csi_pb2 as csi
from kubeletpy.volumes.files.disk import mounts_below, unmount
from tools.env.process import Daemon
from tools.env.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]


class DriverProcess:
    """One driver of a node; its volumes are below ``directory`` and outlive it."""

    def __init__(self, directory: Path, registry: Path, name: str, **options: Any) -> None:
        directory.mkdir(parents=True)
        self.name = name
        self.directory = directory
        self.socket = directory / "csi.sock"
        self._registry = registry
        self._options = {"name": name, **options}
        self._process = Daemon("driver", directory)

    def start(self) -> None:
        """Start it, with its registration socket; returns when it answers."""
        command = [sys.executable, "-m", "tests.csi_driver", str(self.directory)]
        command += [f"--registry={self._registry}"]
        for name, value in self._options.items():
            stated = str(value).lower() if isinstance(value, bool) else value
            command.append(f"--option={name}={stated}")
        path = os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])
        self._process.start(command, env={**os.environ, "PYTHONPATH": path})
        wait_until(
            (self._registry / f"{self.name}-reg.sock").exists,
            f"driver {self.name}",
            timeout=20,
            interval=0.02,
            give_up=self._process.died,
        )

    def kill(self) -> None:
        """Kill -9 the driver."""
        self._process.kill(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the driver with SIGTERM: its sockets are removed."""
        self._process.stop()

    def fail(self, **faults: dict[str, Any]) -> None:
        """Set the faults from now on, by method (tests.csi_driver.faults.Fault)."""
        fresh = self.directory / "faults.new"
        fresh.write_text(json.dumps(faults))
        fresh.replace(self.directory / "faults.json")

    def calls(self) -> list[str]:
        """The calls so far: ``METHOD VOLUME``."""
        file = self.directory / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def volume(self, name: str, *, block: bool = False) -> str:
        """Have it make a volume; its handle."""
        capability = csi.VolumeCapability(access_mode={"mode": "SINGLE_NODE_WRITER"})
        (capability.block if block else capability.mount).SetInParent()
        request = csi.CreateVolumeRequest(name=name, volume_capabilities=[capability])
        with grpc.insecure_channel(
            f"unix:{self.socket}", options=[("grpc.default_authority", "localhost")]
        ) as channel:
            make = channel.unary_unary(
                "/csi.v1.Controller/CreateVolume",
                request_serializer=csi.CreateVolumeRequest.SerializeToString,
                response_deserializer=csi.CreateVolumeResponse.FromString,
            )
            return str(make(request, timeout=20).volume.volume_id)

    def data(self, handle: str) -> Path:
        """The content of a volume with a file system."""
        return self.directory / "volumes" / handle / "data"

    def handles(self) -> list[str]:
        """All its volumes."""
        return [path.parent.name for path in self.directory.glob("volumes/*/meta.json")]

    def remove(self) -> None:
        """Kill the driver, and remove its mounts and loop devices."""
        self.kill()
        for point in mounts_below(str(self.directory)):
            unmount(point)
        for image in self.directory.glob("volumes/*/image"):
            device = machine.loop_device_of(str(image))
            if device is not None:
                machine.detach(device)
