"""Local PersistentVolumes: a directory of the node, or a disk that is formatted when it is empty.

Source: docs/reference/behaviour-storage.md, sj, sq, sq1.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from kubeletpy.volumes.claims.model import Mode, VolumeSource, VolumeSpec, VolumeTraits
from kubeletpy.volumes.intree.base import (
    DIRECTORY_MODE,
    InTreePlugin,
    is_mounted,
    names_in,
    remove_directory,
    run,
)
from kubeletpy.volumes.on_disk import Found, Outcome, Published, PublishedOnDisk, StagedOnDisk
from kubeletpy.volumes.operation import (
    ExpansionFailed,
    ExpansionProblem,
    OperationFailed,
    PodUse,
)
from kubeletpy.volumes.syscalls import MS_BIND, mount, unmount

_EVENT_WORD = "MountVolume.SetUp"


class LocalPlugin(InTreePlugin):
    """``local`` in a PersistentVolume."""

    name = "kubernetes.io/local-volume"
    kinds = frozenset({"local"})
    directory = "kubernetes.io~local-volume"

    def named(self, source: VolumeSource) -> VolumeTraits:
        """One for all pods of the node."""
        unique = f"{self.name}/{source.spec_name}"
        return VolumeTraits(unique, attachable=False, device_mountable=True)

    def problem(self, source: VolumeSource) -> str:
        """A path is needed, without a way up."""
        path = str(source.source.get("path") or "")
        if not path.startswith("/") or ".." in path.split("/"):
            return f"{path!r} is no path for a local volume: it must be absolute, without '..'"
        return ""

    def unique_name(self, pod_uid: str, spec_name: str) -> str:
        """Of a volume found on disk."""
        return f"{self.name}/{spec_name}"

    def staged(self, spec: VolumeSpec) -> StagedOnDisk:
        """Where a disk's file system is mounted."""
        path = self._global_mount(spec.spec_name)
        return StagedOnDisk(self.name, spec.unique_name, path, spec.mode, spec_name=spec.spec_name)

    async def stage(
        self, spec: VolumeSpec, attachment: Mapping[str, str] | None, use: PodUse
    ) -> None:
        """Mount a disk's file system for the node; a directory is ready as it is."""
        path = str(spec.source.get("path"))
        kind = await self._kind_of(path, "MountVolume.MountDevice")
        if spec.mode is Mode.BLOCK:
            if kind is not Mode.BLOCK:
                message = f"{path} is no block device, and the volume's mode is Block"
                raise OperationFailed(Outcome.FINAL, message, call=f"look at {path}")
            return
        if kind is Mode.BLOCK:
            from kubeletpy.volumes.intree.format_and_mount import format_and_mount

            await format_and_mount(
                path,
                self._global_mount(spec.spec_name),
                str(spec.source.get("fsType") or "ext4"),
                spec.mount_options,
                read_only=spec.read_only,
                in_thread=self.in_thread,
            )

    async def publish(
        self,
        spec: VolumeSpec,
        attachment: Mapping[str, str] | None,
        use: PodUse,
        *,
        remount: bool,
    ) -> Published:
        """Bind the directory or the mounted disk into the pod's directory; link a block device."""
        source = str(spec.source.get("path"))
        target = self.target(use.uid, spec.spec_name, spec.mode)
        kind = await self._kind_of(source, _EVENT_WORD)
        if spec.mode is Mode.BLOCK:
            device = await self.in_thread(partial(_link, source, target), f"link of {source}")
            return Published(target, device)
        mine = False
        if kind is Mode.BLOCK:
            source = self._global_mount(spec.spec_name)
        call = f"bind mount of {source}"
        if not await self.in_thread(partial(is_mounted, target), "look at mounts"):
            await self.in_thread(partial(_bind, source, target), call)
            mine = True
            options = [*spec.mount_options] if kind is not Mode.BLOCK else []
            if spec.read_only:
                options.append("ro")
            if options:
                flags = ",".join(["remount", "bind", *options])
                await run("mount", ["-o", flags, target], call=call, event_word=_EVENT_WORD)
        return Published(
            target,
            selinux_relabel=True,
            give_to_group=use.alone and (mine or not remount),
            shared_group=await self._shared_group(source, use) if mine else None,
        )

    async def expand(self, spec: VolumeSpec, size: int, use: PodUse, *, at_mount: bool) -> int:
        """Have a disk's file system fill it; there is nothing to do for directories and devices."""
        path = str(spec.source.get("path"))
        if spec.mode is Mode.BLOCK:
            return size
        if await self._kind_of(path, "NodeExpandVolume") is Mode.BLOCK:
            from kubeletpy.volumes.intree.format_and_mount import grow

            try:
                await grow(path, self._global_mount(spec.spec_name))
            except OperationFailed as error:
                raise ExpansionFailed(
                    ExpansionProblem.OTHER, error.message, call=error.call
                ) from error
        return size

    async def unpublish(self, left: PublishedOnDisk) -> None:
        """Unmount and remove the directory or the link."""
        await self.in_thread(partial(_remove, left.path), f"unmount of {left.path}")

    async def unstage(self, left: StagedOnDisk) -> None:
        """Unmount a disk's file system."""
        await self.in_thread(partial(_remove, left.path), f"unmount of {left.path}")

    def found(self) -> Found:
        """Those of pods' directories, and disks mounted for the node."""
        mounts = f"{self.root}/plugins/kubernetes.io/local-volume/mounts"
        staged = [
            StagedOnDisk(self.name, self.unique_name("", name), f"{mounts}/{name}", spec_name=name)
            for name in names_in(mounts)
        ]
        return Found(super().found().published, tuple(staged))

    async def _shared_group(self, source: str, use: PodUse) -> int | None:
        """The group of what other pods have too, if this one asks for another."""
        if use.alone or use.fs_group is None:
            return None
        group = await self.in_thread(lambda: Path(source).stat().st_gid, f"look at {source}")
        return group if group != use.fs_group else None

    def _global_mount(self, name: str) -> str:
        return f"{self.root}/plugins/kubernetes.io/local-volume/mounts/{name}"

    async def _kind_of(self, path: str, event_word: str) -> Mode:
        """Whether a path is a directory or a disk. Raises OperationFailed."""
        call = f"look at {path}"
        try:
            mode = (await self.patient.run(partial(os.stat, path))).st_mode
        except OSError as error:
            message = f'local volume path "{path}": {error.strerror}'
            raise OperationFailed(
                Outcome.FINAL, message, event_word=event_word, call=call
            ) from error
        if stat.S_ISDIR(mode):
            return Mode.FILESYSTEM
        if stat.S_ISBLK(mode):
            return Mode.BLOCK
        message = f'local volume path "{path}" is neither a directory nor a block device'
        raise OperationFailed(Outcome.FINAL, message, event_word=event_word, call=call)


def _bind(source: str, target: str) -> None:
    Path(target).mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    mount(source, target, flags=MS_BIND)


def _remove(path: str) -> None:
    """Unmount what is at a path of ours and remove it; a link too. Blocks. Raises OSError."""
    if Path(path).is_symlink():
        Path(path).unlink()
        return
    while is_mounted(path):
        unmount(path)
    remove_directory(path)


def _link(source: str, target: str) -> str:
    device, path = os.path.realpath(source), Path(target)
    path.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(device)
    return device
