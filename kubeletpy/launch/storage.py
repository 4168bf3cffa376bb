"""From settings to what measures the local storage of pods with limits."""

from __future__ import annotations

from collections.abc import Callable

from kubeletpy.clock import SystemClock
from kubeletpy.config import KubeletSettings
from kubeletpy.eviction.keeper import PERIOD_S, Meter
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.stats.disks import DiskMeter
from kubeletpy.stats.pod_storage import StorageMeter, StorageSources


def storage_meter(
    settings: KubeletSettings, runtime: RemoteRuntime, root_dir: str
) -> Callable[[PodManager, PodStatusCache], Meter] | None:
    """What makes the meter of a node; None where localStorageCapacityIsolation is off.

    Volumes of pods with limits are measured for every look, more often than volumeStatsAggPeriod
    asks for; a negative period turns measuring off for them too.
    """
    if not settings.local_storage_capacity_isolation:
        return None
    between = min(settings.volume_stats_agg_period, PERIOD_S) or PERIOD_S

    def make(pods: PodManager, cache: PodStatusCache) -> Meter:
        return StorageMeter(
            StorageSources(
                runtime=runtime,
                images=runtime,
                status=cache.status,
                pod=pods.get,
                disks=DiskMeter(SystemClock(), between, patient=True),
                root_dir=root_dir,
                pod_logs_dir=settings.pod_logs_dir,
            )
        )

    return make
