"""The interface of a kind of claim-backed volume; CSI and the in-tree kinds implement it.

A plugin acts and reports the result; :mod:`kubeletpy.volumes.operations` decides when, and never
runs two operations on one volume at once. Every operation is idempotent: it may be repeated after a
failure or a kill at any instant. Teardown works from what is on disk, without the API. Source:
docs/reference/behaviour-storage.md, sf, sg, sh, si, sn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kubeletpy.volumes.claims.model import AttachmentMetadata, Describes, VolumeSpec, Waits
from kubeletpy.volumes.claims.on_disk import (
    Found,
    Published,
    PublishedOnDisk,
    StagedOnDisk,
    VolumeStats,
)
from kubeletpy.volumes.claims.operation import PodUse


class VolumePlugin(Describes, Protocol):
    """One kind of volume. The synchronous queries answer from memory and never block.

    The answer of ``traits`` may differ after ``on_change`` has reported a change.
    """

    def ready(self, spec: VolumeSpec) -> Waits | None:
        """Why an operation on this volume would only fail now (its driver is not registered)."""
        ...

    def metric_name(self, spec: VolumeSpec | PublishedOnDisk | StagedOnDisk) -> str:
        """Its name in metrics, for example ``kubernetes.io/csi:{driver}``."""
        ...

    def supports_selinux_mount(self, spec: VolumeSpec) -> bool:
        """Whether it can be mounted with an SELinux context (table sp3)."""
        ...

    def republishes(self, spec: VolumeSpec) -> bool:
        """Whether it needs to be republished periodically (requiresRepublish)."""
        ...

    def published(self, spec: VolumeSpec, pod_uid: str) -> PublishedOnDisk:
        """Where and how ``publish`` puts it for a pod; pure."""
        ...

    def staged(self, spec: VolumeSpec) -> StagedOnDisk:
        """Where and how ``stage`` puts it; pure."""
        ...

    async def stage(self, spec: VolumeSpec, attachment: AttachmentMetadata, use: PodUse) -> None:
        """Make a volume ready for all pods of the node (NodeStageVolume, a device mount).

        Raises OperationFailed.
        """
        ...

    async def publish(
        self, spec: VolumeSpec, attachment: AttachmentMetadata, use: PodUse, *, remount: bool
    ) -> Published:
        """Give a volume to one pod. ``remount``: the pod already has it, maybe with running
        containers, and must keep it whatever happens. Raises OperationFailed.
        """
        ...

    async def unpublish(self, left: PublishedOnDisk) -> None:
        """Take a volume from one pod. On success nothing is mounted and no file is left. Raises
        OperationFailed.
        """
        ...

    async def unstage(self, left: StagedOnDisk) -> None:
        """Undo ``stage``. Raises OperationFailed."""
        ...

    async def expand(self, spec: VolumeSpec, size: int, use: PodUse, *, at_mount: bool) -> int:
        """Grow the volume on this node to ``size`` bytes; returns its new size. Raises
        ExpansionFailed.
        """
        ...

    async def stats(self, left: PublishedOnDisk) -> VolumeStats | None:
        """The volume's usage; None: the plugin cannot measure it. Raises OperationFailed."""
        ...

    def find_on_disk(self) -> Found:
        """The plugin's volumes on disk, staged leftovers included. Blocks: call in a thread."""
        ...

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have ``listener(driver)`` called when the plugin's abilities have changed: a driver came
        or went, its CSIDriver object changed. Empty: any driver.
        """
        ...
