"""SCSI disks as the kernel shows them, in copies of its directory trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubeletpy.volumes.intree import scsi
from kubeletpy.volumes.intree.scsi import ScsiTree


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
