"""Disks: formatted and mounted; those reached over a network also attached, bound for each pod.

:class:`DiskPlugin` is the common part of ``local`` volumes, iSCSI and Fibre Channel. Paths and
files are the kubelet's. Source:
docs/reference/behaviour-storage.md, sf, sh, si, sj, sq, sq1.
"""

from __future__ import annotations

import contextlib
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kubeletpy.base.host import mount_table
from kubeletpy.base.host.program import Program, ProgramFailed, run_program
from kubeletpy.base.structs import Struct, replace
from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.files import disk
from kubeletpy.volumes.intree.base import (
    InTreePlugin,
    find_program,
    remove_directory,
    run,
    unmount_and_remove,
)
from kubeletpy.volumes.intree.scsi import ScsiTree

log = logging.getLogger(__name__)

BLOCK_DIRECTORY = "volumeDevices"


class DiskPlugin(InTreePlugin):
    """A kind of disk. ``PublishedOnDisk.handle`` is the volume's place below ``above``."""

    depth = 1
    """Components of a place."""
    file = ""
    """Name of the file that a place contains besides devices; empty: none."""
    controller = False
    """The attach controller decides when a disk may be used."""

    # -- what each kind is -------------------------------------------------------------------

    @abstractmethod
    def place(self, spec: claims.VolumeSpec) -> str:
        """The place of a volume, below ``above``."""

    @abstractmethod
    def name_at(self, place: str) -> str:
        """The unique name of the volume that has a place; empty: no volume can have it."""

    @abstractmethod
    async def attach(self, spec: claims.VolumeSpec, use: claims.PodUse, directory: str) -> str:
        """Attach a disk; returns its device, or empty if there is nothing to mount.

        ``directory``: its place, to be made and written into before anything else. Raises
        OperationFailed.
        """

    @abstractmethod
    async def device(self, spec: claims.VolumeSpec) -> str:
        """The device of an attached disk. Raises OperationFailed."""

    @abstractmethod
    def full_name(self, source: claims.VolumeSource) -> str:
        """The unique name of a volume."""

    async def detach(self, left: claims.StagedOnDisk, place: str) -> None:
        """Detach a disk that is mounted nowhere. Raises OperationFailed."""

    async def bound_from(self, spec: claims.VolumeSpec) -> tuple[str, Sequence[str]]:
        """The directory that pods get, and its mount options. Raises OperationFailed."""
        return self.staged(spec).path, spec.mount_options

    async def shared_group(self, source: str, use: claims.PodUse) -> int | None:
        """The group of the files, if other pods have the volume and this one requests another."""
        return None

    def above(self, mode: claims.Mode) -> str:
        """Where disks are mounted for the node, or their devices bound for pods."""
        base = f"{self.root}/plugins/{self.name}"
        return base if mode is claims.Mode.FILESYSTEM else f"{base}/{BLOCK_DIRECTORY}"

    # -- questions ---------------------------------------------------------------------------

    def named(self, source: claims.VolumeSource) -> claims.VolumeTraits:
        """A disk is attached and mounted once for all pods of the node."""
        return claims.VolumeTraits(self.full_name(source), self.controller, device_mountable=True)

    def published(self, spec: claims.VolumeSpec, pod_uid: str) -> claims.PublishedOnDisk:
        """The path of a volume in a pod."""
        return replace(super().published(spec, pod_uid), handle=self.place(spec))

    def staged(self, spec: claims.VolumeSpec) -> claims.StagedOnDisk:
        """Where it is mounted for the node."""
        path = self.directory_of(self.place(spec), spec.mode)
        context = spec.selinux_context or ""
        return replace(super().staged(spec), path=path, selinux_context=context)

    def directory_of(self, place: str, mode: claims.Mode) -> str:
        """Where a disk is mounted for the node, or its device bound for pods."""
        return f"{self.above(mode)}/{place}"

    def places(self, mode: claims.Mode) -> list[str]:
        """All disks in use. Blocks."""
        above = self.above(mode)
        found = [name for name in disk.names_in(above) if name != BLOCK_DIRECTORY]
        if self.depth == 1:
            return found
        return [f"{name}/{below}" for name in found for below in disk.names_in(f"{above}/{name}")]

    # -- acts --------------------------------------------------------------------------------

    async def stage(
        self, spec: claims.VolumeSpec, attachment: claims.AttachmentMetadata, use: claims.PodUse
    ) -> None:
        """Attach it, and mount its file system for the node."""
        target = self.staged(spec).path
        device = await self.attach(spec, use, target)
        if spec.mode is claims.Mode.BLOCK or not device:
            return
        await format_and_mount(
            device,
            target,
            str(spec.source.get("fsType") or "ext4"),
            (*spec.mount_options, *claims.mount_option(use.selinux_context)),
            read_only=spec.read_only,
            in_thread=self.in_thread,
        )

    async def publish(
        self,
        spec: claims.VolumeSpec,
        attachment: claims.AttachmentMetadata,
        use: claims.PodUse,
        *,
        remount: bool,
    ) -> claims.Published:
        """Bind it into the pod's directory, or bind its device for the pod."""
        target = self.target(use.uid, spec.spec_name, spec.mode)
        if spec.mode is claims.Mode.BLOCK:
            device, above = await self.device(spec), self.staged(spec).path
            await self.in_thread(
                partial(disk.map_device, device, f"{above}/{use.uid}", target), f"map of {device}"
            )
            return claims.Published(target, map_directory=above)
        source, options = await self.bound_from(spec)
        mine = await self.bind(source, target, [*options, *(["ro"] if spec.read_only else [])])
        return claims.Published(
            target,
            selinux_relabel=use.selinux_context is None,
            give_to_group=use.alone and (mine or not remount),
            shared_group=await self.shared_group(source, use) if mine else None,
        )

    async def unpublish(self, left: claims.PublishedOnDisk) -> None:
        """Unmount it from the pod's directory, or release its device for the pod."""
        if left.mode is claims.Mode.FILESYSTEM:
            work = partial(unmount_and_remove, left.path)
        elif left.handle:
            bound = f"{self.above(left.mode)}/{left.handle}/{left.pod_uid}"
            work = partial(disk.unmap_device, bound, left.path)
        else:
            work = partial(remove_directory, left.path)
        await self.in_thread(work, f"unmount of {left.path}")

    async def unstage(self, left: claims.StagedOnDisk) -> None:
        """Unmount and detach it, unless something else uses it (table sh, 7)."""
        call = f"unmount of {left.path}"
        others = disk.bound_devices if left.mode is claims.Mode.BLOCK else self._mounted_elsewhere
        found = await self.in_thread(partial(others, left.path), call)
        if found:
            message = f"{left.path} is still mounted by other references: {' '.join(found[:8])}"
            raise claims.maybe_done(message, call=call)
        await self.in_thread(partial(disk.force_unmount, left.path), call)
        await self.detach(left, left.path.removeprefix(f"{self.above(left.mode)}/"))
        await self.in_thread(partial(self._remove, left.path), f"removal of {left.path}")

    def find_on_disk(self) -> claims.Found:
        """Mounted and bound disks, and those in pods' directories."""
        staged = [
            claims.StagedOnDisk(self.name, name, self.directory_of(place, mode), mode)
            for mode in claims.Mode
            for place in self.places(mode)
            if (name := self.name_at(place))
        ]
        return claims.Found(tuple(self._found_published()), tuple(staged))

    def place_in(self, left: claims.PublishedOnDisk, mounts: list[mount_table.MountPoint]) -> str:
        """The place of the disk that a pod has; empty: it cannot be determined."""
        if left.mode is claims.Mode.FILESYSTEM:
            above = self.above(left.mode)
            for path in mount_table.references(mounts, left.path):
                place = path.removeprefix(f"{above}/")
                if place != path and self.name_at(place):
                    return place
            return ""
        with contextlib.suppress(OSError):
            desired = Path(left.path).stat().st_rdev
            for place in self.places(left.mode):
                with contextlib.suppress(OSError):
                    bound = f"{self.above(left.mode)}/{place}/{left.pod_uid}"
                    if Path(bound).stat().st_rdev == desired:
                        return place
        return ""

    def _found_published(self) -> Iterator[claims.PublishedOnDisk]:
        mounts = disk.table()
        for left in super().find_on_disk().published:
            place = self.place_in(left, mounts)
            name = self.name_at(place) if place else ""
            if name:
                yield replace(left, unique_name=name, handle=place)
            else:
                yield replace(left, damaged="its disk cannot be determined")

    def _mounted_elsewhere(self, path: str) -> list[str]:
        return disk.other_references(path, path.removeprefix(str(self.root)))

    def _remove(self, path: str) -> None:
        """Remove a place with our file. Blocks. Raises OSError: it contains something else."""
        if self.file:
            with contextlib.suppress(FileNotFoundError):
                Path(path, self.file).unlink()
        disk.remove_directory(path)
        if self.depth > 1:
            with contextlib.suppress(OSError):  # other disks have places in it
                Path(path).parent.rmdir()


