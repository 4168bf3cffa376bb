"""Who evicts pods: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kubeletpy.agent.outside import Outside
from kubeletpy.agent.room import Room, Task
from kubeletpy.agent.signals import Signals
from kubeletpy.agent.upkeep import Upkeep
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.events.recorder import AnnotatingRecorder
from kubeletpy.eviction.keeper import LocalStorageKeeper
from kubeletpy.eviction.next_look import PERIOD_S
from kubeletpy.eviction.node_pressure import NodePressureKeeper
from kubeletpy.eviction.thresholds import from_settings
from kubeletpy.eviction.uses import CollectedUses
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.queries import WorkerQueries
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.stats.collector import StatsCollector
from kubeletpy.stats.disks import DiskMeter
from kubeletpy.stats.pod_storage import StorageMeter


@dataclass(frozen=True, slots=True)
class Eviction:
    """What the root goes on with. ``pressure`` None: the node is not watched."""

    rooms: list[Room]
    pressure: NodePressureKeeper | None


def build_eviction(
    settings: KubeletSettings,
    flags: NodeFlags,
    outside: Outside,
    recorder: AnnotatingRecorder,
    signals: Signals,
    *,
    node_name: str,
    pods: PodManager,
    running: Callable[[], Sequence[Pod]],
    cache: PodStatusCache,
    queries: WorkerQueries,
    workers: PodWorkers,
    upkeep: Upkeep,
    new_collector: Callable[[DiskMeter], StatsCollector],
) -> Eviction:
    """Args:
    running: the active pods, with the resources that are allocated to them.
    upkeep: reclaims what no pod needs.
    new_collector: makes one that measures disks with this meter.
    """
    machine, clock, metrics = outside.machine, outside.clock, outside.metrics.workers
    rooms: list[Room] = []
    local_storage: LocalStorageKeeper | None = None
    if settings.local_storage_capacity_isolation:
        local_storage = keeper = LocalStorageKeeper(
            StorageMeter.from_settings(
                settings,
                clock,
                outside.runtime,
                outside.images,
                root_dir=flags.root_dir,
                pods=pods,
                cache=cache,
                at_least_every=PERIOD_S,
            ),
            pod=pods.get,
            is_over=queries.is_known_terminated,
            kill=workers.kill_pod,
            recorder=recorder,
            evicted=lambda signal: metrics.evictions.labels(signal).inc(),
        )
        rooms.append(
            Room(
                keeper,
                (Task("local-storage", keeper.run),),
                keep=lambda found: keeper.pods_changed(found.possibly_running),
            )
        )
    rules = from_settings(
        settings, ignore_allocatable=flags.experimental_allocatable_ignore_eviction
    )
    if machine.signals is None or not rules.thresholds:
        return Eviction(rooms, None)
    pressure = NodePressureKeeper(
        rules,
        machine.signals,
        machine.uses or CollectedUses(new_collector(DiskMeter(clock, PERIOD_S, patient=True))),
        pods=running,
        kill=workers.kill_pod,
        is_over=queries.should_be_finished,
        reclaim=upkeep.reclaim,
        cleared=upkeep.cleared,
        changed=signals.node_changed,
        recorder=recorder,
        clock=clock,
        node_name=node_name,
        evicted=lambda signal: metrics.evictions.labels(signal).inc(),
        aged=lambda signal, seconds: metrics.eviction_stats_age.labels(signal).observe(seconds),
        others_end=lambda: local_storage is not None and local_storage.busy,
    )
    rooms.append(Room(pressure, (Task("node-pressure", pressure.run),), close=pressure.close))
    return Eviction(rooms, pressure)
