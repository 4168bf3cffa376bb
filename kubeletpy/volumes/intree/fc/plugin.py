"""Fibre Channel volumes: disks on the fabric, found by udev's links.

Source: docs/reference/behaviour-storage.md, sq.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

from kubeletpy.volumes.claims.model import (
    FailureOutcome,
    Mode,
    OperationFailed,
    PodUse,
    StagedOnDisk,
    VolumeSource,
    VolumeSpec,
)
from kubeletpy.volumes.files import disk
from kubeletpy.volumes.intree import scsi
from kubeletpy.volumes.intree.disks import AttachedDiskPlugin
from kubeletpy.volumes.intree.fc import target
from kubeletpy.volumes.intree.fc.target import FcDisk, disk_of

DEVICE_S = 10.0
"""Seconds that udev may take to show a disk after the scan of the hosts began."""
CHECK_S = 0.5


class FcPlugin(AttachedDiskPlugin):
    """The plugin for ``fc`` in a pod or a PersistentVolume."""

    name = target.PLUGIN
    kinds = frozenset({"fc"})
    directory = "kubernetes.io~fc"

    def problem(self, source: VolumeSource) -> str:
        """Names become path components."""
        return target.problem(source.source)

    def full_name(self, source: VolumeSource) -> str:
        """Targets and LUN, or the disk's own names."""
        return target.unique_name(source.source)

    def place(self, spec: VolumeSpec) -> str:
        """The targets and LUN, or the disk's own names, as one path component."""
        return disk_of(spec.source).place

    def name_at(self, place: str) -> str:
        """The unique name, derived from the name of the disk's directory."""
        found = target.disk_at(place)
        return target.name_of(found) if found is not None else ""

    async def attach(self, spec: VolumeSpec, use: PodUse, directory: str) -> str:
        """The disk's multipath map, or the disk; without a map the hosts are rescanned first."""
        desired = disk_of(spec.source)
        await self.in_thread(partial(disk.make_directory, directory), f"mkdir {directory}")
        found, is_map = await self._find_device(desired)
        if is_map:
            return found
        call = f"search for FC disk {desired.place}"
        await self.in_thread(partial(scsi.scan_all, self._tree), call)
        until = asyncio.get_running_loop().time() + DEVICE_S
        while True:
            found, _ = await self._find_device(desired)
            if found:
                return found
            if asyncio.get_running_loop().time() >= until:
                break
            await asyncio.sleep(CHECK_S)
        message = (
            f"no FC disk {desired.place} in {self._tree.dev}/disk: is it zoned and mapped to this "
            "node?"
        )
        word = "MountVolume.WaitForAttach"
        raise OperationFailed(FailureOutcome.UNCERTAIN, message, event_word=word, call=call)

    async def device(self, spec: VolumeSpec) -> str:
        """The disk's device, found by its link."""
        desired = disk_of(spec.source)
        found, _ = await self._find_device(desired)
        if not found:
            call = f"search for FC disk {desired.place}"
            raise OperationFailed(FailureOutcome.UNCERTAIN, "its link does not exist", call=call)
        return found

    async def detach(self, left: StagedOnDisk, place: str) -> None:
        """Remove all paths of the disk, unless it is in use in the other mode."""
        desired = target.disk_at(place)
        other = Mode.BLOCK if left.mode is Mode.FILESYSTEM else Mode.FILESYSTEM
        call = f"search for FC disk {place}"
        in_use = await self.in_thread(Path(self.directory_of(place, other)).exists, call)
        if desired is None or in_use:
            return
        devices = await self.in_thread(partial(self._devices, desired), call)
        await scsi.remove_disks(self._tree, (Path(each).name for each in devices), self.in_thread)

    async def _find_device(self, desired: FcDisk) -> tuple[str, bool]:
        """The multipath map of a disk, or the disk, and which it is; empty: neither exists."""
        call = f"search for FC disk {desired.place}"
        devices = await self.in_thread(partial(self._devices, desired), call)
        for device in devices:
            check = partial(scsi.multipath_of, self._tree, device)
            found = await self.in_thread(check, call)
            if found is not None:
                return found, True
        return (devices[-1] if devices else ""), False

    def _devices(self, desired: FcDisk) -> list[str]:
        """The disks that its links lead to. Blocks."""
        top = f"{self._tree.dev}/disk"
        by_path, by_id = disk.names_in(f"{top}/by-path"), disk.names_in(f"{top}/by-id")
        links = target.links_of(desired, by_path, by_id)
        paths = [f"{top}/{link}" for link in links]
        return sorted({os.path.realpath(path) for path in paths if Path(path).exists()})
