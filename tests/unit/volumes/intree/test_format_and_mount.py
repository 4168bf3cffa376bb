"""Disks are checked, formatted only when empty, and mounted, by fake programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.volumes.claims.model import FilesystemMismatch, OperationFailed
from kubeletpy.volumes.intree.disks import Content, format_and_mount, grow, read_blkid
from tests.kit.volumes import Programs

EXT4 = "echo DEVNAME=/dev/x; echo TYPE=ext4"
PARTITIONS = "echo PTTYPE=gpt"
EMPTY = "exit 2"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    made = Programs(tmp_path, monkeypatch)
    for name in ("mount", "fsck", "mkfs.ext4", "mkfs.xfs", "resize2fs", "xfs_growfs"):
        made.add(name)
    return made


async def mounts(tmp_path: Path, fs_type: str = "ext4", *, read_only: bool = False) -> None:
    async def at_once(work: Callable[[], Any], call: str) -> Any:
        return work()

    await format_and_mount(
        "/dev/x", str(tmp_path / "t"), fs_type, ("noatime",), read_only=read_only, in_thread=at_once
    )


def done(programs: Programs) -> list[str]:
    """The calls after the first one, which examines the disk."""
    return [line.split("/dev/x")[0].strip() for line in programs.calls[1:]]


@pytest.mark.parametrize(
    ("found", "read_only", "calls"),
    [
        (EMPTY, False, ["mkfs.ext4 -F -m0", "mount -t ext4 -o noatime,defaults"]),
        (EXT4, False, ["fsck -a", "mount -t ext4 -o noatime,defaults"]),
        (EXT4, True, ["mount -t ext4 -o noatime,ro,defaults"]),
        (PARTITIONS, False, ["mount -t ext4 -o noatime,defaults"]),
    ],
)
async def test_programs_called_for_a_disk(
    tmp_path: Path, programs: Programs, found: str, read_only: bool, calls: list[str]
) -> None:
    programs.add("blkid", found)
    await mounts(tmp_path, read_only=read_only)
    assert done(programs) == calls


@pytest.mark.parametrize(("found", "read_only"), [(EMPTY, True), ("exit 8", False)])
async def test_a_disk_of_unknown_content_is_not_formatted(
    tmp_path: Path, programs: Programs, found: str, read_only: bool
) -> None:
    programs.add("blkid", found)
    with pytest.raises(OperationFailed, match="/dev/x"):
        await mounts(tmp_path, read_only=read_only)
    assert done(programs) == []


@pytest.mark.parametrize(
    ("status", "mounted"), [(0, True), (1, True), (4, False), (5, False), (8, True), (12, False)]
)
async def test_a_disk_is_mounted_if_its_errors_are_corrected(
    tmp_path: Path, programs: Programs, status: int, mounted: bool
) -> None:
    programs.add("blkid", EXT4)
    programs.add("fsck", f"echo inode 12 is odd >&2; exit {status}")
    if not mounted:
        with pytest.raises(OperationFailed, match=r"could not correct.*inode 12"):
            await mounts(tmp_path)
    else:
        await mounts(tmp_path)
    assert any("mount" in line for line in done(programs)) is mounted


async def test_without_fsck_it_is_mounted_unchecked(tmp_path: Path, programs: Programs) -> None:
    programs.add("blkid", EXT4)
    (programs.directory / "fsck").unlink()
    await mounts(tmp_path)
    assert done(programs) == ["mount -t ext4 -o noatime,defaults"]


@pytest.mark.parametrize(
    ("found", "requested", "holds"),
    [
        (EXT4, "xfs", "holds a ext4 file system, not the xfs"),
        (PARTITIONS, "ext4", "something else"),
        (EXT4, "ext4", ""),
    ],
)
async def test_a_failed_mount_reports_a_different_file_system(
    tmp_path: Path, programs: Programs, found: str, requested: str, holds: str
) -> None:
    programs.add("blkid", found)
    programs.add("mount", "echo wrong fs type >&2; exit 32")
    with pytest.raises(OperationFailed, match=f"{holds}.*wrong fs type") as failed:
        await mounts(tmp_path, requested)
    assert isinstance(failed.value, FilesystemMismatch) is bool(holds)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("DEVNAME=/dev/x\nTYPE=xfs\n", Content("xfs")),
        ("PTTYPE=dos\nTYPE=ext4", Content()),
        ("", Content()),
    ],
)
def test_the_output_of_blkid(text: str, content: Content) -> None:
    assert read_blkid(text) == content


@pytest.mark.parametrize(
    ("fs_type", "call"), [("ext4", "resize2fs /dev/x"), ("xfs", "xfs_growfs -d /mnt")]
)
async def test_how_a_file_system_grows(programs: Programs, fs_type: str, call: str) -> None:
    programs.add("blkid", f"echo TYPE={fs_type}")
    await grow("/dev/x", "/mnt")
    assert programs.calls[1:] == [call]


async def test_a_file_system_that_cannot_grow_is_named(programs: Programs) -> None:
    programs.add("blkid", "echo TYPE=vfat")
    with pytest.raises(OperationFailed, match="vfat that could grow"):
        await grow("/dev/x", "/mnt")