class AttachedDiskPlugin(DiskPlugin):
    """A kind of disk that is reached over a network."""

    def __init__(
        self, root: Path, *, controller: bool = True, tree: ScsiTree | None = None
    ) -> None:
        """``tree``: the device directories."""
        super().__init__(root)
        self.controller = controller
        self._tree = tree or ScsiTree()

    def problem(self, source: claims.VolumeSource) -> str:
        """Block devices are supported as well as file systems."""
        return ""

    def supports_selinux_mount(self, spec: claims.VolumeSpec) -> bool:
        """A file system can be mounted with a context."""
        return spec.mode is claims.Mode.FILESYSTEM


# The file system of a disk (table sq1): checked before it is mounted, or made when the disk is
# blank. A disk with anything on it, a partition table included, is never formatted.

_EVENT_WORD = "MountVolume.MountDevice"
MKFS = {
    "ext3": ("mkfs.ext3", ("-F", "-m0")),
    "ext4": ("mkfs.ext4", ("-F", "-m0")),
    "xfs": ("mkfs.xfs", ("-f",)),
    "btrfs": ("mkfs.btrfs", ()),
}
"""The supported file systems, and how they are made."""
GROW = {
    "ext3": ("resize2fs", "device"),
    "ext4": ("resize2fs", "device"),
    "xfs": ("xfs_growfs", "-d", "path"),
    "btrfs": ("btrfs", "filesystem", "resize", "max", "path"),
}
"""How they grow; ``device`` and ``path`` stand for the disk and its mount point."""
BLKID = "blkid"
LONG_S = 3600.0
"""The deadline for work on a whole disk: killing it halfway would do harm."""
_NOTHING_FOUND = 2
_UNCORRECTED = 4
"""The fsck exit status (a bit of it) that means errors are left."""


