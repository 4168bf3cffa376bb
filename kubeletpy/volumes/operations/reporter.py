"""Reports volume operations: events of pods and PersistentVolumes, metrics.

Source: docs/reference/behaviour-storage.md, si2, sp1, sp2, sr, ss; docs/reference/metrics.csv:
storage_operation_duration_seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.volumes import ACTUAL, DESIRED, OWN, VolumeMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.model import (
    FilesystemMismatch,
    Found,
    Mode,
    OperationFailed,
    PodUse,
    Published,
    VolumeSpec,
)
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.operations.model import Operation, OperationKind, PodDemand, Presence, Volume

log = logging.getLogger(__name__)

_EVENT_STEPS = {
    OperationKind.STAGE: ("MountVolume.MountDevice", "MapVolume.SetUpDevice"),
    OperationKind.PUBLISH: ("MountVolume.SetUp", "MapVolume.MapPodDevice"),
    OperationKind.REPUBLISH: ("MountVolume.SetUp", "MapVolume.MapPodDevice"),
    OperationKind.EXPAND: ("NodeExpandVolume", "NodeExpandVolume"),
    OperationKind.UNPUBLISH: ("UnmountVolume.TearDown", "UnmapVolume.UnmapPodDevice"),
    OperationKind.UNSTAGE: ("UnmountDevice", "UnmapDevice"),
}
"""The step that failed, if the plugin names none: of file systems, of block devices."""

_HINT = (
    "consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/"
    "security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"
)


class Reporter:
    """Reports the results of operations, and counts the volumes that pods need and have."""

    def __init__(self, recorder: EventRecorder, metrics: VolumeMetrics) -> None:
        self._changed: Callable[[], None] = lambda: None
        self._there: frozenset[tuple[str, str]] = frozenset()
        self._recorder = recorder
        self._metrics = metrics
        self._requested_at: dict[tuple[str, str], float] = {}
        self._counts: dict[str, Counter[str]] = {DESIRED: Counter(), ACTUAL: Counter()}

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called when pods gain or lose volumes."""
        self._changed = listener

    def ended(
        self,
        operation: Operation,
        kind: VolumePlugin,
        pod: Pod | None,
        seconds: float,
        failed: OperationFailed | None,
    ) -> None:
        """Report an operation that has ended; ``failed`` None: it succeeded."""
        about = operation.about
        assert about is not None, "an operation is about something"
        plugin = kind.metric_name(about)
        migrated = operation.spec is not None and operation.spec.migrated
        self._metrics.done(
            operation.metric_name, plugin, seconds, ok=failed is None, migrated=migrated
        )
        if (
            operation.kind is OperationKind.UNPUBLISH
            and operation.mount
            and operation.mount.damaged
        ):
            self._metrics.force_cleaned.inc()
            self._metrics.force_clean_errors.inc(failed is not None)
        if failed is not None:
            self._failed(operation, pod, about.mode is Mode.BLOCK, about.spec_name, failed)
            if isinstance(failed, FilesystemMismatch) and operation.spec is not None:
                self._mismatch(operation.spec, failed)
        elif operation.kind is OperationKind.PUBLISH:
            requested = self._requested_at.get((operation.pod_uid, operation.unique_name))
            if requested is not None:
                now = asyncio.get_running_loop().time()
                self._metrics.first_set_up(plugin, now - requested)

    def leftovers_found(self, found: Found) -> None:
        """Count a plugin's volumes that a previous agent has left."""
        damaged = sum(1 for left in found.published if left.damaged)
        self._metrics.reconstructed.inc(len(found.published))
        self._metrics.reconstruct_errors.inc(damaged)

    def owned(self, plugin: str, seconds: float, ok: bool) -> None:
        """Record how long applying the fsGroup to a volume took."""
        self._metrics.done(OWN, plugin, seconds, ok=ok)

    def counted(self, demands: Sequence[PodDemand], actual: Mapping[str, Volume]) -> None:
        """Count the desired and the existing volumes, after either may have changed."""
        now = asyncio.get_running_loop().time()
        desired: Counter[str] = Counter()
        requested: dict[tuple[str, str], float] = {}
        for demand in demands:
            for spec in demand.specs:
                desired[spec.plugin] += 1
                key = (demand.uid, spec.unique_name)
                requested[key] = self._requested_at.get(key, now)
        self._requested_at = requested
        certain = [
            (uid, volume)
            for volume in actual.values()
            for uid, mount in volume.pods.items()
            if mount.state is Presence.THERE
        ]
        have = frozenset((uid, volume.unique_name) for uid, volume in certain)
        if have != self._there:
            self._there = have
            self._changed()
        there = Counter(volume.plugin for _, volume in certain)
        for state, counts in ((DESIRED, desired), (ACTUAL, there)):
            before = self._counts[state]
            by = {name: counts[name] - before[name] for name in counts | before}
            self._metrics.moved(state, {name: number for name, number in by.items() if number})
            self._counts[state] = counts

    def _mismatch(self, spec: VolumeSpec, failed: FilesystemMismatch) -> None:
        if spec.pv is None:
            return
        metadata = spec.pv["metadata"]
        volume: api.ObjectReference = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "name": metadata["name"],
            "uid": metadata.get("uid", ""),
        }
        message = f'MountVolume failed for volume "{spec.spec_name}" {failed.message}'
        reason = Reason.FAILED_MOUNT_ON_FILESYSTEM_MISMATCH
        self._recorder.event(volume, WARNING, reason, message)

    def _failed(
        self,
        operation: Operation,
        pod: Pod | None,
        block: bool,
        spec_name: str,
        failed: OperationFailed,
    ) -> None:
        step = failed.event_word or _EVENT_STEPS[operation.kind][block]
        message = f'{step} failed for volume "{spec_name}" : {failed.message}'
        if pod is None:
            log.warning("a volume operation failed", extra={"call": failed.call, "why": message})
            return
        match operation.kind:
            case OperationKind.EXPAND:
                reason = Reason.VOLUME_RESIZE_FAILED
            case OperationKind.UNPUBLISH | OperationKind.UNSTAGE:
                reason = Reason.FAILED_UNMOUNT
            case _:
                reason = Reason.FAILED_MAP_VOLUME if block else Reason.FAILED_MOUNT
        self._recorder.event(pod_reference(pod), WARNING, reason, message)

    # -- operations that have not failed: slow, odd or completed ones

    def mapped(self, spec: VolumeSpec, use: PodUse, published: Published) -> None:
        """Report that a block device was mapped for a pod."""
        succeeded = f'MapVolume.MapPodDevice succeeded for volume "{spec.spec_name}" '
        directory = published.map_directory
        paths = [f'globalMapPath "{directory}"'] if directory else []
        paths.append(f'volumeMapPath "{published.path.rpartition("/")[0]}"')
        for path in paths:
            self._recorder.event(
                pod_reference(use.pod), NORMAL, Reason.SUCCESSFUL_MOUNT_VOLUME, succeeded + path
            )

    def shared(self, spec: VolumeSpec, use: PodUse, group: int) -> None:
        """Warn that a pod requests another fsGroup than the pods that have the volume."""
        message = (
            f"The requested fsGroup is {use.fs_group}, but the volume {spec.spec_name} has GID "
            f"{group}. The volume may not be shareable."
        )
        self._warn(use, Reason.ALREADY_MOUNTED_VOLUME, message)

    def owning(self, use: PodUse, path: str, files: int | None) -> None:
        """Warn that the fsGroup is still being applied: ``files`` so far; None: it takes long."""
        about = f"Setting volume ownership for {path[max(path.find(use.uid), 0) :]}"
        progress = (
            f" is taking longer than expected, {_HINT}"
            if files is None
            else f", processed {files} files."
        )
        self._warn(use, Reason.VOLUME_PERMISSION_CHANGE_IN_PROGRESS, about + progress)

    def _warn(self, use: PodUse, reason: Reason, message: str) -> None:
        self._recorder.event(pod_reference(use.pod), WARNING, reason, message)
