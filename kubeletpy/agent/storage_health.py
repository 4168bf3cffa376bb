"""The health of volumes and of drivers' storage: a part of the composition root.

Loaded with gate CSIVolumeHealth. Must never decide anything about a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubeletpy.agent.component import Component, Task
from kubeletpy.agent.context import BuildContext
from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.volumes.claim_volumes.claim_volumes import ClaimVolumes
from kubeletpy.volumes.csi.build import Csi
from kubeletpy.volumes.csi.storage_health_monitor import StorageHealthMonitor
from kubeletpy.volumes.usage.health import VolumeHealthMonitor


class StorageHealth(Struct, frozen=True):
    """The health checks of storage; ``of_pod`` returns the health of a pod's volumes, by its
    uid."""

    components: list[Component]
    of_pod: Callable[[str], Sequence[api.PodVolumeHealth]]


def build_storage_health(context: BuildContext, csi: Csi, claims: ClaimVolumes) -> StorageHealth:
    """Each volume and driver is queried every volumeStatsAggPeriod."""
    outside, signals, plugin = context.outside, context.signals, csi.plugin
    period, clock = context.settings.volume_stats_agg_period, outside.clock

    volumes = VolumeHealthMonitor(
        lambda: [each for each in claims.mounted() if each.left.plugin == plugin.name],
        plugin.health,
        signals.pod_changed,
        clock,
        period=period,
    )
    storage = StorageHealthMonitor(
        context.node_name,
        context.node_uid,
        csi.drivers,
        context.kube_api,
        outside.metrics.csi,
        clock=clock,
        period=period,
    )
    components = [
        Component(volumes, (Task("volume-health", volumes.run),)),
        Component(storage, (Task("storage-health", storage.run),)),
    ]
    return StorageHealth(components, volumes.of_pod)
