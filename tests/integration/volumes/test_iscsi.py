"""iSCSI volumes on a real disk with real mounts; the target and iscsiadm are imitations."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.host import machine
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.model import (
    FailureOutcome,
    Mode,
    OperationFailed,
    PodUse,
    StagedOnDisk,
    VolumeSpec,
)
from kubeletpy.volumes.files.disk import mounts_below, unmount
from kubeletpy.volumes.intree import base
from kubeletpy.volumes.intree.iscsi.plugin import IscsiPlugin
from kubeletpy.volumes.intree.scsi import ScsiTree
from kubeletpy.volumes.operations.acts import pod_use
from tests.iscsi_target.stand_in import StandIn

IQN, PORTAL = "iqn.2026-01.test:one", "10.0.0.1:3260"
PLACE = f"{PORTAL}-{IQN}-lun-0"
PROGRAMS = ("mount", "blkid", "mkfs.ext4", "fsck", "fsck.ext4", "blockdev")


class Node:
    """A root directory, and a disk behind a target."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = directory / "root"
        self.root.mkdir()
        self.image = directory / "disk.img"
        with self.image.open("wb") as file:
            file.truncate(32 << 20)
        self.device = machine.attach(str(self.image))
        self.target = StandIn(directory / "target")
        self.target.directory.mkdir()
        self.target.begin(IQN, [PORTAL], {0: self.device})
        programs = directory / "bin"
        programs.mkdir()
        for name in PROGRAMS:
            (programs / name).symlink_to(shutil.which(name, path=base.PROGRAM_PATHS) or "")
        iscsiadm = programs / "iscsiadm"
        here = Path(__file__).parents[3]
        iscsiadm.write_text(
            f"#!/bin/sh\ncd {here} && exec {sys.executable} -m tests.iscsi_target "
            f'{self.target.directory} "$@"\n'
        )
        iscsiadm.chmod(0o755)
        monkeypatch.setattr(base, "PROGRAM_PATHS", str(programs))
        self.plugin = self.again()

    def again(self) -> IscsiPlugin:
        """The plugin of another process."""
        tree = ScsiTree(str(self.target.sys), str(self.target.dev))
        return IscsiPlugin(self.root, tree=tree, databases=(str(self.target.database),))

    def files(self) -> list[str]:
        """Files that are left, but for directories of the plugin itself."""
        return [
            str(path.relative_to(self.root))
            for path in sorted(self.root.rglob("*"))
            if not path.is_dir() or path.name == PLACE
        ]

    def end(self) -> None:
        for path in mounts_below(str(self.root)):
            loop = machine.loop_device_of(path)
            if loop is not None:
                machine.detach(loop)
            unmount(path)
        machine.detach(self.device)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made = Node(tmp_path, monkeypatch)
    yield made
    made.end()


def volume(mode: Mode = Mode.FILESYSTEM, **changes: Any) -> VolumeSpec:
    made: dict[str, Any] = {
        "plugin": "kubernetes.io/iscsi",
        "kind": "iscsi",
        "pod_volume": "v",
        "spec_name": "pv1",
        "unique_name": f"kubernetes.io/iscsi/10.0.0.1:{IQN}:0",
        "source": {"targetPortal": "10.0.0.1", "iqn": IQN, "lun": 0},
        "mode": mode,
        "read_only": False,
        "device_mountable": True,
    }
    return VolumeSpec(**{**made, **changes})


def use(uid: str) -> PodUse:
    metadata = {"name": uid, "namespace": "ns", "uid": uid}
    return pod_use(Pod({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}))  # type: ignore[typeddict-item]


def at(*parts: str) -> Path:
    return Path(*parts)


async def unstaged(plugin: IscsiPlugin, staged: StagedOnDisk) -> None:
    """Unstage it as an agent does: again when it is uncertain. A container that another test makes
    holds copies of all mounts until it has its own root.
    """
    while True:
        try:
            return await plugin.unstage(staged)
        except OperationFailed as error:
            if error.outcome is not FailureOutcome.UNCERTAIN:
                raise
            await asyncio.sleep(0.1)


