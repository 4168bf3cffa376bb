"""Fibre Channel disks: sources, links of udev, a second search after a scan, detaching."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.model import Mode, OperationFailed, StagedOnDisk, VolumeSpec
from kubeletpy.volumes.intree import scsi
from kubeletpy.volumes.intree.fc.plugin import DEVICE_S, FcPlugin
from kubeletpy.volumes.intree.fc.target import (
    FcDisk,
    disk_at,
    disk_of,
    links_of,
    name_of,
    problem,
    unique_name,
)
from kubeletpy.volumes.intree.scsi import ScsiTree
from kubeletpy.volumes.operations.acts import pod_use
from tests.kit.virtual_time import on_virtual_time
from tests.kit.volumes import pod, spec

WWN = "50060e801049cfd1"
ID = "3600508b400105e210000900000490000"
NEITHER = "it names neither targetWWNs with a lun nor wwids"


@pytest.mark.parametrize(
    ("source", "disk", "place", "name"),
    [
        (
            {"targetWWNs": [WWN], "lun": 0},
            FcDisk((WWN,), 0),
            f"{WWN}-lun-0",
            f"kubernetes.io/fc/[{WWN}]:0",
        ),
        (
            {"targetWWNs": [WWN, "aa"], "lun": 3, "wwids": [ID]},
            FcDisk((WWN, "aa"), 3),
            f"{WWN}-aa-lun-3",
            f"kubernetes.io/fc/[{WWN} aa]:3",
        ),
        ({"wwids": [ID]}, FcDisk(ids=(ID,)), ID, f"kubernetes.io/fc/[{ID}]"),
        (
            {"targetWWNs": [WWN], "wwids": ["a", "b"]},
            FcDisk(ids=("a", "b")),
            "a-b",
            "kubernetes.io/fc/[a b]",
        ),
        (
            {"targetWWNs": [WWN], "lun": 255},
            FcDisk((WWN,), 255),
            f"{WWN}-lun-255",
            f"kubernetes.io/fc/[{WWN}]:255",
        ),
        ({"lun": 1, "wwids": [ID]}, FcDisk(ids=(ID,)), ID, f"kubernetes.io/fc/[{ID}]"),
    ],
)
def test_the_disk_that_a_source_names(source: Any, disk: FcDisk, place: str, name: str) -> None:
    assert problem(source) == ""
    assert disk_of(source) == disk
    assert (disk.place, unique_name(source)) == (place, name)
    assert disk_at(place) == disk
    assert name_of(disk) == name


def test_blanks_are_underscores_on_disk() -> None:
    source = {"wwids": ["SATA QEMU 1"]}
    assert disk_of(source).place == "SATA_QEMU_1"
    assert unique_name(source) == "kubernetes.io/fc/[SATA QEMU 1]"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({}, NEITHER),
        ({"targetWWNs": [WWN]}, NEITHER),
        ({"lun": 1}, NEITHER),
        ({"targetWWNs": [WWN], "lun": -1}, "-1 is no LUN"),
        ({"targetWWNs": [WWN], "lun": 256}, "256 is no LUN"),
        ({"targetWWNs": [WWN], "lun": "1"}, "'1' is no LUN"),
        ({"targetWWNs": ["../x"], "lun": 1}, "'../x' is no name of a target or disk"),
        ({"targetWWNs": ["a-b"], "lun": 1}, "'a-b' is no name of a target or disk"),
        ({"wwids": [5]}, "5 is no name of a target or disk"),
        ({"wwids": [""]}, "'' is no name of a target or disk"),
        ({"wwids": ["a/b"]}, "'a/b' is no name of a target or disk"),
        ({"wwids": [".."]}, "'..' cannot be part of a path"),
    ],
)
def test_invalid_sources(source: Any, message: str) -> None:
    assert problem(source) == f"fc: {message}"
    assert problem({"wwids": ["x" * 256]}).endswith("cannot be part of a path")


@pytest.mark.parametrize("place", ["", "-", "lun-1", "a-lun-x", "a-lun-256", "a--b", "a/b"])
def test_invalid_directory_names(place: str) -> None:
    assert disk_at(place) is None


def test_links() -> None:
    paths = [
        f"pci-0000:00:00.0-fc-0x{WWN}-lun-1",
        f"fc-0x{WWN}-lun-1",
        f"fc-0x{WWN}-lun-1-part1",
        f"fc-0x{WWN}-lun-11",
        f"ip-0x{WWN}-lun-1",
    ]
    found = links_of(FcDisk((WWN,), 1), paths, [f"scsi-{WWN}"])
    assert found == [f"by-path/{paths[0]}", f"by-path/{paths[1]}"]
    ids = [f"scsi-{ID}", f"scsi-{ID}-part1", f"wwn-0x{ID}"]
    assert links_of(FcDisk(ids=(ID,)), paths, ids) == [f"by-id/scsi-{ID}"]
    assert links_of(FcDisk(ids=("a", "b")), [], ["scsi-a-b"]) == ["by-id/scsi-a-b"], "one, or two"
    assert links_of(FcDisk(("a.c",), 1), ["fc-0xabc-lun-1"], []) == []


class Machine:
    """A node with host adapters."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dev, self.sys = directory / "dev", directory / "sys"
        (self.dev / "disk/by-path").mkdir(parents=True)
        self.scan = self.sys / "class/scsi_host/host0/scan"
        self.scan.parent.mkdir(parents=True)
        self.plugin = FcPlugin(directory / "root", tree=ScsiTree(str(self.sys), str(self.dev)))
        self.programs: list[str] = []
        monkeypatch.setattr(scsi, "run", self._run)

    async def _run(self, program: str, args: Sequence[str], **more: Any) -> str:
        self.programs.append(f"{program} {' '.join(args)}")
        return ""

    def show(self, name: str, target: str = WWN) -> None:
        (self.dev / name).touch()
        (self.dev / f"disk/by-path/pci-{name}-fc-0x{target}-lun-0").symlink_to(self.dev / name)
        switch = self.sys / f"block/{name}/device/delete"
        switch.parent.mkdir(parents=True)
        switch.touch()

    async def attach(self, volume: VolumeSpec) -> str:
        target = self.plugin.staged(volume).path
        return await self.plugin.attach(volume, pod_use(Pod(pod().object)), target)

    def has(self) -> bool:
        return Path(self.left().path).is_dir()

    def make(self, mode: Mode) -> None:
        Path(self.left(mode).path).mkdir(parents=True)

    def left(self, mode: Mode = Mode.FILESYSTEM) -> StagedOnDisk:
        return self.plugin.staged(fc(mode=mode))


