"""The executor's state: desired volumes, existing volumes and operations in progress.

Other threads read it too: nothing in it is changed in place while it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.model import VolumeSpec
from kubeletpy.volumes.claims.on_disk import Published
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.operations.model import Key, Operation, PodDemand, PodMount, Volume
from kubeletpy.volumes.operations.plan import is_published


class Running(Struct):
    """An operation in progress."""

    operation: Operation
    task: asyncio.Task[None]
    begun: float
    """Event-loop time."""


class VolumeState(Struct):
    """The state of this node's volumes."""

    plugins: Mapping[str, VolumePlugin]
    """Name -> plugin."""
    demands: dict[str, PodDemand] = field(default_factory=dict)
    """Pod uid -> the volumes that it needs; ``pods`` has the same keys."""
    pods: dict[str, Pod] = field(default_factory=dict)
    actual: dict[str, Volume] = field(default_factory=dict)
    """Unique name -> volume."""
    running: dict[Key, Running] = field(default_factory=dict)

    def has(self, uid: str) -> bool:
        """Whether a pod has or may have a volume, or one is being made for it."""
        return any(uid in volume.pods for volume in list(self.actual.values())) or bool(
            self.of_pod(uid)
        )

    def of_pod(self, uid: str) -> list[Running]:
        """A pod's operations in progress."""
        under_way = list(self.running.values())
        return [running for running in under_way if running.operation.pod_uid == uid]

    def spec(self, uid: str, volume: str) -> VolumeSpec | None:
        """A volume that a pod needs, by its name in the pod."""
        demand = self.demands.get(uid)
        found = (spec for spec in demand.specs if spec.pod_volume == volume) if demand else ()
        return next(iter(found), None)

    def published(self, uid: str, spec: VolumeSpec) -> Published | None:
        """A pod's volume as it exists; None: it does not."""
        volume = self.actual.get(spec.unique_name)
        if volume is None or not is_published(volume, uid):
            return None
        return volume.pods[uid].published

    def all_published(self) -> list[tuple[str, VolumeSpec, PodMount]]:
        """All volumes that pods have for certain, each with the uid of its pod."""
        return [
            (demand.uid, spec, volume.pods[demand.uid])
            for demand in self.demands.values()
            for spec in demand.specs
            if (volume := self.actual.get(spec.unique_name)) is not None
            and is_published(volume, demand.uid)
        ]

    def paths(self, uid: str) -> set[str]:
        """Paths where a pod has or may have volumes, or is getting them."""
        there = list(self.actual.values())
        has = {volume.pods[uid].left.path for volume in there if uid in volume.pods}
        gets = {
            self.plugins[operation.plugin].published(operation.spec, uid).path
            for operation in (each.operation for each in self.of_pod(uid))
            if operation.spec is not None
        }
        return has | gets

    def forget(self, uid: str) -> None:
        """Forget a pod that needs nothing any more and has nothing."""
        self.demands.pop(uid, None)
        self.pods.pop(uid, None)
