"""PersistentVolumes on the node itself: ``local`` and ``hostPath``.

A ``local`` volume is a directory, or a disk that is formatted when blank. Source:
docs/reference/behaviour-storage.md, sc1, sj, sq, sq1.
"""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path

from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.files import disk, safe_path
from kubeletpy.volumes.files.safe_path import HostPathError
from kubeletpy.volumes.intree.base import InTreePlugin, unmount_and_remove

_EVENT_WORD = "MountVolume.SetUp"


class LocalPlugin(InTreePlugin):
    """The plugin for ``local`` in a PersistentVolume."""

    name = "kubernetes.io/local-volume"
    kinds = frozenset({"local"})
    directory = "kubernetes.io~local-volume"

    def named(self, source: claims.VolumeSource) -> claims.VolumeTraits:
        """It is prepared once for all pods of the node."""
        unique = f"{self.name}/{source.spec_name}"
        return claims.VolumeTraits(unique, attachable=False, device_mountable=True)

    def problem(self, source: claims.VolumeSource) -> str:
        """A path is required, without ".."."""
        path = str(source.source.get("path") or "")
        if not path.startswith("/") or ".." in path.split("/"):
            return f"{path!r} is no path for a local volume: it must be absolute, without '..'"
        return ""

    def unique_name(self, pod_uid: str, spec_name: str) -> str:
        """The unique name of a volume found on disk."""
        return f"{self.name}/{spec_name}"

    def staged(self, spec: claims.VolumeSpec) -> claims.StagedOnDisk:
        """Where a disk's file system is mounted."""
        block = spec.mode is claims.Mode.BLOCK
        path = (self._maps if block else self._global_mount)(spec.spec_name)
        return claims.StagedOnDisk(
            self.name, spec.unique_name, path, spec.mode, spec_name=spec.spec_name
        )

    async def stage(
        self, spec: claims.VolumeSpec, attachment: claims.AttachmentMetadata, use: claims.PodUse
    ) -> None:
        """Mount a disk's file system for the node; a directory needs nothing."""
        path = str(spec.source.get("path"))
        kind = await self._kind_of(path, "MountVolume.MountDevice")
        if spec.mode is claims.Mode.BLOCK:
            if kind is not claims.Mode.BLOCK:
                message = f"{path} is no block device, and the volume's mode is Block"
                raise claims.OperationFailed(
                    claims.FailureOutcome.FINAL, message, call=f"stat of {path}"
                )
            return
        if kind is claims.Mode.BLOCK:
            from kubeletpy.volumes.intree.attached_disk import format_and_mount

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
        spec: claims.VolumeSpec,
        attachment: claims.AttachmentMetadata,
        use: claims.PodUse,
        *,
        remount: bool,
    ) -> claims.Published:
        """Bind the directory or the mounted disk into the pod's directory; link a block device."""
        source = str(spec.source.get("path"))
        target = self.target(use.uid, spec.spec_name, spec.mode)
        kind = await self._kind_of(source, _EVENT_WORD)
        if spec.mode is claims.Mode.BLOCK:
            device = await self.in_thread(partial(disk.device_of, source), f"stat of {source}")
            return await self.map_device(device, self._maps(spec.spec_name), use.uid, target)
        options = [*spec.mount_options] if kind is not claims.Mode.BLOCK else []
        if spec.read_only:
            options.append("ro")
        if kind is claims.Mode.BLOCK:
            source = self._global_mount(spec.spec_name)
        mine = await self.bind(source, target, options)
        return claims.Published(
            target,
            selinux_relabel=True,
            give_to_group=use.alone and (mine or not remount),
            shared_group=await self._shared_group(source, use) if mine else None,
        )

    async def expand(self, spec: claims.VolumeSpec, size: int, use: claims.PodUse) -> int:
        """Grow a disk's file system to fill it; directories and devices need nothing."""
        path = str(spec.source.get("path"))
        if spec.mode is claims.Mode.BLOCK:
            return size
        if await self._kind_of(path, "NodeExpandVolume") is claims.Mode.BLOCK:
            from kubeletpy.volumes.intree.attached_disk import grow

            try:
                await grow(path, self._global_mount(spec.spec_name))
            except claims.OperationFailed as error:
                raise claims.ExpansionFailed(
                    claims.ExpansionProblem.OTHER, error.message, call=error.call
                ) from error
        return size

    async def unpublish(self, left: claims.PublishedOnDisk) -> None:
        """Unmount and remove the directory, or remove the link and release the device."""
        if left.mode is claims.Mode.BLOCK:
            bound = f"{self._maps(left.spec_name)}/{left.pod_uid}"
            work = partial(disk.unmap_device, bound, left.path)
        else:
            work = partial(unmount_and_remove, left.path)
        await self.in_thread(work, f"unmount of {left.path}")

    async def unstage(self, left: claims.StagedOnDisk) -> None:
        """Unmount a disk's file system."""
        work = partial(unmount_and_remove, left.path)
        await self.in_thread(work, f"unmount of {left.path}")

    def find_on_disk(self) -> claims.Found:
        """The volumes in pods' directories, and disks mounted or held for the node."""
        mounts = f"{self.root}/plugins/kubernetes.io/local-volume/mounts"
        maps = f"{self.root}/plugins/{self.directory}/volumeDevices"
        staged = [
            claims.StagedOnDisk(
                self.name, self.unique_name("", name), f"{at}/{name}", mode, spec_name=name
            )
            for at, mode in ((mounts, claims.Mode.FILESYSTEM), (maps, claims.Mode.BLOCK))
            for name in disk.names_in(at)
        ]
        return claims.Found(super().find_on_disk().published, tuple(staged))

    def _maps(self, name: str) -> str:
        """Where devices are bound for pods."""
        return f"{self.root}/plugins/{self.directory}/volumeDevices/{name}"

    async def _shared_group(self, source: str, use: claims.PodUse) -> int | None:
        """The current group, if other pods have the volume and this one requests another group."""
        if use.alone or use.fs_group is None:
            return None
        group = await self.in_thread(lambda: Path(source).stat().st_gid, f"stat of {source}")
        return group if group != use.fs_group else None

    def _global_mount(self, name: str) -> str:
        return f"{self.root}/plugins/kubernetes.io/local-volume/mounts/{name}"

    async def _kind_of(self, path: str, event_word: str) -> claims.Mode:
        """Whether a path is a directory or a disk. Raises OperationFailed."""
        call = f"stat of {path}"
        try:
            mode = (await self.patient.run(partial(os.stat, path))).st_mode
        except OSError as error:
            message = f'local volume path "{path}": {error.strerror}'
            raise claims.OperationFailed(
                claims.FailureOutcome.FINAL, message, event_word=event_word, call=call
            ) from error
        if stat.S_ISDIR(mode):
            return claims.Mode.FILESYSTEM
        if stat.S_ISBLK(mode):
            return claims.Mode.BLOCK
        message = f'local volume path "{path}" is neither a directory nor a block device'
        raise claims.OperationFailed(
            claims.FailureOutcome.FINAL, message, event_word=event_word, call=call
        )


