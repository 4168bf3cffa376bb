"""NFS volumes, mounted by mount.nfs.

If a server is down, every access to the mount hangs. So mounts are known from the mount table,
programs with a deadline mount and unmount, and nothing here queries the file system. Source:
docs/reference/behaviour-storage.md, sq.
"""

from __future__ import annotations

from functools import partial

from kubeletpy.volumes.claims.model import (
    AttachmentMetadata,
    OperationFailed,
    PodUse,
    Published,
    PublishedOnDisk,
    VolumeSource,
    VolumeSpec,
)
from kubeletpy.volumes.files import disk
from kubeletpy.volumes.intree.base import InTreePlugin, remove_directory, run


class NfsPlugin(InTreePlugin):
    """The plugin for ``nfs`` in a pod or a PersistentVolume."""

    name = "kubernetes.io/nfs"
    kinds = frozenset({"nfs"})
    directory = "kubernetes.io~nfs"

    def problem(self, source: VolumeSource) -> str:
        """Server and path are command arguments: neither may be an option or several words."""
        server, path = (str(source.source.get(key) or "") for key in ("server", "path"))
        if not server or server.startswith("-") or not server.isprintable() or " " in server:
            return f"nfs: {server!r} is no server"
        if not path.startswith("/"):
            return f"nfs: {path!r} is no absolute path"
        return super().problem(source)

    async def publish(
        self, spec: VolumeSpec, attachment: AttachmentMetadata, use: PodUse, *, remount: bool
    ) -> Published:
        """Mount it, unless it is mounted."""
        target = self.target(use.uid, spec.spec_name, spec.mode)
        if not await self.is_mounted(target):
            await self.in_thread(partial(disk.make_directory, target), f"mkdir {target}")
            await run(
                "mount",
                ["-t", "nfs", *options_of(spec), spec.export, target],
                call=f"mount.nfs of {spec.export}",
                event_word="MountVolume.SetUp",
            )
        return Published(target)

    async def unpublish(self, left: PublishedOnDisk) -> None:
        """Unmount it; by force if the server does not answer."""
        while await self.is_mounted(left.path):
            call = f"umount of {left.path}"
            try:
                await run("umount", ["-i", left.path], call=call)
            except OperationFailed:
                if not await self.is_mounted(left.path):
                    break
                await run("umount", ["-i", "-f", left.path], call=call)
        await self.in_thread(partial(remove_directory, left.path), f"rmdir {left.path}")

    async def server_of(self, left: PublishedOnDisk) -> str:
        """The server, by the mount table."""
        source = await self.in_thread(
            partial(disk.mounted_from, left.path), "read of the mount table"
        )
        server, found, _ = source.partition(":/")
        return f"NFS server {server}" if found else left.path


def options_of(spec: VolumeSpec) -> list[str]:
    """The ``-o`` argument; none without options."""
    read_only = ["ro"] if spec.read_only or spec.source.get("readOnly") else []
    options = sorted({*spec.mount_options, *read_only})
    return ["-o", ",".join(options)] if options else []
