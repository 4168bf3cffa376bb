"""CSI block volumes: published to the node, then bound, held and linked for each pod.

Source: docs/reference/behaviour-storage.md, si.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.base.host.files import remove_tree
from kubeletpy.volumes.claims.attached import attachment_name
from kubeletpy.volumes.claims.model import AttachmentMetadata, VolumeSpec
from kubeletpy.volumes.claims.on_disk import (
    FailureOutcome,
    Published,
    PublishedOnDisk,
    StagedOnDisk,
)
from kubeletpy.volumes.claims.operation import OperationFailed, PodUse
from kubeletpy.volumes.csi import files
from kubeletpy.volumes.csi.files import VolumeData
from kubeletpy.volumes.csi.filesystem import mode_of
from kubeletpy.volumes.csi.host import CsiHost, flushed_meanwhile, on_disk, pod_info, texts
from kubeletpy.volumes.csi.names import BlockPaths
from kubeletpy.volumes.files import disk

if TYPE_CHECKING:
    from kubeletpy.volumes.csi.client import CsiVolume

log = logging.getLogger(__name__)


class BlockVolumes:
    """Operations on block volumes."""

    def __init__(self, host: CsiHost) -> None:
        self._host = host

    async def stage(self, spec: VolumeSpec, attachment: AttachmentMetadata) -> None:
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
        except OperationFailed as error:
            if error.outcome is FailureOutcome.FINAL and paths.staging in self._host.fresh:
                with contextlib.suppress(OperationFailed):
                    await on_disk("staging directory", _remove_all, paths)
            raise

    async def publish(
        self, spec: VolumeSpec, attachment: AttachmentMetadata, use: PodUse
    ) -> Published:
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
        except OperationFailed as error:
            if error.outcome is FailureOutcome.FINAL and announced:
                with contextlib.suppress(OperationFailed):  # the first error matters more
                    await on_disk("device of the pod", disk.withdraw, link)
            raise
        device = await on_disk(f"device of driver {spec.driver}", disk.device_of, target)
        await on_disk("device of the pod", disk.map_device, device, bound, link)
        return Published(link, map_directory=paths.map_dir)

    async def unpublish(self, left: PublishedOnDisk) -> None:
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
        self, left: PublishedOnDisk | StagedOnDisk, target: str, *, link: str = ""
    ) -> None:
        """Take a pod's target, and then its link, away. Raises OperationFailed."""
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
        except OperationFailed as error:
            raise OperationFailed(FailureOutcome.UNCERTAIN, f"{why}, but {error.message}") from None

    async def unstage(self, left: StagedOnDisk) -> None:
        """NodeUnstageVolume, and removal of all its files. Raises OperationFailed.

        A device that is still published belongs to no pod. Without vol_data.json, a pod's device
        is removed without its driver, which may carry out a call of an earlier agent afterwards.
        """
        paths = self._host.paths.block(left.spec_name)
        bound = await on_disk("device", disk.bound_devices, paths.map_dir)
        if bound:
            text = f"{left.spec_name} is still referenced from other Pods: {' '.join(bound[:8])}"
            raise OperationFailed(FailureOutcome.UNCERTAIN, text)
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
        spec: VolumeSpec,
        attachment: AttachmentMetadata,
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

    def _prepare(self, spec: VolumeSpec, paths: BlockPaths, directory: str) -> bool:
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


def _remove_all(paths: BlockPaths) -> None:
    """Remove what the driver may have left in its staging directory, without entering mounts."""
    with contextlib.suppress(FileNotFoundError):
        remove_tree(paths.staging)
    disk.remove_directory(paths.publish_dir)
    disk.remove_directory(paths.map_dir)
    files.remove(paths.data)
    disk.remove_directory(str(Path(paths.data).parent))
    disk.remove_directory(paths.top)
