"""What CSI says of volumes from memory."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.host.patient_threads import PatientThreads
from kubeletpy.volumes.claims.model import Cause, Mode, VolumeSource, VolumeTraits, Waits
from kubeletpy.volumes.csi.csi_plugin import CsiPlugin
from kubeletpy.volumes.csi.driver_object import DriverObject
from kubeletpy.volumes.csi.host import CsiHost
from kubeletpy.volumes.csi.names import CsiPaths


@pytest.fixture
def plugin() -> CsiPlugin:
    objects = cast(Any, {"d": DriverObject()})
    host = CsiHost("n", CsiPaths("/k"), cast(Any, {}), objects, cast(Any, None))
    return CsiPlugin(host, PatientThreads())


def source(name: str = "pv1", *, inline: bool = False, **csi: Any) -> VolumeSource:
    made = {"driver": "d", "volumeHandle": "h", **csi}
    return VolumeSource("csi", made, name, "u1", Mode.FILESYSTEM, inline)


@pytest.mark.parametrize(
    "asked",
    [
        source(driver=""),
        source(driver=7),
        source(volumeHandle=""),
        source(volumeHandle=None),
        source(driver="../../etc"),
        source(driver="x" * 256),
        source("x" * 256),
        source(".."),
        source("..", inline=True),
    ],
)
def test_sources_that_are_none(plugin: CsiPlugin, asked: VolumeSource) -> None:
    found = plugin.traits(asked)
    assert isinstance(found, Waits)
    assert found.cause is Cause.INVALID


def test_names_of_volumes(plugin: CsiPlugin) -> None:
    assert plugin.traits(source("[ds] a/b")) == VolumeTraits("kubernetes.io/csi/d^h", True, True)
    inline = plugin.traits(source(inline=True))
    assert inline == VolumeTraits("kubernetes.io/csi/u1-pv1", False, False)