async def test_a_file_system_of_two_pods(node: Node) -> None:
    spec = volume()
    await node.plugin.stage(spec, None, use("u1"))
    staged = node.root / f"plugins/kubernetes.io/iscsi/iface-default/{PLACE}"
    first = await node.plugin.publish(spec, None, use("u1"), remount=False)
    second = await node.plugin.publish(volume(read_only=True), None, use("u2"), remount=False)
    at(first.path, "f").write_text("kept")
    assert at(second.path, "f").read_text() == "kept"
    with pytest.raises(OSError, match="Read-only"):
        at(second.path, "g").touch()
    assert (first.give_to_group, first.selinux_relabel) == (True, True)
    with pytest.raises(OperationFailed, match="still mounted by other references"):
        await node.plugin.unstage(node.plugin.staged(spec))

    found = node.again().find_on_disk()
    assert {(left.pod_uid, left.unique_name) for left in found.published} == {
        ("u1", f"kubernetes.io/iscsi/{PORTAL}:{IQN}:0"),
        ("u2", f"kubernetes.io/iscsi/{PORTAL}:{IQN}:0"),
    }
    assert [left.path for left in found.staged] == [str(staged)]
    plugin = node.again()
    await plugin.stage(spec, None, use("u1"))
    for left in found.published:
        await plugin.unpublish(left)
    await unstaged(plugin, found.staged[0])
    assert (node.files(), mounts_below(str(node.root)), node.target.sessions) == ([], [], [])

    await plugin.stage(spec, None, use("u3"))
    again = await plugin.publish(spec, None, use("u3"), remount=False)
    assert at(again.path, "f").read_text() == "kept", "a disk is formatted once"
    await plugin.unpublish(plugin.published(spec, "u3"))
    await unstaged(plugin, plugin.staged(spec))
    assert node.files() == []


async def test_a_device_of_a_pod(node: Node) -> None:
    spec = volume(Mode.BLOCK)
    await node.plugin.stage(spec, None, use("u1"))
    maps = node.root / f"plugins/kubernetes.io/iscsi/volumeDevices/iface-default/{PLACE}"
    assert json.loads((maps / "iscsi.json").read_text())["Portals"] == [PORTAL]
    published = await node.plugin.publish(spec, None, use("u1"), remount=False)
    assert at(published.path).resolve() == Path(node.device)
    assert (maps / "u1").is_block_device()
    assert machine.loop_device_of(str(maps / "u1")) is not None
    with pytest.raises(OperationFailed, match="still mounted by other references"):
        await node.plugin.unstage(node.plugin.staged(spec))

    found = node.again().find_on_disk()
    (left,), (staged,) = found.published, found.staged
    assert (left.mode, left.handle, staged.mode) == (
        Mode.BLOCK,
        f"iface-default/{PLACE}",
        Mode.BLOCK,
    )
    plugin = node.again()
    await plugin.unpublish(left)
    await unstaged(plugin, staged)
    assert (node.files(), mounts_below(str(node.root)), node.target.sessions) == ([], [], [])


async def test_killed_before_the_login(node: Node) -> None:
    node.target.configure(portals=[])
    with pytest.raises(OperationFailed, match="exit status 4"):
        await node.plugin.stage(volume(), None, use("u1"))
    found = node.again().find_on_disk()
    assert [left.unique_name for left in found.staged] == [f"kubernetes.io/iscsi/{PORTAL}:{IQN}:0"]
    await node.again().unstage(found.staged[0])
    assert node.files() == []


async def test_a_node_without_iscsiadm(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PROGRAM_PATHS", "/nowhere")
    with pytest.raises(OperationFailed, match=r"iscsiadm is not .* \(package open-iscsi\)"):
        await node.plugin.stage(volume(), None, use("u1"))
