"""The CSI plugin and a driver that really mounts, in one process."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.clock import SystemClock
from kubeletpy.base.host import machine
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.generated import csi_pb2 as csi
from kubeletpy.resources.plugins.model import CSI, PluginInfo
from kubeletpy.volumes.claims.model import Mode, PodUse, VolumeSource, VolumeSpec, VolumeTraits
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.csi.csi_plugin import CsiPlugin
from kubeletpy.volumes.csi.host import Credentials, CsiDrivers, CsiHost, DriverObjects, connect_by
from kubeletpy.volumes.csi.objects import CsiPaths
from kubeletpy.volumes.files.disk import mounts_below, unmount
from kubeletpy.volumes.projected.tokens import PodTokens
from tests.csi_driver.running import RunningDriver, running
from tests.csi_driver.services import Options
from tests.kit.volumes import Cluster

DRIVER = "test.csi.example.com"


class Node:
    """A root directory, a plugin and its driver."""

    def __init__(self, root: Path, driver: RunningDriver, cluster: Cluster) -> None:
        self.root, self.driver, self.cluster = root, driver, cluster
        self.metrics = Metrics()
        self.drivers = CsiDrivers(connect_by(self.metrics.csi))
        self.objects = DriverObjects(cluster)
        tokens = PodTokens(cluster, SystemClock(), random.Random(1))
        self.plugin: VolumePlugin = CsiPlugin(
            CsiHost(
                "n", CsiPaths(str(root)), self.drivers, self.objects, Credentials(cluster, tokens)
            ),
            PatientThreads(),
        )
        self.tokens = tokens

    def register(self) -> None:
        """The driver is there."""
        info = PluginInfo(CSI, DRIVER, str(self.driver.socket), ("1.0.0",), "", (0, 0))
        self.drivers.add(info, (1, 0, 0))

    def volume(self, name: str = "v", *, block: bool = False) -> str:
        """Have the driver make a volume; its handle."""
        capability = csi.VolumeCapability(access_mode={"mode": "SINGLE_NODE_WRITER"})
        (capability.block if block else capability.mount).SetInParent()
        request = csi.CreateVolumeRequest(name=name, volume_capabilities=[capability])
        return self.driver.services.CreateVolume(request).volume.volume_id

    def spec(self, handle: str, *, block: bool = False, **supplied: Any) -> VolumeSpec:
        """A volume of a claim."""
        mode = Mode.BLOCK if block else Mode.FILESYSTEM
        source = {"driver": DRIVER, "volumeHandle": handle, **supplied.pop("source", {})}
        inline = bool(supplied.get("inline"))
        traits = self.plugin.traits(VolumeSource("csi", source, "pv", "u1", mode, inline))
        assert isinstance(traits, VolumeTraits)
        made: dict[str, Any] = {
            "plugin": self.plugin.name,
            "kind": "csi",
            "pod_volume": "data",
            "spec_name": "pv",
            "unique_name": traits.unique_name,
            "source": source,
            "mode": mode,
            "read_only": False,
            "access_modes": ("ReadWriteOnce",),
            "attachable": traits.attachable,
            "device_mountable": traits.device_mountable,
        }
        return VolumeSpec(**{**made, **supplied})

    def data(self, handle: str) -> Path:
        """The content of a volume."""
        return self.driver.services.volumes._state / handle / "data"

    def left(self) -> list[str]:
        """All files and mounts below the root directory."""
        found = [str(path.relative_to(self.root)) for path in self.root.rglob("*")]
        keep = {"pods", "plugins", "plugins/kubernetes.io", "plugins/kubernetes.io/csi"}
        return sorted(set(found) - keep) + mounts_below(str(self.root))


def at(path: str, *parts: str) -> Path:
    """A path that a test reads; it may block."""
    return Path(path, *parts)


def release(top: Path) -> None:
    """Unmount what a test has left, and let loop devices go."""
    for point in mounts_below(str(top)):
        unmount(point)
    for image in top.glob("driver/volumes/*/image"):
        device = machine.loop_device_of(str(image))
        if device is not None:
            machine.detach(device)


def use(uid: str = "u1", **supplied: Any) -> PodUse:
    """A pod."""
    metadata = {"name": f"pod-{uid}", "namespace": "default", "uid": uid}
    pod = Pod(
        cast(
            Any,
            {
                "metadata": metadata,
                "spec": {"serviceAccountName": "sa", "containers": [{"name": "c"}]},
            },
        )
    )
    known: dict[str, Any] = {
        "fs_group": None,
        "fs_group_change_policy": None,
        "selinux_context": None,
    }
    return PodUse(uid, pod.name, "default", "sa", pod=pod, **{**known, **supplied})


@asynccontextmanager
async def csi_node(
    options: Options | None = None, *, cluster: Cluster | None = None
) -> AsyncIterator[Node]:
    """A node; afterwards nothing may be mounted below it."""
    assert os.geteuid() == 0
    with tempfile.TemporaryDirectory(prefix="csi") as short:
        top = Path(short)
        root = top / "kubelet"
        root.mkdir()
        async with running(top / "driver", options) as driver:
            made = Node(root, driver, cluster or Cluster())
            made.objects._objects = {}
            made.objects._reflector = None
            made.register()
            try:
                yield made
            finally:
                await made.drivers.close()
                release(top)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    """With a driver that stages."""
    async with csi_node() as made:
        yield made