class Content(Struct, frozen=True):
    """The content of a disk as blkid finds it."""

    fs_type: str = ""
    """Empty: no file system that blkid recognizes."""
    empty: bool = False
    """Blank: it may be formatted."""


def read_blkid(text: str) -> Content:
    """The output of ``blkid -o export`` for a disk."""
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return Content(found.get("TYPE", "") if "PTTYPE" not in found else "")


async def format_and_mount(
    device: str,
    target: str,
    fs_type: str,
    options: Sequence[str],
    *,
    read_only: bool,
    in_thread: Callable[[Callable[[], Any], str], Awaitable[Any]],
) -> None:
    """Mount ``device`` at ``target``; an existing mount there stays.

    Raises:
        OperationFailed: it is damaged, or can't be formatted or mounted; FilesystemMismatch when
            it holds something else.
    """
    if await in_thread(partial(disk.is_mounted, target), "read of the mount table"):
        return
    call = f"mount of {device}"
    if fs_type not in MKFS:
        message = f"fsType {fs_type!r} is not one of {', '.join(sorted(MKFS))}"
        raise claims.not_done(message, event_word=_EVENT_WORD, call=call)
    content = await content_of(device)
    if content.empty:
        if read_only:
            message = f"{device} is not formatted, and the volume is read-only"
            raise claims.not_done(message, event_word=_EVENT_WORD, call=call)
        program, args = MKFS[fs_type]
        await run(
            program,
            [*args, device],
            call=f"{program} {device}",
            event_word=_EVENT_WORD,
            timeout=LONG_S,
        )
    elif content.fs_type and not read_only:
        await check(device)
    await in_thread(partial(disk.make_directory, target), f"mkdir {target}")
    flags = ",".join([*options, *(["ro"] if read_only else []), "defaults"])
    try:
        await run(
            "mount", ["-t", fs_type, "-o", flags, device, target], call=call, event_word=_EVENT_WORD
        )
    except claims.OperationFailed as error:
        if content.empty or content.fs_type == fs_type:
            raise
        holds = f"a {content.fs_type} file system" if content.fs_type else "something else"
        message = f"{device} holds {holds}, not the {fs_type} requested: {error.message}"
        raise claims.FilesystemMismatch(
            error.outcome, message, event_word=_EVENT_WORD, call=call
        ) from error


async def content_of(device: str) -> Content:
    """The content that blkid finds: a file system, a partition table or other data it recognizes.

    Raises:
        OperationFailed: it could not read the disk; nothing may be concluded.
    """
    call = f"blkid of {device}"
    path = await find_program(BLKID)
    if path is None:
        message = "blkid is not installed on this node (package util-linux)"
        raise claims.not_done(message, event_word=_EVENT_WORD, call=call)
    try:
        output = await run_program(Program(path, ("-p", "-o", "export", device)), b"")
    except ProgramFailed as error:
        if error.exit_status == _NOTHING_FOUND:
            return Content(empty=True)
        message = f"what is on {device} is not known: {error}"
        raise claims.not_done(message, event_word=_EVENT_WORD, call=call) from error
    return read_blkid(output.decode(errors="replace"))


async def check(device: str) -> None:
    """Repair what is safe to repair automatically. Raises OperationFailed: errors are left."""
    path = await find_program("fsck")
    if path is None:
        log.warning("a disk is mounted unchecked: fsck is not installed", extra={"device": device})
        return
    try:
        await run_program(Program(path, ("-a", device)), b"", timeout=LONG_S)
    except ProgramFailed as error:
        status = error.exit_status
        if status is not None and status & _UNCORRECTED:
            message = f"fsck found errors on {device} that it could not correct: {error}"
            raise claims.not_done(
                message, event_word=_EVENT_WORD, call=f"fsck of {device}"
            ) from error
        if status == 1:
            log.warning("fsck has corrected errors", extra={"device": device})
        else:
            log.warning("fsck could not check a disk", extra={"device": device, "why": str(error)})


async def grow(device: str, target: str) -> None:
    """Grow the file system mounted at ``target`` to fill its disk. Raises OperationFailed."""
    fs_type = (await content_of(device)).fs_type
    if fs_type not in GROW:
        message = f"{device} holds {fs_type or 'nothing'} that could grow"
        raise claims.not_done(message, call=f"file system resize of {device}")
    program, *template = GROW[fs_type]
    paths = {"device": device, "path": target}
    args = [paths.get(each, each) for each in template]
    await run(program, args, call=f"{program} of {device}", timeout=LONG_S)
