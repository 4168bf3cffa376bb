"""The CSI volume plugin, and the components of a node that it needs.

Neither gRPC nor the CSI messages are loaded before there is a driver. Source:
docs/reference/behaviour-storage.md, sc1, sf1, sf2, sg, sh, si, sj, sk, sl.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.base.api import types as api
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import replace
from kubeletpy.base.tasks import run_together
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.metrics.volumes import CsiMetrics
from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.claims.resolve import attachment_name
from kubeletpy.volumes.csi import host as csi_host
from kubeletpy.volumes.csi.files import VolumeData, find_csi_volumes
from kubeletpy.volumes.csi.host import flushed_meanwhile, on_disk, pod_info, texts
from kubeletpy.volumes.csi.layout import BlockLayout, FilesystemLayout, Layout, StagedBlockLayout
from kubeletpy.volumes.csi.objects import (
    EPHEMERAL,
    PERSISTENT,
    PLUGIN,
    CsiPaths,
    gives_to_group,
    inline_handle,
    inline_unique_name,
    lifecycle_problem,
    unique_name,
)
from kubeletpy.volumes.csi.registration import CsiDriverHandler, CsiNodeWriter
from kubeletpy.volumes.files import disk
from kubeletpy.volumes.files.paths import UnsafePath
from kubeletpy.volumes.projected.tokens import PodTokens

if TYPE_CHECKING:
    from kubeletpy.volumes.csi.client import VolumeAccess

log = logging.getLogger(__name__)

UNMOUNT_S = 60.0


class CsiPlugin(VolumePlugin):
    """The volumes of all CSI drivers."""

    name = PLUGIN
    kinds = frozenset({"csi"})

    def __init__(self, host: csi_host.CsiHost, threads: PatientThreads) -> None:
        """``threads``: for work that may never return."""
        self._host = host
        self._threads = threads

    def traits(self, source: claims.VolumeSource) -> claims.VolumeTraits | claims.Waits:
        """Names and needs of a volume."""
        driver, handle = source.source.get("driver"), source.source.get("volumeHandle")
        if not isinstance(driver, str) or not driver:
            return claims.Waits(
                claims.WaitCause.INVALID, source.spec_name, "its csi source names no driver"
            )
        try:
            self._host.paths.staging(driver, "")
            self._host.paths.filesystem(source.pod_uid, source.spec_name)
        except UnsafePath as error:  # the API checks names; other sources need not
            return claims.Waits(claims.WaitCause.INVALID, source.spec_name, f"csi: {error}")
        if source.inline:
            name = inline_unique_name(source.pod_uid, source.spec_name)
            return claims.VolumeTraits(name, attachable=False, device_mountable=False)
        if not isinstance(handle, str) or not handle:
            return claims.Waits(
                claims.WaitCause.INVALID, source.spec_name, "its csi source names no volumeHandle"
            )
        rules = self._host.objects.get(driver)
        if rules is None:
            return self._unread(driver)
        return claims.VolumeTraits(unique_name(driver, handle), rules.attach_required, True)

    def ready(self, spec: claims.VolumeSpec) -> claims.Waits | None:
        """Whether its driver is registered."""
        driver = spec.driver
        if self._host.drivers.get(driver) is None:
            return claims.Waits(
                claims.WaitCause.DRIVER_MISSING,
                f'csidriver "{driver}"',
                csi_host.not_registered(driver),
            )
        return self._unread(driver) if self._host.objects.get(driver) is None else None

    def metric_name(
        self, spec: claims.VolumeSpec | claims.PublishedOnDisk | claims.StagedOnDisk
    ) -> str:
        """Its name in metrics."""
        return f"{PLUGIN}:{spec.driver}"

    def supports_selinux_mount(self, spec: claims.VolumeSpec) -> bool:
        """Whether the driver mounts with an SELinux context."""
        rules = self._host.objects.get(spec.driver)
        return rules is not None and rules.selinux_mount

    def republishes(self, spec: claims.VolumeSpec) -> bool:
        """Whether the driver needs its volumes republished periodically."""
        rules = self._host.objects.get(spec.driver)
        return rules is not None and rules.republish

    def published(self, spec: claims.VolumeSpec, pod_uid: str) -> claims.PublishedOnDisk:
        """Where ``publish`` mounts it; block: the pod's link."""
        block, paths = spec.mode is claims.Mode.BLOCK, self._host.paths
        return claims.PublishedOnDisk(
            plugin=PLUGIN,
            unique_name=spec.unique_name,
            pod_uid=pod_uid,
            spec_name=spec.spec_name,
            path=paths.block_link(pod_uid, spec.spec_name)
            if block
            else paths.filesystem(pod_uid, spec.spec_name).target,
            mode=spec.mode,
            driver=spec.driver,
            handle=inline_handle(pod_uid, spec.pod_volume) if spec.inline else spec.handle,
            lifecycle=EPHEMERAL if spec.inline else PERSISTENT,
            selinux_context=spec.selinux_context or "",
        )

    def staged(self, spec: claims.VolumeSpec) -> claims.StagedOnDisk:
        """Where ``stage`` mounts it."""
        return claims.StagedOnDisk(
            plugin=PLUGIN,
            unique_name=spec.unique_name,
            path=self._staging(spec),
            mode=spec.mode,
            driver=spec.driver,
            handle=spec.handle,
            spec_name=spec.spec_name,
            selinux_context=spec.selinux_context or "",
        )

    async def stage(
        self, spec: claims.VolumeSpec, attachment: claims.AttachmentMetadata, use: claims.PodUse
    ) -> None:
        """NodeStageVolume, if the driver has it. Raises OperationFailed."""
        client = self._host.client(spec.driver)
        until = client.until()
        if not await client.stages(until):
            return
        from kubeletpy.volumes.csi.client import CsiVolume

        left, selinux = self.staged(spec), use.selinux_context
        group = use.fs_group if await client.applies_group(until) else None
        volume = CsiVolume(
            handle=spec.handle,
            access=_access(spec, selinux, group),
            publish_context=attachment or {},
            context=texts(spec.source.get("volumeAttributes")),
            secrets=await self._host.credentials.secret(spec.source.get("nodeStageSecretRef")),
            migrated=spec.migrated,
        )
        data = VolumeData(spec.driver, spec.handle, selinux=selinux or "")
        if spec.mode is claims.Mode.BLOCK:
            data = self._data(spec, spec.handle)
        call = partial(client.stage, volume, left.path, until)
        await self._call(self._staged(left), data, call)

    async def publish(
        self,
        spec: claims.VolumeSpec,
        attachment: claims.AttachmentMetadata,
        use: claims.PodUse,
        *,
        remount: bool,
    ) -> claims.Published:
        """NodePublishVolume, and the device for a pod. Raises OperationFailed."""
        host, driver, source = self._host, spec.driver, spec.source
        client, rules, until = host.client(driver), host.object(driver), host.client(driver).until()
        mounts, left = spec.mode is claims.Mode.FILESYSTEM, self.published(spec, use.uid)
        if mounts:
            problem = lifecycle_problem(driver, rules, inline=spec.inline)
            if not problem and rules.group_policy is None:
                problem = f"CSIDriver {driver} has no fsGroupPolicy that is known"
            if problem:
                raise claims.not_tried(problem)
        from kubeletpy.volumes.csi.client import CsiVolume

        staging = ""
        if not mounts or (not spec.inline and await client.stages(until)):
            staging = self._staging(spec)
        secrets, tokens = await run_together(
            host.credentials.secret(
                source.get("nodePublishSecretRef"), use.namespace if spec.inline else ""
            ),
            host.credentials.tokens(use.pod, rules.tokens if mounts else ()),
        )
        context = texts(source.get("volumeAttributes"))
        if rules.pod_info:
            context |= pod_info(use, inline=spec.inline)
        if rules.tokens_in_secrets:
            secrets |= tokens
        else:
            context |= tokens
        applies_group = await client.applies_group(until)
        selinux = use.selinux_context if rules.selinux_mount else None
        volume = CsiVolume(
            handle=left.handle,
            access=_access(spec, selinux, use.fs_group if applies_group else None),
            publish_context=attachment or {},
            context=context,
            secrets=secrets,
            migrated=spec.migrated,
        )
        data = self._data(spec, left.handle)
        if mounts:
            data = replace(data, lifecycle=left.lifecycle, selinux=selinux or "")
        layout, read_only = self._published(left), spec.read_only
        call = partial(
            client.publish, volume, staging, layout.target, read_only=read_only, until=until
        )
        await self._call(layout, data, call, keep=remount)
        published = await layout.published(driver)
        gives = mounts and gives_to_group(
            rules.group_policy,
            fs_type=str(source.get("fsType") or ""),
            inline=spec.inline,
            access_modes=spec.access_modes,
        )
        return replace(
            published,
            selinux_relabel=published.selinux_relabel and not selinux,
            give_to_group=gives
            and use.fs_group is not None
            and not applies_group
            and not read_only,
        )

    async def unpublish(self, left: claims.PublishedOnDisk) -> None:
        """NodeUnpublishVolume, and removal of the pod's files. Raises OperationFailed."""
        layout = self._published(left)
        await on_disk(layout.what, layout.release)
        await self._unpublish(left, layout)

    async def unstage(self, left: claims.StagedOnDisk) -> None:
        """NodeUnstageVolume, and removal of the node's files. Raises OperationFailed.

        A device that is still published belongs to no pod. Without vol_data.json, a pod's device
        is removed without its driver, which may carry out a call of an earlier agent afterwards.
        """
        layout = self._staged(left)
        if problem := await on_disk(layout.what, layout.references):
            raise claims.maybe_done(problem)
        for each in await on_disk(layout.what, layout.leftovers):
            log.warning("CSI volume was published to no pod", extra={"path": each.target})
            await self._unpublish(left, each)
        if left.driver and left.handle:
            client = self._host.client(left.driver)
            until = client.until()
            if await on_disk(layout.what, layout.may_be_staged) and await client.stages(until):
                await client.unstage(left.handle, layout.target, until)
            why = f"driver {left.driver} reports that it is unstaged"
        else:
            why = await self._unmount(layout.target, left.damaged)
        await self._remove(layout, why)

    async def expand(self, spec: claims.VolumeSpec, size: int, use: claims.PodUse) -> int:
        """Grow a volume on this node. Raises ExpansionFailed."""
        left = self.published(spec, use.uid)
        try:
            client = self._host.client(spec.driver)
            secrets = await self._host.credentials.secret(spec.source.get("nodeExpandSecretRef"))
            path = left.path
            if spec.mode is claims.Mode.BLOCK:
                path = await on_disk("device of the pod", os.path.realpath, path)
            staging = self._staging(spec) if await client.stages(client.until()) else ""
        except claims.OperationFailed as error:
            raise claims.ExpansionFailed(
                claims.ExpansionProblem.OTHER, error.message, call=error.call
            ) from None
        from kubeletpy.volumes.csi.client import CsiVolume

        access = _access(spec, use.selinux_context)
        volume = CsiVolume(left.handle, access, secrets=secrets, migrated=spec.migrated)
        return await client.expand(volume, path, staging, size)

    async def stats(self, left: claims.PublishedOnDisk) -> claims.VolumeStats | None:
        """The volume's usage. Raises OperationFailed."""
        if not (left.driver and left.handle):
            raise claims.not_tried(left.damaged or "no driver is known")
        client = self._host.client(left.driver)
        return await client.stats(left.handle, self._published(left).measured)

    async def health(self, left: claims.PublishedOnDisk) -> list[api.VolumeHealthCondition] | None:
        """The volume's health; None: the driver does not report it. Raises OperationFailed."""
        if not (left.driver and left.handle) or left.lifecycle != "Persistent":
            return None
        client, path = self._host.client(left.driver), self._published(left).target
        return await client.health(left.handle, path, self._staging(left))

    def find_on_disk(self) -> claims.Found:
        """Its volumes on disk. Blocks."""
        return find_csi_volumes(self._host.paths)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have ``listener(driver)`` called when a driver came or went, or its object changed."""
        self._host.drivers.on_change(listener)
        self._host.objects.on_change(listener)

    # -- layouts -----------------------------------------------------------------------------

    def _staging(self, volume: claims.VolumeSpec | claims.PublishedOnDisk) -> str:
        if volume.mode is claims.Mode.BLOCK:
            return self._host.paths.block(volume.spec_name).staging
        return self._host.paths.staging(volume.driver, volume.handle).target

    def _staged(self, left: claims.StagedOnDisk) -> Layout:
        if left.mode is claims.Mode.FILESYSTEM:
            return FilesystemLayout(left.path, "staging directory", staged=True)
        block = self._host.paths.block(left.spec_name)
        return StagedBlockLayout(block.staging, "staging directory", block, left.spec_name)

    def _published(self, left: claims.PublishedOnDisk) -> Layout:
        if left.mode is claims.Mode.FILESYSTEM:
            return FilesystemLayout(left.path, "volume directory")
        block = self._host.paths.block(left.spec_name)
        return BlockLayout.of(block, left.pod_uid, left.path)

    def _data(self, spec: claims.VolumeSpec, handle: str) -> VolumeData:
        driver, node = spec.driver, self._host.node_name
        attachment = attachment_name(handle, driver, node)
        return VolumeData(driver, handle, spec.spec_name, node, attachment)

    # -- calls, and what surrounds them ------------------------------------------------------

    async def _call(
        self,
        layout: Layout,
        data: VolumeData,
        call: Callable[[], Awaitable[None]],
        *,
        keep: bool = False,
    ) -> None:
        """Prepare, call the driver, and take back what a call without effect leaves.

        ``keep``: a pod has the volume already. Raises OperationFailed.
        """
        fresh = self._host.fresh
        written, mine = await on_disk(layout.what, layout.prepare, data, fresh)
        try:
            await flushed_meanwhile(layout.data, call(), written=written)
        except claims.OperationFailed as error:
            if error.outcome is claims.FailureOutcome.FINAL and mine and not keep:
                with contextlib.suppress(claims.OperationFailed):  # the first error matters more
                    await on_disk(layout.what, layout.take_back)
                    fresh.discard(layout.target)
            raise

    async def _unpublish(
        self, left: claims.PublishedOnDisk | claims.StagedOnDisk, layout: Layout
    ) -> None:
        if left.driver and left.handle:
            client = self._host.client(left.driver)
            await client.unpublish(left.handle, layout.target, client.until())
            why = f"driver {left.driver} reports that it is unpublished"
        else:
            why = await self._unmount(layout.target, left.damaged)
        await self._remove(layout, why)

    async def _unmount(self, path: str, damaged: str) -> str:
        """Unmount a volume whose driver is unknown; returns what was done, as text."""
        extra = {"path": path, "why": damaged or "no driver is known"}
        log.warning("CSI volume is unmounted without its driver", extra=extra)
        try:
            async with asyncio.timeout(UNMOUNT_S):
                await self._threads.run(disk.force_unmount, path)
        except TimeoutError:
            text = f"{path} could not be unmounted within {UNMOUNT_S:g}s"
            raise claims.maybe_done(text) from None
        except OSError as error:
            text = f"{path} could not be unmounted: {error.strerror}"
            raise claims.maybe_done(text) from None
        return "it was unmounted"

    async def _remove(self, layout: Layout, why: str) -> None:
        try:
            await on_disk(layout.what, layout.remove)
        except claims.OperationFailed as error:
            text = f"{why}, but its directory cannot be removed: {error.message}"
            raise claims.maybe_done(text) from None
        self._host.fresh.discard(layout.target)

    def _unread(self, driver: str) -> claims.Waits:
        return claims.Waits(
            claims.WaitCause.UNREAD, f'csidriver "{driver}"', self._host.objects.problem
        )


def _access(spec: claims.VolumeSpec, selinux: str | None, group: int | None = None) -> VolumeAccess:
    """How a driver makes a volume accessible."""
    from kubeletpy.volumes.csi.client import VolumeAccess

    mode = spec.access_modes[0] if spec.access_modes and not spec.inline else "ReadWriteOnce"
    if spec.mode is claims.Mode.BLOCK:
        return VolumeAccess(mode, block=True)
    flags = () if spec.inline else spec.mount_options
    fs_type = str(spec.source.get("fsType") or "")
    return VolumeAccess(
        mode, fs_type=fs_type, flags=(*flags, *claims.mount_option(selinux)), group=group
    )


class Csi:
    """The CSI components of a node. Making them starts nothing.

    Attributes:
        plugin: the volume plugin.
        handler: for the plugin manager, of type CSIPlugin.
        objects: to be run: follows CSIDriver objects.
        writer: to be run: reports to the cluster; states what keeps the node from being ready.
    """

    def __init__(
        self,
        root: Path,
        node_name: str,
        kube_api: KubeApi | None,
        tokens: PodTokens,
        metrics: CsiMetrics,
        *,
        rng: random.Random,
        calls: csi_host.OpenCalls | None = None,
    ) -> None:
        """Make it inside a running event loop.

        ``kube_api`` None: standalone. ``calls`` None: drivers are called over their sockets.
        """
        self.drivers = csi_host.CsiDrivers(csi_host.connect_by(metrics, calls))
        self.objects = csi_host.DriverObjects(kube_api, rng=rng)
        self.writer = CsiNodeWriter(node_name, kube_api, rng=rng)
        self.handler = CsiDriverHandler(self.drivers, self.objects, self.writer)
        host = csi_host.CsiHost(
            node_name,
            CsiPaths(str(root)),
            self.drivers,
            self.objects,
            csi_host.Credentials(kube_api, tokens),
        )
        self.plugin = CsiPlugin(host, PatientThreads())

    async def close(self) -> None:
        """Close the connections to drivers; they stay registered for the next agent."""
        await self.handler.close()
        await self.drivers.close()
