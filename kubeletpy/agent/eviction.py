"""Pod eviction: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from kubeletpy.agent.outside import Outside
from kubeletpy.agent.room import Room, Task
from kubeletpy.agent.signals import Signals
from kubeletpy.agent.upkeep import Upkeep
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.events.recorder import AnnotatingRecorder
from kubeletpy.eviction.keeper import EvictionKeeper
from kubeletpy.eviction.limit_watch import LimitWatch
from kubeletpy.eviction.protocol import NodeSignals, PodUses
from kubeletpy.eviction.thresholds import Rules, from_settings
from kubeletpy.eviction.unwatched import Unwatched
from kubeletpy.eviction.uses import CollectedUses
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.spared import Spared
from kubeletpy.podworkers.queries import WorkerQueries
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.stats.collector import StatsCollector
from kubeletpy.stats.disks import DiskMeter
from kubeletpy.stats.pod_storage import StorageMeter
from kubeletpy.structs import Struct

if TYPE_CHECKING:
    from kubeletpy.eviction.order import EvictionOrder

FRESH_S = 1.0
"""Between two measurements of a pod's volumes and logs: eviction must not rely on stale numbers."""


class Eviction(Struct, frozen=True):
    """What the rest of the composition root uses.

    Attributes:
        keeper: None: nobody is evicted.
        watches_node: whether that depends on what the node has left, not only on limits of pods.
    """

    rooms: list[Room]
    keeper: EvictionKeeper | None = None
    watches_node: bool = False

    @property
    def pressure(self) -> EvictionKeeper | None:
        """What knows the conditions of the node; None: it is not watched."""
        return self.keeper if self.watches_node else None

    async def order(
        self, asked: Pod | None = None, without: Collection[str] = ()
    ) -> Sequence[EvictionOrder]:
        """In which order pods would be evicted; empty: the node is not watched."""
        pressure = self.pressure
        return () if pressure is None else await pressure.order(asked, without)

    def spared(self, uid: str) -> Spared | None:
        """How a critical pod exceeds a limit of its own storage and stays; None: it does not."""
        return None if self.keeper is None else self.keeper.spared(uid)

    def by_limit(self, uid: str) -> dict[str, Any] | None:
        """How a pod was evicted for exceeding its own limit, for explain; None: it was not."""
        done = self.keeper.done_for_limits if self.keeper is not None else ()
        deeds = [deed for deed in done if deed.pod.uid == uid]
        return to_builtins(deeds[-1]) if deeds else None


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
    running: the active pods, with the resources allocated to them.
    upkeep: reclaims what no pod needs.
    new_collector: creates a collector that measures disks with this meter.
    """
    machine, clock, metrics = outside.machine, outside.clock, outside.metrics.workers
    limits: LimitWatch | None = None
    if settings.local_storage_capacity_isolation:
        limits = LimitWatch(
            StorageMeter.from_settings(
                settings,
                clock,
                outside.runtime,
                outside.images,
                root_dir=flags.root_dir,
                pods=pods,
                cache=cache,
                between=FRESH_S,
            ),
            pod=pods.get,
            is_over=queries.is_known_terminated,
        )
    rules = from_settings(
        settings, ignore_allocatable=flags.experimental_allocatable_ignore_eviction
    )
    sees: NodeSignals = Unwatched()
    uses: PodUses = Unwatched()
    watches_node = machine.signals is not None and bool(rules.thresholds)
    if machine.signals is not None and watches_node:
        sees = machine.signals
        uses = machine.uses or CollectedUses(new_collector(DiskMeter(clock, FRESH_S, patient=True)))
    elif limits is None:
        return Eviction([])
    keeper = EvictionKeeper(
        rules if watches_node else Rules(),
        sees,
        uses,
        limits,
        pods=running,
        pod=pods.get,
        kill=workers.kill_pod,
        is_over=queries.should_be_finished,
        reclaim=upkeep.reclaim,
        clear=upkeep.clear,
        changed=signals.node_changed,
        recorder=recorder,
        clock=clock,
        node_name=node_name,
        evicted=lambda signal: metrics.evictions.labels(signal).inc(),
        aged=lambda signal, seconds: metrics.eviction_stats_age.labels(signal).observe(seconds),
    )
    room = Room(
        keeper,
        (Task("eviction", keeper.run),),
        keep=lambda found: keeper.pods_changed(found.possibly_running),
        close=keeper.close,
    )
    return Eviction([room], keeper, watches_node)
