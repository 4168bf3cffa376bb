"""Reports how full volumes are, and whether they are healthy, in metrics and events.

Source: docs/reference/behaviour-storage.md, sr, ss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.volumes import ClaimNumbers, VolumeStatsMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.on_disk import MeasuredVolume, VolumeStats

_NUMBERS = (
    "capacity_bytes",
    "available_bytes",
    "used_bytes",
    "inodes",
    "inodes_free",
    "inodes_used",
)


class UsageReporter:
    """Implements :class:`kubeletpy.volumes.usage.meter.UsageListener`."""

    def __init__(
        self,
        recorder: EventRecorder,
        metrics: VolumeStatsMetrics,
        pod: Callable[[str], Pod | None],
    ) -> None:
        """``pod`` finds one by uid."""
        self._recorder = recorder
        self._metrics = metrics
        self._pod = pod

    def took(self, source: str, seconds: float) -> None:
        """One volume was measured."""
        self._metrics.took(source, seconds)

    def abnormal(self, found: MeasuredVolume) -> None:
        """A driver reports that a volume is unhealthy."""
        pod = self._pod(found.volume.uid)
        if pod is not None:
            text = f"Volume {found.volume.name}: {found.stats.message}"
            self._recorder.event(
                pod_reference(pod), WARNING, Reason.VOLUME_CONDITION_ABNORMAL, text
            )

    def measured(self, found: Iterable[MeasuredVolume]) -> None:
        """The current results for all volumes."""
        self._metrics.show(
            ClaimNumbers(*each.volume.claim, self._numbers(each.stats))
            for each in found
            if each.volume.claim is not None
        )

    def _numbers(self, stats: VolumeStats) -> dict[str, int]:
        known = {name: getattr(stats, name) for name in _NUMBERS}
        if stats.abnormal is not None:
            known["health_status_abnormal"] = int(stats.abnormal)
        return {name: value for name, value in known.items() if value is not None}
