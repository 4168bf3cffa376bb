"""A simulated kind of volume: slow, failing, hanging, killed; it records what must never happen."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping

from kubeletpy.volumes.claims.model import (
    FailureOutcome,
    Found,
    OperationFailed,
    PodUse,
    Published,
    PublishedOnDisk,
    StagedOnDisk,
    VolumeSource,
    VolumeSpec,
    VolumeStats,
    VolumeTraits,
    WaitCause,
    Waits,
)
from kubeletpy.volumes.claims.plugin import VolumePlugin


class SimulatedDisk:
    """Volumes that are staged and published; outlives agents."""

    def __init__(self) -> None:
        self.staged: set[str] = set()
        self.published: set[tuple[str, str]] = set()
        self.running: set[tuple[str, str]] = set()
        """(volume, pod uid) that containers use now."""
        self.violations: list[str] = []
        self.calls: list[str] = []


class SimulatedPlugin(VolumePlugin):
    """A kind of volume on a simulated disk."""

    name = "kubernetes.io/csi"
    kinds = frozenset({"csi"})

    def __init__(self, disk: SimulatedDisk, rng: random.Random) -> None:
        self.disk = disk
        self.rng = rng
        self.faults = 0.0
        """Probability that a call fails."""
        self.hanging: set[str] = set()
        """Unique names whose calls never answer."""
        self.registered = True
        self.on_call: Callable[[], None] = lambda: None
        self.at_work: set[tuple[str, str]] = set()
        self.dead = False
        """Its agent was killed: its calls have no effect any more."""
        self.tell: Callable[[str], None] = lambda driver: None

    def traits(self, source: VolumeSource) -> VolumeTraits | Waits:
        return VolumeTraits(source.spec_name, attachable=False, device_mountable=True)

    def ready(self, spec: VolumeSpec) -> Waits | None:
        if self.registered:
            return None
        return Waits(WaitCause.DRIVER_MISSING, 'csidriver "d"', "driver d is not registered")

    def metric_name(self, spec: VolumeSpec | PublishedOnDisk | StagedOnDisk) -> str:
        return f"{self.name}:d"

    def on_change(self, listener: Callable[[str], None]) -> None:
        self.tell = listener

    def published(self, spec: VolumeSpec, pod_uid: str) -> PublishedOnDisk:
        return self._left(spec.unique_name, pod_uid)

    def staged(self, spec: VolumeSpec) -> StagedOnDisk:
        return StagedOnDisk(self.name, spec.unique_name, f"/{spec.unique_name}", driver="d")

    def _left(self, name: str, uid: str) -> PublishedOnDisk:
        return PublishedOnDisk(self.name, name, uid, name, f"/{uid}/{name}", driver="d")

    async def _call(self, what: str, name: str, done: Callable[[], None], uid: str = "") -> None:
        for volume, of in self.at_work:
            if volume == name and (of == uid or not of or not uid):
                self.disk.violations.append(f"{what} of {name} while another call is under way")
        self.at_work.add((name, uid))
        self.disk.calls.append(f"{what} {name}")
        try:
            self.on_call()
            await asyncio.sleep(self.rng.choice((0.0, 0.01, 1.0)))
            if self.dead or name in self.hanging:
                await asyncio.Event().wait()
            if self.rng.random() >= self.faults:
                done()
                return
            outcome = self.rng.choice(list(FailureOutcome))
            if outcome is FailureOutcome.UNCERTAIN and self.rng.random() < 0.5:
                done()
            raise OperationFailed(outcome, f"{what} failed ({outcome})", call=f"{what} of driver d")
        finally:
            self.at_work.discard((name, uid))

    async def stage(
        self, spec: VolumeSpec, attachment: Mapping[str, str] | None, use: PodUse
    ) -> None:
        name = spec.unique_name
        await self._call("NodeStageVolume", name, lambda: self.disk.staged.add(name))

    async def publish(
        self, spec: VolumeSpec, attachment: Mapping[str, str] | None, use: PodUse, *, remount: bool
    ) -> Published:
        name = spec.unique_name
        if name not in self.disk.staged:
            self.disk.violations.append(f"{name} published and not staged")
        await self._call(
            "NodePublishVolume", name, lambda: self.disk.published.add((name, use.uid))
        )
        return Published(f"/{use.uid}/{name}")

    async def unpublish(self, left: PublishedOnDisk) -> None:
        key = (left.unique_name, left.pod_uid)
        if key in self.disk.running:
            self.disk.violations.append(f"{key} unpublished under a running container")
        await self._call(
            "NodeUnpublishVolume",
            left.unique_name,
            lambda: self.disk.published.discard(key),
            left.pod_uid,
        )

    async def unstage(self, left: StagedOnDisk) -> None:
        name = left.unique_name
        if any(volume == name for volume, _ in self.disk.published):
            self.disk.violations.append(f"{name} unstaged while published")
        await self._call("NodeUnstageVolume", name, lambda: self.disk.staged.discard(name))

    async def expand(self, spec: VolumeSpec, size: int, use: PodUse) -> int:
        return size

    async def stats(self, left: PublishedOnDisk) -> VolumeStats | None:
        return None

    def find_on_disk(self) -> Found:
        return Found(
            tuple(self._left(name, uid) for name, uid in sorted(self.disk.published)),
            tuple(
                StagedOnDisk(self.name, name, f"/{name}", driver="d")
                for name in sorted(self.disk.staged)
            ),
        )