def fc(**changes: Any) -> VolumeSpec:
    source = {"targetWWNs": [WWN, "aa"], "lun": 0}
    return spec("v", plugin="kubernetes.io/fc", kind="fc", source=source, **changes)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


async def test_a_disk_is_searched_again_after_a_scan(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def appears(tree: ScsiTree) -> None:
        machine.show("sdx")

    monkeypatch.setattr(scsi, "scan_all", appears)
    assert await machine.attach(fc()) == str(machine.dev / "sdx")
    assert machine.has(), "whoever comes after a kill finds it"


async def test_a_map_needs_no_scan(machine: Machine) -> None:
    machine.show("sdx")
    (machine.sys / "block/dm-3/slaves/sdx").mkdir(parents=True)
    assert await machine.attach(fc()) == str(machine.dev / "dm-3")
    assert not machine.scan.exists()


@on_virtual_time
async def test_a_disk_that_is_not_there(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(tmp_path, patch)
        with pytest.raises(OperationFailed, match=r"no FC disk .*-lun-0") as raised:
            await machine.attach(fc())
    assert raised.value.event_word == "MountVolume.WaitForAttach"
    assert machine.scan.read_text() == "- - -"
    assert DEVICE_S > 0


async def test_all_paths_are_let_go(machine: Machine) -> None:
    machine.show("sdx")
    machine.show("sdy", "aa")
    for name in ("sdx", "sdz"):
        (machine.sys / f"block/dm-3/slaves/{name}").mkdir(parents=True)
    await machine.plugin.detach(machine.left(), fc_place(machine))
    dev = machine.dev
    assert machine.programs == [
        f"multipath -f {dev}/dm-3",
        *(f"blockdev --flushbufs {dev}/{name}" for name in ("sdx", "sdy", "sdz")),
    ]
    assert [(machine.sys / f"block/{n}/device/delete").read_text() for n in ("sdx", "sdy")] == [
        "1",
        "1",
    ]


async def test_a_disk_in_use_in_the_other_mode_stays(machine: Machine) -> None:
    machine.show("sdx")
    machine.make(Mode.BLOCK)
    await machine.plugin.detach(machine.left(), fc_place(machine))
    assert machine.programs == []


async def test_a_disk_in_use_is_not_detached(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.show("sdx")
    monkeypatch.setattr(scsi, "is_held", lambda device: True)
    with pytest.raises(OperationFailed, match="still in use"):
        await machine.plugin.detach(machine.left(), fc_place(machine))


def fc_place(machine: Machine) -> str:
    return machine.plugin.place(fc())


# SCSI disks as the kernel shows them, in copies of its directory trees.


@pytest.fixture
def tree(tmp_path: Path) -> ScsiTree:
    for each in ("sys/class/scsi_host", "sys/block", "dev"):
        (tmp_path / each).mkdir(parents=True)
    return ScsiTree(str(tmp_path / "sys"), str(tmp_path / "dev"))


def test_an_empty_tree(tree: ScsiTree) -> None:
    assert scsi.sessions_of(tree, "iqn.x") == []
    assert scsi.multipath_of(tree, "/dev/sda") is None
    scsi.scan_all(tree)
    scsi.delete(tree, "sda")


def test_a_session_that_ends_while_it_is_read(tree: ScsiTree) -> None:
    session = Path(tree.sys, "class/iscsi_host/host3/device/session1")
    (session / "iscsi_session/session1").mkdir(parents=True)
    assert scsi.sessions_of(tree, "iqn.x") == []
    (session / "iscsi_session/session1/targetname").write_text("iqn.x\n")
    (session / "connection1:0").mkdir()
    (found,) = scsi.sessions_of(tree, "iqn.x")
    assert (found.host, found.portals) == (3, frozenset())
    assert scsi.disks_of_lun([found], 0) == []


@pytest.mark.parametrize("name", ["hosts", "host", "xhost1"])
def test_other_names_are_no_hosts(tree: ScsiTree, name: str) -> None:
    session = Path(tree.sys, f"class/iscsi_host/{name}/device/session1/iscsi_session/session1")
    session.mkdir(parents=True)
    (session / "targetname").write_text("iqn.x")
    assert scsi.sessions_of(tree, "iqn.x") == []


def test_all_hosts_are_scanned(tree: ScsiTree) -> None:
    hosts = [Path(tree.sys, "class/scsi_host", name) for name in ("host0", "host1")]
    hosts[0].mkdir()
    hosts[1].mkdir()
    scsi.scan_all(tree)
    assert [(each / "scan").read_text() for each in hosts] == ["- - -", "- - -"]


def test_maps_and_their_members(tree: ScsiTree) -> None:
    Path(tree.sys, "block/dm-1/slaves/sda").mkdir(parents=True)
    Path(tree.sys, "block/dm-1/slaves/sdb").mkdir(parents=True)
    disk, link = Path(tree.dev, "sdb"), Path(tree.dev, "disk")
    disk.touch()
    link.symlink_to(disk)
    assert scsi.multipath_of(tree, str(link)) == f"{tree.dev}/dm-1"
    assert scsi.multipath_of(tree, f"{tree.dev}/dm-1") == f"{tree.dev}/dm-1"
    assert scsi.members_of(tree, f"{tree.dev}/dm-1") == ["sda", "sdb"]


def test_a_disk_is_deleted_by_its_own_switch(tree: ScsiTree) -> None:
    switch = Path(tree.sys, "block/sda/device/delete")
    switch.parent.mkdir(parents=True)
    switch.touch()
    scsi.delete(tree, "sda")
    assert switch.read_text() == "1"


def test_only_a_block_device_can_be_held(tree: ScsiTree) -> None:
    assert not scsi.is_held(f"{tree.dev}/gone")
    os.mkfifo(f"{tree.dev}/no-disk")
    assert not scsi.is_held(f"{tree.dev}/no-disk")
