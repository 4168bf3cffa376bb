"""CSI volumes: staged for the node, published to pods, and torn down.

The data that a teardown needs is on disk before any call to a driver. Source:
docs/reference/behaviour-storage.md, sf1, sf2, sh, si, sj.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.base.host.files import remove_tree
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.tasks import run_together
from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.claims.resolve import attachment_name
from kubeletpy.volumes.csi import files
from kubeletpy.volumes.csi import objects as csi_objects
from kubeletpy.volumes.csi.files import VolumeData
from kubeletpy.volumes.csi.host import CsiHost, flushed_meanwhile, on_disk, pod_info, texts
from kubeletpy.volumes.files import disk

if TYPE_CHECKING:
    from kubeletpy.volumes.csi.client import CsiVolume


log = logging.getLogger(__name__)

UNMOUNT_S = 60.0


def handle_of(spec: claims.VolumeSpec, pod_uid: str) -> str:
    """The volume's handle; an inline volume's is derived from its pod."""
    return csi_objects.inline_handle(pod_uid, spec.pod_volume) if spec.inline else spec.handle


def mode_of(spec: claims.VolumeSpec) -> str:
    """The access mode passed to a driver."""
    return spec.access_modes[0] if spec.access_modes and not spec.inline else "ReadWriteOnce"


class FilesystemVolumes:
    """Operations on volumes with a file system: a directory in the pod, mounted by the driver."""

    def __init__(self, host: CsiHost, threads: PatientThreads) -> None:
        """``threads``: for work that may never return."""
        self._host = host
        self._threads = threads

    async def stage(
        self, spec: claims.VolumeSpec, attachment: claims.AttachmentMetadata, use: claims.PodUse
    ) -> None:
        """NodeStageVolume, if the driver has it. Raises OperationFailed."""
        client = self._host.client(spec.driver)
        until = client.until()
        if not await client.stages(until):
            return
        from kubeletpy.volumes.csi.client import CsiVolume, VolumeAccess

        secrets = await self._host.credentials.secret(spec.source.get("nodeStageSecretRef"))
        group = use.fs_group if await client.applies_group(until) else None
        flags = (*spec.mount_options, *claims.mount_option(use.selinux_context))
        fs_type = str(spec.source.get("fsType") or "")
        volume = CsiVolume(
            handle=spec.handle,
            access=VolumeAccess(mode_of(spec), fs_type=fs_type, flags=flags, group=group),
            publish_context=attachment or {},
            context=texts(spec.source.get("volumeAttributes")),
            secrets=secrets,
            migrated=spec.migrated,
        )
        paths = self._host.paths.staging(spec.driver, spec.handle)
        data = VolumeData(spec.driver, spec.handle, selinux=use.selinux_context or "")
        written = await on_disk("staging directory", self._prepare, paths.target, paths.data, data)
        try:
            call = client.stage(volume, paths.target, until)
            await flushed_meanwhile(paths.data, call, written=written)
        except claims.OperationFailed as error:
            await self._unprepare(error, paths.target, paths.data)
            raise

    async def publish(
        self,
        spec: claims.VolumeSpec,
        attachment: claims.AttachmentMetadata,
        use: claims.PodUse,
        *,
        remount: bool,
    ) -> claims.Published:
        """Publish a volume to a pod (NodePublishVolume). Raises OperationFailed."""
        host, driver = self._host, spec.driver
        client, rules = host.client(driver), host.object(driver)
        until = client.until()
        problem = csi_objects.lifecycle_problem(driver, rules, inline=spec.inline)
        if not problem and rules.group_policy is None:
            problem = f"CSIDriver {driver} has no fsGroupPolicy that is known"
        if problem or rules.group_policy is None:
            raise claims.OperationFailed(claims.FailureOutcome.TRANSIENT, problem)
        from kubeletpy.volumes.csi.client import CsiVolume, VolumeAccess

        staging = ""
        if not spec.inline and await client.stages(until):
            staging = host.paths.staging(driver, spec.handle).target
        paths = host.paths.filesystem(use.uid, spec.spec_name)
        namespace = use.namespace if spec.inline else ""
        secrets, tokens = await run_together(
            host.credentials.secret(spec.source.get("nodePublishSecretRef"), namespace),
            host.credentials.tokens(use.pod, rules.tokens),
        )
        context = texts(spec.source.get("volumeAttributes"))
        if rules.pod_info:
            context |= pod_info(use, inline=spec.inline)
        if rules.tokens_in_secrets:
            secrets |= tokens
        else:
            context |= tokens
        applies_group = await client.applies_group(until)
        selinux = use.selinux_context if rules.selinux_mount else None
        options = () if spec.inline else spec.mount_options
        fs_type = str(spec.source.get("fsType") or "")
        handle = handle_of(spec, use.uid)
        volume = CsiVolume(
            handle=handle,
            access=VolumeAccess(
                mode_of(spec),
                fs_type=fs_type,
                flags=(*options, *claims.mount_option(selinux)),
                group=use.fs_group if applies_group else None,
            ),
            publish_context=attachment or {},
            context=context,
            secrets=secrets,
            migrated=spec.migrated,
        )
        data = VolumeData(
            driver,
            handle,
            spec_name=spec.spec_name,
            node=host.node_name,
            attachment=attachment_name(handle, driver, host.node_name),
            lifecycle=csi_objects.EPHEMERAL if spec.inline else csi_objects.PERSISTENT,
            selinux=selinux or "",
        )
        written = await on_disk(
            "volume directory", self._prepare, None, paths.data, data, paths.target
        )
        try:
            call = client.publish(
                volume, staging, paths.target, read_only=spec.read_only, until=until
            )
            await flushed_meanwhile(paths.data, call, written=written)
        except claims.OperationFailed as error:
            if not remount:
                await self._unprepare(error, paths.target, paths.data)
            raise
        labels = await on_disk("volume directory", _supports_labels, paths.target, driver)
        gives = csi_objects.gives_to_group(
            rules.group_policy,
            fs_type=fs_type,
            inline=spec.inline,
            access_modes=spec.access_modes,
        )
        return claims.Published(
            paths.target,
            selinux_relabel=labels and not selinux,
            give_to_group=gives
            and use.fs_group is not None
            and not applies_group
            and not spec.read_only,
        )

    async def unpublish(self, left: claims.PublishedOnDisk) -> None:
        """NodeUnpublishVolume, and removal of its directory. Raises OperationFailed."""
        data = str(Path(left.path).with_name(csi_objects.DATA_FILE))
        if left.driver and left.handle:
            client = self._host.client(left.driver)
            await client.unpublish(left.handle, left.path, client.until())
            why = f"driver {left.driver} reports that it is unpublished"
        else:
            why = await self._unmount(left)
        await self._remove(left.path, data, why)

    async def unstage(self, left: claims.StagedOnDisk) -> None:
        """NodeUnstageVolume, and removal of its directory. Raises OperationFailed."""
        data = str(Path(left.path).with_name(csi_objects.DATA_FILE))
        plugin = f"plugins/{csi_objects.PLUGIN}/"
        suffix = plugin + left.path.partition(f"/{plugin}")[2]
        others = await on_disk("staging directory", disk.other_references, left.path, suffix)
        if others:
            named = " ".join(others[:8])
            text = f"{left.path} is still mounted by other references [{named}]"
            raise claims.OperationFailed(claims.FailureOutcome.UNCERTAIN, text)
        if left.driver and left.handle:
            client = self._host.client(left.driver)
            until = client.until()
            if await client.stages(until):
                await client.unstage(left.handle, left.path, until)
            why = f"driver {left.driver} reports that it is unstaged"
        else:
            why = await self._unmount(left)
        await self._remove(left.path, data, why)

    def _prepare(
        self, directory: str | None, data_path: str, data: VolumeData, target: str = ""
    ) -> bool:
        """Make the directories and the file that a teardown needs, before any call.

        Returns whether the file was written.
        """
        target = directory or target
        if _read_data(data_path) is None and not disk.is_mounted(target):
            self._host.fresh.add(target)
        disk.make_directory(directory or str(Path(data_path).parent))
        return files.write(data_path, data)

    async def _unprepare(self, error: claims.OperationFailed, target: str, data: str) -> None:
        """Remove the prepared directory and file after a failure that leaves nothing behind."""
        if error.outcome is not claims.FailureOutcome.FINAL or target not in self._host.fresh:
            return
        with contextlib.suppress(claims.OperationFailed):  # the first error matters more
            await on_disk("volume directory", files.remove_volume, target, data)
            self._host.fresh.discard(target)

    async def _unmount(self, left: claims.PublishedOnDisk | claims.StagedOnDisk) -> str:
        """Unmount a volume whose driver is unknown; returns what was done, as text."""
        path, why = left.path, left.damaged or "no driver is known"
        extra = {"path": path, "why": why}
        log.warning("CSI volume is unmounted without its driver", extra=extra)
        try:
            async with asyncio.timeout(UNMOUNT_S):
                await self._threads.run(disk.force_unmount, path)
        except TimeoutError:
            text = f"{path} could not be unmounted within {UNMOUNT_S:g}s"
            raise claims.OperationFailed(claims.FailureOutcome.UNCERTAIN, text) from None
        except OSError as error:
            text = f"{path} could not be unmounted: {error.strerror}"
            raise claims.OperationFailed(claims.FailureOutcome.UNCERTAIN, text) from None
        return "it was unmounted"

    async def _remove(self, target: str, data: str, why: str) -> None:
        try:
            await on_disk("volume directory", files.remove_volume, target, data)
        except claims.OperationFailed as error:
            text = f"{why}, but its directory cannot be removed: {error.message}"
            raise claims.OperationFailed(claims.FailureOutcome.UNCERTAIN, text) from None
        self._host.fresh.discard(target)


def _read_data(path: str) -> VolumeData | None:
    """vol_data.json, if it exists and is readable."""
    try:
        return files.read(path)
    except files.DataUnreadable:
        return None


def _supports_labels(target: str, driver: str) -> bool:
    """Whether a published target supports SELinux labels. Raises OSError: it does not exist."""
    whole = Path(target)
    with os.scandir(whole.parent) as entries:  # reads the directory, not the mount in it
        if not any(entry.name == whole.name for entry in entries):
            text = f"driver {driver} reports that it is published, but there is nothing"
            raise OSError(None, text, target)
    return disk.has_labels(target)


class BlockVolumes:
    """Operations on block volumes: published to the node, then bound, held and linked for each pod.

    Source: docs/reference/behaviour-storage.md, si.
    """

    def __init__(self, host: CsiHost) -> None:
        self._host = host

    async def stage(self, spec: claims.VolumeSpec, attachment: claims.AttachmentMetadata) -> None:
        """NodeStageVolume, if the driver has it. Raises OperationFailed."""
        client = self._host.client(spec.driver)
        until = client.until()
        if not await client.stages(until):
            return
        paths = self._host.paths.block(spec.spec_name)
        volume = await self._volume(spec, attachment, "nodeStageSecretRef", {})
        written = await on_disk("staging directory", self._prepare, spec, paths, paths.staging)
        try:
            call = client.stage(volume, paths.staging, until)
            await flushed_meanwhile(paths.data, call, written=written)
        except claims.OperationFailed as error:
            if error.outcome is claims.FailureOutcome.FINAL and paths.staging in self._host.fresh:
                with contextlib.suppress(claims.OperationFailed):
                    await on_disk("staging directory", _remove_all, paths)
            raise

    async def publish(
        self, spec: claims.VolumeSpec, attachment: claims.AttachmentMetadata, use: claims.PodUse
    ) -> claims.Published:
        """NodePublishVolume, and the device for the pod. Raises OperationFailed."""
        host = self._host
        client, rules = host.client(spec.driver), host.object(spec.driver)
        until = client.until()
        paths = host.paths.block(spec.spec_name)
        link = host.paths.block_link(use.uid, spec.spec_name)
        bound, target = paths.map(use.uid), paths.publish(use.uid)
        extra = pod_info(use, inline=False) if rules.pod_info else {}
        volume = await self._volume(spec, attachment, "nodePublishSecretRef", extra)
        written = await on_disk("volume directory", self._prepare, spec, paths, paths.publish_dir)
        announced = await on_disk("device of the pod", disk.announce, link, target)
        call = client.publish(volume, paths.staging, target, read_only=spec.read_only, until=until)
        try:
            await flushed_meanwhile(paths.data, call, written=written)
        except claims.OperationFailed as error:
            if error.outcome is claims.FailureOutcome.FINAL and announced:
                with contextlib.suppress(claims.OperationFailed):  # the first error matters more
                    await on_disk("device of the pod", disk.withdraw, link)
            raise
        device = await on_disk(f"device of driver {spec.driver}", disk.device_of, target)
        await on_disk("device of the pod", disk.map_device, device, bound, link)
        return claims.Published(link, map_directory=paths.map_dir)

    async def unpublish(self, left: claims.PublishedOnDisk) -> None:
        """Remove a pod's device, then NodeUnpublishVolume. Raises OperationFailed.

        The pod's link is removed last (the kubelet removes it first): a call that publishes may
        still take effect. After a restart, only the link shows that there is something to tear
        down.
        """
        paths = self._host.paths.block(left.spec_name)
        bound, target = paths.map(left.pod_uid), paths.publish(left.pod_uid)
        await on_disk("device of the pod", disk.release_device, bound)
        await self._unpublish(left, target, link=left.path)

    async def _unpublish(
        self, left: claims.PublishedOnDisk | claims.StagedOnDisk, target: str, *, link: str = ""
    ) -> None:
        """Unpublish a pod's target, then remove its link. Raises OperationFailed."""
        if left.driver and left.handle:
            client = self._host.client(left.driver)
            await client.unpublish(left.handle, target, client.until())
            why = f"driver {left.driver} reports that it is unpublished"
        else:
            await on_disk("device of the pod", disk.force_unmount, target)
            why = left.damaged or "no driver is known"
        try:
            await on_disk("device of the pod", _remove_published, target)
            if link:
                await on_disk("device of the pod", disk.withdraw, link)
        except claims.OperationFailed as error:
            raise claims.OperationFailed(
                claims.FailureOutcome.UNCERTAIN, f"{why}, but {error.message}"
            ) from None

    async def unstage(self, left: claims.StagedOnDisk) -> None:
        """NodeUnstageVolume, and removal of all its files. Raises OperationFailed.

        A device that is still published belongs to no pod. Without vol_data.json, a pod's device
        is removed without its driver, which may carry out a call of an earlier agent afterwards.
        """
        paths = self._host.paths.block(left.spec_name)
        bound = await on_disk("device", disk.bound_devices, paths.map_dir)
        if bound:
            text = f"{left.spec_name} is still referenced from other Pods: {' '.join(bound[:8])}"
            raise claims.OperationFailed(claims.FailureOutcome.UNCERTAIN, text)
        for target in await on_disk("devices of pods", _targets, paths.publish_dir):
            log.warning("CSI volume was published to no pod", extra={"path": target})
            await self._unpublish(left, target)
        if left.driver and left.handle:
            client = self._host.client(left.driver)
            until = client.until()
            staged = await on_disk("staging directory", Path(paths.staging).exists)
            if staged and await client.stages(until):
                await client.unstage(left.handle, paths.staging, until)
        else:
            # its driver is unknown: all that can be done is to unmount it
            why = left.damaged or "no driver is known"
            log.warning(
                "CSI volume is unmounted without its driver",
                extra={"path": paths.staging, "why": why},
            )
            await on_disk("staging directory", disk.force_unmount, paths.staging)
        await on_disk("staging directory", _remove_all, paths)
        self._host.fresh.discard(paths.staging)

    async def _volume(
        self,
        spec: claims.VolumeSpec,
        attachment: claims.AttachmentMetadata,
        secret: str,
        extra: Mapping[str, str],
    ) -> CsiVolume:
        from kubeletpy.volumes.csi.client import CsiVolume, VolumeAccess

        return CsiVolume(
            handle=spec.handle,
            access=VolumeAccess(mode_of(spec), block=True),
            publish_context=attachment or {},
            context={**texts(spec.source.get("volumeAttributes")), **extra},
            secrets=await self._host.credentials.secret(spec.source.get(secret)),
            migrated=spec.migrated,
        )

    def _prepare(
        self, spec: claims.VolumeSpec, paths: csi_objects.BlockPaths, directory: str
    ) -> bool:
        if not Path(paths.data).exists():
            self._host.fresh.add(paths.staging)
        disk.make_directory(directory)
        disk.make_directory(str(Path(paths.data).parent))
        node = self._host.node_name
        data = VolumeData(
            spec.driver,
            spec.handle,
            spec_name=spec.spec_name,
            node=node,
            attachment=attachment_name(spec.handle, spec.driver, node),
        )
        return files.write(paths.data, data)


def _targets(publish_dir: str) -> list[str]:
    """Where a volume is, or may be, published to pods."""
    try:
        return sorted(str(each) for each in Path(publish_dir).iterdir())
    except FileNotFoundError:
        return []


def _remove_published(target: str) -> None:
    if disk.is_mounted(target):
        raise disk.StillMounted(None, "it is still mounted", target)
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        Path(target).unlink()
    with contextlib.suppress(OSError):  # other pods have links in it
        Path(target).parent.rmdir()


def _remove_all(paths: csi_objects.BlockPaths) -> None:
    """Remove what the driver may have left in its staging directory, without entering mounts."""
    with contextlib.suppress(FileNotFoundError):
        remove_tree(paths.staging)
    disk.remove_directory(paths.publish_dir)
    disk.remove_directory(paths.map_dir)
    files.remove(paths.data)
    disk.remove_directory(str(Path(paths.data).parent))
    disk.remove_directory(paths.top)