class HostPathPlugin(InTreePlugin):
    """The plugin for ``hostPath`` in a PersistentVolume.

    Nothing is mounted: containers get the path itself, and there is nothing to tear down.
    """

    name = "kubernetes.io/host-path"
    kinds = frozenset({"hostPath"})

    def problem(self, source: claims.VolumeSource) -> str:
        """A path is required, without ".."."""
        path = str(source.source.get("path") or "")
        if not path.startswith("/") or ".." in path.split("/"):
            return f"{path!r} is no path for a volume: it must be absolute, without '..'"
        return super().problem(source)

    def target(self, pod_uid: str, spec_name: str, mode: claims.Mode) -> str:
        """An empty path: the volume has none in the pod's directory."""
        return ""

    async def publish(
        self,
        spec: claims.VolumeSpec,
        attachment: claims.AttachmentMetadata,
        use: claims.PodUse,
        *,
        remount: bool,
    ) -> claims.Published:
        """Check or make the path, as its type requires."""
        path, kind = str(spec.source.get("path")), spec.source.get("type") or ""
        try:
            await self.patient.run(partial(safe_path.prepare, path, kind))
        except (HostPathError, OSError) as error:
            message = f"hostPath {path}: {error}"
            raise claims.OperationFailed(
                claims.FailureOutcome.FINAL, message, call=f"check of {path}"
            ) from error
        return claims.Published(path)

    async def unpublish(self, left: claims.PublishedOnDisk) -> None:
        """Do nothing: the path was never mounted."""
