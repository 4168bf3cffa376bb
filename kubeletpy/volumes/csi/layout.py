"""Where CSI volumes lie on a node, and the file work around the calls of drivers.

The data that a teardown needs is on disk before any call. Methods block: they are for threads.
Source: docs/reference/behaviour-storage.md, sh, si, sj.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kubeletpy.base.host.files import remove_tree
from kubeletpy.base.structs import Struct
from kubeletpy.volumes.claims.model import Published
from kubeletpy.volumes.csi import files
from kubeletpy.volumes.csi import objects as csi_objects
from kubeletpy.volumes.csi.files import VolumeData
from kubeletpy.volumes.csi.host import on_disk
from kubeletpy.volumes.files import disk


class Layout(Struct, frozen=True):
    """The path that a driver gets for one volume, with the files around it."""

    target: str
    """Where the driver stages or publishes it."""
    what: str
    """Its name in errors."""

    @property
    def data(self) -> str:
        """The path of its vol_data.json."""
        raise NotImplementedError

    @property
    def measured(self) -> str:
        """The path at which a driver measures it."""
        return self.target

    def prepare(self, data: VolumeData, fresh: set[str]) -> tuple[bool, bool]:
        """Make the directories and the file that a teardown needs, before any call.

        ``fresh`` gets the target if it had no volume. Returns whether the file was written, and
        whether a call without effect has to be taken back.
        """
        raise NotImplementedError

    def take_back(self) -> None:
        """Undo ``prepare``."""
        self.remove()

    async def published(self, driver: str) -> Published:
        """The volume as its pod gets it. Raises OperationFailed: the driver has made nothing."""
        raise NotImplementedError

    def references(self) -> str:
        """Why it must not be unstaged; empty: nothing uses it."""
        return ""

    def leftovers(self) -> list[Layout]:
        """Where it is, or may be, published to no pod."""
        return []

    def may_be_staged(self) -> bool:
        """Whether its driver has to unstage it."""
        return True

    def release(self) -> None:
        """Release what keeps a driver from unpublishing it."""

    def remove(self) -> None:
        """Remove all files after the driver's call. Raises OSError: something is in the way."""
        raise NotImplementedError


class FilesystemLayout(Layout, frozen=True):
    """A directory that the driver mounts, with vol_data.json beside it."""

    staged: bool = False
    """We make the directory for a driver that stages; it makes that of a pod itself."""

    @property
    def data(self) -> str:
        return str(Path(self.target).with_name(csi_objects.DATA_FILE))

    def prepare(self, data: VolumeData, fresh: set[str]) -> tuple[bool, bool]:
        try:
            known = files.read(self.data) is not None
        except files.DataUnreadable:
            known = False
        if not known and not disk.is_mounted(self.target):
            fresh.add(self.target)
        disk.make_directory(self.target if self.staged else str(Path(self.target).parent))
        return files.write(self.data, data), self.target in fresh

    async def published(self, driver: str) -> Published:
        labels = await on_disk(self.what, self._supports_labels, driver)
        return Published(self.target, selinux_relabel=labels)

    def _supports_labels(self, driver: str) -> bool:
        whole = Path(self.target)
        with os.scandir(whole.parent) as entries:  # reads the directory, not the mount in it
            if not any(entry.name == whole.name for entry in entries):
                text = f"driver {driver} reports that it is published, but there is nothing"
                raise OSError(None, text, self.target)
        return disk.has_labels(self.target)

    def references(self) -> str:
        plugin = f"plugins/{csi_objects.PLUGIN}/"
        suffix = plugin + self.target.partition(f"/{plugin}")[2]
        others = disk.other_references(self.target, suffix)
        named = " ".join(others[:8])
        return f"{self.target} is still mounted by other references [{named}]" if others else ""

    def remove(self) -> None:
        files.remove_volume(self.target, self.data)


class StagedBlockLayout(Layout, frozen=True):
    """The staging directory of a block volume, and all that the node keeps of it (table si)."""

    block: csi_objects.BlockPaths
    spec_name: str

    @property
    def data(self) -> str:
        return self.block.data

    def prepare(self, data: VolumeData, fresh: set[str]) -> tuple[bool, bool]:
        written = _write(self.block, self.target, data, fresh)
        return written, self.target in fresh

    def references(self) -> str:
        bound = " ".join(disk.bound_devices(self.block.map_dir)[:8])
        return f"{self.spec_name} is still referenced from other Pods: {bound}" if bound else ""

    def leftovers(self) -> list[Layout]:
        try:
            uids = sorted(each.name for each in Path(self.block.publish_dir).iterdir())
        except FileNotFoundError:
            return []
        return [BlockLayout.of(self.block, uid) for uid in uids]

    def may_be_staged(self) -> bool:
        return Path(self.target).exists()

    def remove(self) -> None:
        """Remove what the driver may have left in its staging directory, entering no mounts."""
        with contextlib.suppress(FileNotFoundError):
            remove_tree(self.target)
        disk.remove_directory(self.block.publish_dir)
        disk.remove_directory(self.block.map_dir)
        files.remove(self.data)
        disk.remove_directory(str(Path(self.data).parent))
        disk.remove_directory(self.block.top)


class BlockLayout(Layout, frozen=True):
    """A device of one pod: published to the node, then bound, held and linked (table si).

    The pod's link is removed last (the kubelet removes it first): a call that publishes may still
    take effect. After a restart, only the link shows that there is something to tear down.
    """

    block: csi_objects.BlockPaths
    bound: str
    """The device bound for the pod."""
    link: str = ""
    """Through which its containers get the device; empty: no pod has it."""

    @classmethod
    def of(cls, block: csi_objects.BlockPaths, uid: str, link: str = "") -> BlockLayout:
        """The device of one pod."""
        return cls(block.publish(uid), "device of the pod", block, block.map(uid), link)

    @property
    def data(self) -> str:
        return self.block.data

    @property
    def measured(self) -> str:
        return self.bound

    def prepare(self, data: VolumeData, fresh: set[str]) -> tuple[bool, bool]:
        written = _write(self.block, self.block.publish_dir, data, fresh)
        return written, disk.announce(self.link, self.target)

    def take_back(self) -> None:
        disk.withdraw(self.link)

    async def published(self, driver: str) -> Published:
        device = await on_disk(f"device of driver {driver}", disk.device_of, self.target)
        await on_disk(self.what, disk.map_device, device, self.bound, self.link)
        return Published(self.link, map_directory=self.block.map_dir)

    def release(self) -> None:
        disk.release_device(self.bound)

    def remove(self) -> None:
        if disk.is_mounted(self.target):
            raise disk.StillMounted(None, "it is still mounted", self.target)
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            Path(self.target).unlink()
        with contextlib.suppress(OSError):  # other pods have links in it
            Path(self.target).parent.rmdir()
        if self.link:
            disk.withdraw(self.link)


def _write(
    block: csi_objects.BlockPaths, directory: str, data: VolumeData, fresh: set[str]
) -> bool:
    if not Path(block.data).exists():
        fresh.add(block.staging)
    disk.make_directory(directory)
    disk.make_directory(str(Path(block.data).parent))
    return files.write(block.data, data)
