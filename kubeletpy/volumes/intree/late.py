"""Rarely used kinds of volumes: their code is loaded with the first volume."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from kubeletpy.volumes.claims.model import VolumeSource, VolumeSpec, VolumeTraits, Waits
from kubeletpy.volumes.claims.on_disk import (
    Found,
    Published,
    PublishedOnDisk,
    StagedOnDisk,
    VolumeStats,
)
from kubeletpy.volumes.claims.operation import PodUse
from kubeletpy.volumes.claims.plugin import VolumePlugin


class LatePlugin:
    """Stands for a plugin; see :class:`kubeletpy.volumes.claims.plugin.VolumePlugin`."""

    def __init__(self, name: str, kind: str, root: Path, load: Callable[[], VolumePlugin]) -> None:
        """Args:
        name: of the plugin.
        kind: the field of its sources.
        root: the kubelet's root directory.
        load: makes the plugin.
        """
        self.name = name
        self.kinds = frozenset({kind})
        self._root = root
        self._load = load

    @cached_property
    def _plugin(self) -> VolumePlugin:
        return self._load()

    def find_on_disk(self) -> Found:
        """Its volumes on disk; nothing is loaded when there are none. Blocks."""
        places = (f"plugins/{self.name}", f"pods/*/volume*/{self.name.replace('/', '~')}")
        there = any(next(self._root.glob(place), None) is not None for place in places)
        return self._plugin.find_on_disk() if there else Found()

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Nothing changes."""

    def traits(self, source: VolumeSource) -> VolumeTraits | Waits:
        """The plugin's answer."""
        return self._plugin.traits(source)

    def ready(self, spec: VolumeSpec) -> Waits | None:
        """The plugin's answer."""
        return self._plugin.ready(spec)

    def metric_name(self, spec: VolumeSpec | PublishedOnDisk | StagedOnDisk) -> str:
        """The plugin's answer."""
        return self._plugin.metric_name(spec)

    def supports_selinux_mount(self, spec: VolumeSpec) -> bool:
        """The plugin's answer."""
        return self._plugin.supports_selinux_mount(spec)

    def republishes(self, spec: VolumeSpec) -> bool:
        """The plugin's answer."""
        return self._plugin.republishes(spec)

    def published(self, spec: VolumeSpec, pod_uid: str) -> PublishedOnDisk:
        """The plugin's answer."""
        return self._plugin.published(spec, pod_uid)

    def staged(self, spec: VolumeSpec) -> StagedOnDisk:
        """The plugin's answer."""
        return self._plugin.staged(spec)

    async def stage(
        self, spec: VolumeSpec, attachment: Mapping[str, str] | None, use: PodUse
    ) -> None:
        """The plugin does it."""
        await self._plugin.stage(spec, attachment, use)

    async def publish(
        self,
        spec: VolumeSpec,
        attachment: Mapping[str, str] | None,
        use: PodUse,
        *,
        remount: bool,
    ) -> Published:
        """The plugin does it."""
        return await self._plugin.publish(spec, attachment, use, remount=remount)

    async def unpublish(self, left: PublishedOnDisk) -> None:
        """The plugin does it."""
        await self._plugin.unpublish(left)

    async def unstage(self, left: StagedOnDisk) -> None:
        """The plugin does it."""
        await self._plugin.unstage(left)

    async def expand(self, spec: VolumeSpec, size: int, use: PodUse, *, at_mount: bool) -> int:
        """The plugin does it."""
        return await self._plugin.expand(spec, size, use, at_mount=at_mount)

    async def stats(self, left: PublishedOnDisk) -> VolumeStats | None:
        """The plugin's answer."""
        return await self._plugin.stats(left)
