"""Disks that this node reaches over a network: attached, mounted once, bound for each pod.

The common part of iSCSI and Fibre Channel. Paths and files are the kubelet's. Source:
docs/reference/behaviour-storage.md, sf, sh, si, sj, sq.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from kubeletpy.base.host import mount_table
from kubeletpy.base.structs import replace
from kubeletpy.volumes.claims.model import (
    AttachmentMetadata,
    Mode,
    VolumeSource,
    VolumeSpec,
    VolumeTraits,
)
from kubeletpy.volumes.claims.on_disk import (
    FailureOutcome,
    Found,
    Published,
    PublishedOnDisk,
    StagedOnDisk,
)
from kubeletpy.volumes.claims.operation import OperationFailed, PodUse
from kubeletpy.volumes.claims.selinux import mount_option
from kubeletpy.volumes.files import disk, syscalls
from kubeletpy.volumes.intree.base import InTreePlugin, remove_directory, unmount_and_remove
from kubeletpy.volumes.intree.scsi import ScsiTree

BLOCK_DIRECTORY = "volumeDevices"


class AttachedDiskPlugin(InTreePlugin):
    """A kind of disk. ``PublishedOnDisk.handle`` is the volume's place below ``base``."""

    depth = 1
    """Components of a place."""
    file = ""
    """Name of the file that a place contains besides devices; empty: none."""

    def __init__(
        self, root: Path, *, controller: bool = True, tree: ScsiTree | None = None
    ) -> None:
        """Args:
        root: the kubelet's root directory.
        controller: the attach controller decides when a disk may be used.
        tree: the device directories.
        """
        super().__init__(root)
        self._controller = controller
        self._tree = tree or ScsiTree()

    @property
    def base(self) -> str:
        """Where its disks are mounted for the node."""
        return f"{self.root}/plugins/{self.name}"

    # -- what each kind is -------------------------------------------------------------------

    @abstractmethod
    def place(self, spec: VolumeSpec) -> str:
        """The place of a volume, below ``base``."""

    @abstractmethod
    def name_at(self, place: str) -> str:
        """The unique name of the volume that has a place; empty: no volume can have it."""

    @abstractmethod
    async def attach(self, spec: VolumeSpec, use: PodUse, directory: str) -> str:
        """Attach a disk; returns its device. ``directory``: its place, to be made and written into
        before anything else. Raises OperationFailed.
        """

    @abstractmethod
    async def device(self, spec: VolumeSpec) -> str:
        """The device of an attached disk. Raises OperationFailed."""

    @abstractmethod
    async def detach(self, left: StagedOnDisk, place: str) -> None:
        """Detach a disk that is mounted nowhere. Raises OperationFailed."""

    @abstractmethod
    def full_name(self, source: VolumeSource) -> str:
        """The unique name of a volume."""

    # -- questions ---------------------------------------------------------------------------

    def named(self, source: VolumeSource) -> VolumeTraits:
        """A disk is attached and mounted once for all pods of the node."""
        return VolumeTraits(self.full_name(source), self._controller, device_mountable=True)

    def problem(self, source: VolumeSource) -> str:
        """Block devices are supported as well as file systems."""
        return ""

    def supports_selinux_mount(self, spec: VolumeSpec) -> bool:
        """A file system can be mounted with a context."""
        return spec.mode is Mode.FILESYSTEM

    def published(self, spec: VolumeSpec, pod_uid: str) -> PublishedOnDisk:
        """The path of a volume in a pod."""
        return replace(super().published(spec, pod_uid), handle=self.place(spec))

    def staged(self, spec: VolumeSpec) -> StagedOnDisk:
        """Where it is mounted for the node."""
        path = self.directory_of(self.place(spec), spec.mode)
        context = spec.selinux_context or ""
        return replace(super().staged(spec), path=path, selinux_context=context)

    def directory_of(self, place: str, mode: Mode) -> str:
        """Where a disk is mounted for the node, or its device bound for pods."""
        return f"{self.base}/{place}" if mode is Mode.FILESYSTEM else f"{self._maps}/{place}"

    def places(self, mode: Mode) -> list[str]:
        """All disks in use. Blocks."""
        above = self.base if mode is Mode.FILESYSTEM else self._maps
        found = [name for name in disk.names_in(above) if name != BLOCK_DIRECTORY]
        if self.depth == 1:
            return found
        return [f"{name}/{below}" for name in found for below in disk.names_in(f"{above}/{name}")]

    # -- acts --------------------------------------------------------------------------------

    async def stage(self, spec: VolumeSpec, attachment: AttachmentMetadata, use: PodUse) -> None:
        """Attach it, and mount its file system for the node."""
        target = self.staged(spec).path
        device = await self.attach(spec, use, target)
        if spec.mode is Mode.BLOCK:
            return
        from kubeletpy.volumes.intree.format_and_mount import format_and_mount

        await format_and_mount(
            device,
            target,
            str(spec.source.get("fsType") or "ext4"),
            (*spec.mount_options, *mount_option(use.selinux_context)),
            read_only=spec.read_only,
            in_thread=self.in_thread,
        )

    async def publish(
        self, spec: VolumeSpec, attachment: AttachmentMetadata, use: PodUse, *, remount: bool
    ) -> Published:
        """Bind it into the pod's directory, or bind its device for the pod."""
        source = self.staged(spec).path
        target = self.target(use.uid, spec.spec_name, spec.mode)
        if spec.mode is Mode.BLOCK:
            return await self.map_device(await self.device(spec), source, use.uid, target)
        options = [*spec.mount_options, *(["ro"] if spec.read_only else [])]
        mine = await self.bind(source, target, options)
        return Published(
            target,
            selinux_relabel=use.selinux_context is None,
            give_to_group=use.alone and (mine or not remount),
        )

    async def unpublish(self, left: PublishedOnDisk) -> None:
        """Undo ``publish``."""
        if left.mode is Mode.FILESYSTEM:
            work = partial(unmount_and_remove, left.path)
        elif left.handle:
            bound = f"{self._maps}/{left.handle}/{left.pod_uid}"
            work = partial(disk.unmap_device, bound, left.path)
        else:
            work = partial(remove_directory, left.path)
        await self.in_thread(work, f"unmount of {left.path}")

    async def unstage(self, left: StagedOnDisk) -> None:
        """Unmount and detach it."""
        place = left.path.removeprefix(f"{self._maps}/").removeprefix(f"{self.base}/")
        call = f"unmount of {left.path}"
        others = disk.bound_devices if left.mode is Mode.BLOCK else self._shown_elsewhere
        found = await self.in_thread(partial(others, left.path), call)
        if found:
            message = f"{left.path} is still mounted by other references: {' '.join(found[:8])}"
            raise OperationFailed(FailureOutcome.UNCERTAIN, message, call=call)
        await self.in_thread(partial(disk.force_unmount, left.path), call)
        await self.detach(left, place)
        await self.in_thread(partial(self._remove, left.path), f"removal of {left.path}")

    def find_on_disk(self) -> Found:
        """Mounted and bound disks, and those in pods' directories."""
        staged = [
            StagedOnDisk(self.name, name, self.directory_of(place, mode), mode)
            for mode in Mode
            for place in self.places(mode)
            if (name := self.name_at(place))
        ]
        return Found(tuple(self._found_published()), tuple(staged))

    def _found_published(self) -> Iterator[PublishedOnDisk]:
        mounts = syscalls.table()
        for left in super().find_on_disk().published:
            of = self._of_device if left.mode is Mode.BLOCK else self._of_mount
            place = of(left, mounts)
            name = self.name_at(place) if place else ""
            if name:
                yield replace(left, unique_name=name, handle=place)
            else:
                yield replace(left, damaged="its disk cannot be determined")

    def _of_mount(self, left: PublishedOnDisk, mounts: list[mount_table.MountPoint]) -> str:
        """The place of the disk that a pod has mounted; empty: there is none."""
        for path in mount_table.references(mounts, left.path):
            place = path.removeprefix(f"{self.base}/")
            if place != path and self.name_at(place):
                return place
        return ""

    def _of_device(self, left: PublishedOnDisk, mounts: list[mount_table.MountPoint]) -> str:
        """The place of the disk whose device a pod has; empty: there is none."""
        with contextlib.suppress(OSError):
            wanted = Path(left.path).stat().st_rdev
            for place in self.places(Mode.BLOCK):
                with contextlib.suppress(OSError):
                    bound = f"{self._maps}/{place}/{left.pod_uid}"
                    if Path(bound).stat().st_rdev == wanted:
                        return place
        return ""

    @property
    def _maps(self) -> str:
        return f"{self.base}/{BLOCK_DIRECTORY}"

    def _shown_elsewhere(self, path: str) -> list[str]:
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
