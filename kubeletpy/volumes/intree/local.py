"""PersistentVolumes of kind ``local``: a directory of the node, or a disk that it has.

A blank disk is formatted. Source: docs/reference/behaviour-storage.md, sc1, sj, sq, sq1.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kubeletpy.base.host.mount_table import MountPoint
from kubeletpy.base.structs import replace
from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.files import disk
from kubeletpy.volumes.intree.disks import DiskPlugin, grow


class LocalPlugin(DiskPlugin):
    """The plugin for ``local`` in a PersistentVolume. Its place is its name."""

    name = "kubernetes.io/local-volume"
    kinds = frozenset({"local"})
    directory = "kubernetes.io~local-volume"

    def problem(self, source: claims.VolumeSource) -> str:
        """A path is required, without ".."."""
        path = str(source.source.get("path") or "")
        if not path.startswith("/") or ".." in path.split("/"):
            return f"{path!r} is no path for a local volume: it must be absolute, without '..'"
        return ""

    def full_name(self, source: claims.VolumeSource) -> str:
        return self.name_at(source.spec_name)

    def place(self, spec: claims.VolumeSpec) -> str:
        return spec.spec_name

    def name_at(self, place: str) -> str:
        return f"{self.name}/{place}"

    def place_in(self, left: claims.PublishedOnDisk, mounts: list[MountPoint]) -> str:
        return left.spec_name

    def find_on_disk(self) -> claims.Found:
        found = super().find_on_disk()
        staged = (replace(each, spec_name=Path(each.path).name) for each in found.staged)
        return claims.Found(found.published, tuple(staged))

    def above(self, mode: claims.Mode) -> str:
        plugins = f"{self.root}/plugins"
        if mode is claims.Mode.BLOCK:
            return f"{plugins}/{self.directory}/volumeDevices"
        return f"{plugins}/kubernetes.io/local-volume/mounts"

    async def attach(self, spec: claims.VolumeSpec, use: claims.PodUse, directory: str) -> str:
        """The disk; nothing for a directory, which is bound as it is."""
        path = str(spec.source.get("path"))
        is_disk = await self._is_disk(path, "MountVolume.MountDevice")
        if spec.mode is claims.Mode.BLOCK and not is_disk:
            message = f"{path} is no block device, and the volume's mode is Block"
            raise claims.not_done(message, call=f"stat of {path}")
        return path if is_disk else ""

    async def device(self, spec: claims.VolumeSpec) -> str:
        source = str(spec.source.get("path"))
        return await self.in_thread(partial(disk.device_of, source), f"stat of {source}")

    async def bound_from(self, spec: claims.VolumeSpec) -> tuple[str, Sequence[str]]:
        path = str(spec.source.get("path"))
        if await self._is_disk(path, "MountVolume.SetUp"):
            return self.staged(spec).path, ()
        return path, spec.mount_options

    async def shared_group(self, source: str, use: claims.PodUse) -> int | None:
        if use.alone or use.fs_group is None:
            return None
        group = await self.in_thread(lambda: Path(source).stat().st_gid, f"stat of {source}")
        return group if group != use.fs_group else None

    async def expand(self, spec: claims.VolumeSpec, size: int, use: claims.PodUse) -> int:
        """Grow a disk's file system to fill it; directories and devices need nothing."""
        path = str(spec.source.get("path"))
        if spec.mode is claims.Mode.BLOCK:
            return size
        if await self._is_disk(path, "NodeExpandVolume"):
            try:
                await grow(path, self.staged(spec).path)
            except claims.OperationFailed as error:
                raise claims.ExpansionFailed(
                    claims.ExpansionProblem.OTHER, error.message, call=error.call
                ) from error
        return size

    async def _is_disk(self, path: str, event_word: str) -> bool:
        """Whether a path is a disk, and not a directory. Raises OperationFailed."""
        call = f"stat of {path}"
        try:
            mode = (await self.patient.run(partial(os.stat, path))).st_mode
        except OSError as error:
            message = f'local volume path "{path}": {error.strerror}'
            raise claims.not_done(message, event_word=event_word, call=call) from error
        if stat.S_ISDIR(mode) or stat.S_ISBLK(mode):
            return stat.S_ISBLK(mode)
        message = f'local volume path "{path}" is neither a directory nor a block device'
        raise claims.not_done(message, event_word=event_word, call=call)
