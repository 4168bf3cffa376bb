"""Facts about CSI volumes from memory, and the files that a failed publish leaves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.volumes.claims.model import (
    FailureOutcome,
    Mode,
    OperationFailed,
    PodUse,
    VolumeSource,
    VolumeSpec,
    VolumeTraits,
    WaitCause,
    Waits,
)
from kubeletpy.volumes.csi.csi_plugin import CsiPlugin
from kubeletpy.volumes.csi.host import CsiHost
from kubeletpy.volumes.csi.objects import CsiPaths, DriverObject
from tests.kit.pods import make_pod


@pytest.fixture
def plugin() -> CsiPlugin:
    objects = cast(Any, {"d": DriverObject()})
    host = CsiHost("n", CsiPaths("/k"), cast(Any, {}), objects, cast(Any, None))
    return CsiPlugin(host, PatientThreads())


def source(name: str = "pv1", *, inline: bool = False, **csi: Any) -> VolumeSource:
    made = {"driver": "d", "volumeHandle": "h", **csi}
    return VolumeSource("csi", made, name, "u1", Mode.FILESYSTEM, inline)


@pytest.mark.parametrize(
    "requested",
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
def test_invalid_sources_are_refused(plugin: CsiPlugin, requested: VolumeSource) -> None:
    found = plugin.traits(requested)
    assert isinstance(found, Waits)
    assert found.cause is WaitCause.INVALID


def test_names_of_volumes(plugin: CsiPlugin) -> None:
    assert plugin.traits(source("[ds] a/b")) == VolumeTraits("kubernetes.io/csi/d^h", True, True)
    inline = plugin.traits(source(inline=True))
    assert inline == VolumeTraits("kubernetes.io/csi/u1-pv1", False, False)


def make(target: str) -> None:
    Path(target).mkdir(exist_ok=True)


def on_disk(target: Path) -> tuple[bool, bool]:
    """Whether there is a target, and the file beside it."""
    return target.is_dir(), target.with_name("vol_data.json").exists()


class Client:
    """A driver that mounts nothing; ``refuses`` is the error of its next publishes."""

    def __init__(self) -> None:
        self.refuses: FailureOutcome | None = None

    def until(self) -> float:
        return 0.0

    async def stages(self, until: float) -> bool:
        return False

    async def applies_group(self, until: float) -> bool:
        return False

    async def publish(self, volume: Any, staging: str, target: str, **options: Any) -> None:
        if self.refuses is not None:
            raise OperationFailed(self.refuses, "the secret has expired")
        make(target)


class Credentials:
    async def secret(self, reference: Any, namespace: str) -> dict[str, str]:
        return {}

    async def tokens(self, pod: Any, desired: Any) -> dict[str, str]:
        return {}


@pytest.mark.parametrize(("remount", "stays"), [(True, True), (False, False)])
async def test_a_failed_republish_leaves_the_mount_in_place(
    tmp_path: Path, remount: bool, stays: bool
) -> None:
    """behaviour.md, u: ka61. A first publish that fails takes back what it has made."""
    client = Client()
    host = CsiHost(
        "n",
        CsiPaths(str(tmp_path)),
        cast(Any, {"d": SimpleNamespace(client=client)}),
        cast(Any, {"d": DriverObject()}),
        cast(Any, Credentials()),
    )
    made = {"driver": "d", "volumeHandle": "h"}
    spec = VolumeSpec(
        "kubernetes.io/csi",
        "csi",
        "v",
        "pv1",
        "kubernetes.io/csi/d^h",
        made,
        Mode.FILESYSTEM,
        False,
    )
    use = PodUse("u1", "p", "ns", "default", None, None, None, make_pod())
    plugin = CsiPlugin(host, PatientThreads())
    target = Path(host.paths.filesystem("u1", "pv1").target)
    if remount:
        await plugin.publish(spec, None, use, remount=False)
        assert on_disk(target) == (True, True)
    client.refuses = FailureOutcome.FINAL
    with pytest.raises(OperationFailed, match="the secret has expired"):
        await plugin.publish(spec, None, use, remount=remount)
    assert on_disk(target) == (stays, stays)
