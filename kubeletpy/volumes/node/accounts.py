"""Counts volumes for the metrics: desired ones, existing ones, results of operations.

The volume manager reports to it what it did; nothing is decided here. Source:
docs/reference/metrics.csv: volume_manager_total_volumes, storage_operation_duration_seconds,
volume_operation_total_seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kubeletpy.base.structs import Component, Struct, field
from kubeletpy.metrics.volumes import ACTUAL, DESIRED, MOUNT, OWN, UNMOUNT, VolumeMetrics
from kubeletpy.volumes.files.paths import plugin_name
from kubeletpy.volumes.pod_volumes.planned import PlannedVolume
from kubeletpy.volumes.pod_volumes.set_up import SetUpOutcome


class _Pod(Struct):
    requested_at: float
    """Event-loop time in seconds."""
    desired: Counter[str] = field(default_factory=Counter)
    """Plugin -> volumes; like ``there``."""
    there: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)
    """The volumes that exist."""


class VolumeAccounts(Component):
    """The volumes of the pods of a node, as numbers."""

    metrics: VolumeMetrics

    def __post_init__(self) -> None:
        self._pods: dict[str, _Pod] = {}

    def planned(self, uid: str, volumes: Iterable[PlannedVolume], now: float) -> None:
        """Count the volumes that a pod needs. ``now`` is event-loop time."""
        pod = self._pods.setdefault(uid, _Pod(now))
        desired = Counter(plugin_name(volume.kind) for volume in volumes)
        self._moved(DESIRED, pod.desired, desired)
        pod.desired = desired

    def worked(self, uid: str, outcomes: Sequence[SetUpOutcome], now: float) -> None:
        """Count results of setting up or updating volumes of a pod."""
        pod = self._pods.get(uid)
        for outcome in outcomes:
            plugin, done = plugin_name(outcome.volume.kind), not outcome.problem
            self.metrics.done(MOUNT, plugin, outcome.seconds, ok=done)
            if outcome.owning_s is not None:
                self.metrics.done(OWN, plugin, outcome.owning_s, ok=done)
            if pod is None or outcome.volume.name in pod.names:
                continue
            if outcome.existed:
                self.metrics.reconstructed.inc()
                if not done:
                    self.metrics.reconstruct_errors.inc()
            if done:
                pod.names.add(outcome.volume.name)
                pod.there[plugin] += 1
                self.metrics.moved(ACTUAL, {plugin: 1})
                self.metrics.first_set_up(plugin, now - pod.requested_at)

    def taken_down(self, uid: str, ended: Iterable[tuple[str, float]]) -> None:
        """Count a pod's removed volumes; ``ended`` holds each plugin and the seconds it took."""
        for plugin, seconds in ended:
            self.metrics.done(UNMOUNT, plugin, seconds)
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._moved(DESIRED, pod.desired, Counter())
            self._moved(ACTUAL, pod.there, Counter())

    def not_taken_down(self, plugin: str, seconds: float) -> None:
        """Count a volume that could not be torn down."""
        self.metrics.done(UNMOUNT, plugin, seconds, ok=False)

    def swept(self, volumes: int, *, failed: bool = False) -> None:
        """Count volumes of an unknown pod that were torn down; ``failed``: one was not."""
        self.metrics.force_cleaned.inc(volumes + failed)
        if failed:
            self.metrics.force_clean_errors.inc()

    def _moved(self, state: str, before: Counter[str], after: Counter[str]) -> None:
        by = {plugin: after[plugin] - before[plugin] for plugin in before | after}
        self.metrics.moved(state, {plugin: number for plugin, number in by.items() if number})
