"""The CSI volume plugin, and the components of a node that it needs.

Neither gRPC nor the CSI messages are loaded before there is a driver. Source:
docs/reference/behaviour-storage.md, sc1, sf, sg, sh, si, sk, sl.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from kubeletpy.base.api import types as api
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.metrics.volumes import CsiMetrics
from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.csi import host as csi_host
from kubeletpy.volumes.csi.csi_volumes import BlockVolumes, FilesystemVolumes, handle_of, mode_of
from kubeletpy.volumes.csi.files import find_csi_volumes
from kubeletpy.volumes.csi.objects import (
    EPHEMERAL,
    PERSISTENT,
    PLUGIN,
    CsiPaths,
    inline_unique_name,
    unique_name,
)
from kubeletpy.volumes.csi.registration import CsiDriverHandler, CsiNodeWriter
from kubeletpy.volumes.files.paths import UnsafePath
from kubeletpy.volumes.projected.tokens import PodTokens


class CsiPlugin(VolumePlugin):
    """The volumes of all CSI drivers."""

    name = PLUGIN
    kinds = frozenset({"csi"})

    def __init__(self, host: csi_host.CsiHost, threads: PatientThreads) -> None:
        self._host = host
        self._filesystem = FilesystemVolumes(host, threads)
        self._block = BlockVolumes(host)

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
        """Where ``publish`` mounts it."""
        block = spec.mode is claims.Mode.BLOCK
        paths = self._host.paths
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
            handle=handle_of(spec, pod_uid),
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
        """Make a volume ready for the node. Raises OperationFailed."""
        if spec.mode is claims.Mode.BLOCK:
            await self._block.stage(spec, attachment)
        else:
            await self._filesystem.stage(spec, attachment, use)

    async def publish(
        self,
        spec: claims.VolumeSpec,
        attachment: claims.AttachmentMetadata,
        use: claims.PodUse,
        *,
        remount: bool,
    ) -> claims.Published:
        """Give a volume to a pod. Raises OperationFailed."""
        if spec.mode is claims.Mode.BLOCK:
            return await self._block.publish(spec, attachment, use)
        return await self._filesystem.publish(spec, attachment, use, remount=remount)

    async def unpublish(self, left: claims.PublishedOnDisk) -> None:
        """Take a volume from a pod. Raises OperationFailed."""
        await (self._block if left.mode is claims.Mode.BLOCK else self._filesystem).unpublish(left)

    async def unstage(self, left: claims.StagedOnDisk) -> None:
        """Undo ``stage``: unmount the volume for the node. Raises OperationFailed."""
        await (self._block if left.mode is claims.Mode.BLOCK else self._filesystem).unstage(left)

    async def expand(self, spec: claims.VolumeSpec, size: int, use: claims.PodUse) -> int:
        """Grow a volume on this node. Raises ExpansionFailed."""
        try:
            client = self._host.client(spec.driver)
            secrets = await self._host.credentials.secret(spec.source.get("nodeExpandSecretRef"))
            path = self.published(spec, use.uid).path
            if spec.mode is claims.Mode.BLOCK:
                path = await csi_host.on_disk("device of the pod", os.path.realpath, path)
            staging = self._staging(spec) if await client.stages(client.until()) else ""
        except claims.OperationFailed as error:
            raise claims.ExpansionFailed(
                claims.ExpansionProblem.OTHER, error.message, call=error.call
            ) from None
        from kubeletpy.volumes.csi.client import CsiVolume, VolumeAccess

        access = VolumeAccess(mode_of(spec), block=True)
        if spec.mode is claims.Mode.FILESYSTEM:
            flags = (*spec.mount_options, *claims.mount_option(use.selinux_context))
            fs_type = str(spec.source.get("fsType") or "")
            access = VolumeAccess(mode_of(spec), fs_type=fs_type, flags=flags)
        handle = handle_of(spec, use.uid)
        volume = CsiVolume(handle, access, secrets=secrets, migrated=spec.migrated)
        return await client.expand(volume, path, staging, size)

    async def stats(self, left: claims.PublishedOnDisk) -> claims.VolumeStats | None:
        """The volume's usage. Raises OperationFailed."""
        if not (left.driver and left.handle):
            raise claims.OperationFailed(
                claims.FailureOutcome.TRANSIENT, left.damaged or "no driver is known"
            )
        path = left.path
        if left.mode is claims.Mode.BLOCK:
            path = self._host.paths.block(left.spec_name).map(left.pod_uid)
        return await self._host.client(left.driver).stats(left.handle, path)

    async def health(self, left: claims.PublishedOnDisk) -> list[api.VolumeHealthCondition] | None:
        """The volume's health; None: the driver does not report it. Raises OperationFailed."""
        if not (left.driver and left.handle) or left.lifecycle != "Persistent":
            return None
        paths, path = self._host.paths, left.path
        staging = paths.staging(left.driver, left.handle).target
        if left.mode is claims.Mode.BLOCK:
            block = paths.block(left.spec_name)
            path, staging = block.publish(left.pod_uid), block.staging
        return await self._host.client(left.driver).health(left.handle, path, staging)

    def find_on_disk(self) -> claims.Found:
        """Its volumes on disk. Blocks."""
        return find_csi_volumes(self._host.paths)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have ``listener(driver)`` called when a driver came or went, or its object changed."""
        self._host.drivers.on_change(listener)
        self._host.objects.on_change(listener)

    def _staging(self, spec: claims.VolumeSpec) -> str:
        if spec.mode is claims.Mode.BLOCK:
            return self._host.paths.block(spec.spec_name).staging
        return self._host.paths.staging(spec.driver, spec.handle).target

    def _unread(self, driver: str) -> claims.Waits:
        return claims.Waits(
            claims.WaitCause.UNREAD, f'csidriver "{driver}"', self._host.objects.problem
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
        rng: random.Random | None = None,
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
