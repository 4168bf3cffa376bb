"""Pod eviction: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from kubeletpy.agent.component import Component, Task
from kubeletpy.agent.core import Core
from kubeletpy.agent.upkeep import Upkeep
from kubeletpy.base.structs import Struct
from kubeletpy.node.eviction.keeper import EvictionKeeper
from kubeletpy.node.eviction.limit_watch import LimitWatch
from kubeletpy.node.eviction.protocol import NodeSignals, PodUses
from kubeletpy.node.eviction.thresholds import Rules, from_settings
from kubeletpy.node.eviction.unwatched import Unwatched
from kubeletpy.node.eviction.uses import CollectedUses
from kubeletpy.node.stats.build import make_collector, withheld_huge_pages
from kubeletpy.node.stats.collector import StatsCollector
from kubeletpy.node.stats.disks import DiskMeter
from kubeletpy.node.stats.pod_storage import StorageMeter
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.spared import Spared

if TYPE_CHECKING:
    from kubeletpy.node.eviction.order import EvictionOrder

FRESH_S = 1.0
"""Between two measurements of a pod's volumes and logs: eviction must not rely on stale numbers."""


class Eviction(Struct, frozen=True):
    """The eviction objects for the rest of the composition root.

    Attributes:
        keeper: None: nobody is evicted.
        watches_node: whether that depends on what the node has left, not only on limits of pods.
    """

    components: list[Component]
    keeper: EvictionKeeper | None = None
    watches_node: bool = False

    @property
    def pressure(self) -> EvictionKeeper | None:
        """The source of the node's conditions; None: it is not watched."""
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
        rows = [row for row in done if row.pod.uid == uid]
        return to_builtins(rows[-1]) if rows else None


def new_collector(core: Core, disks: DiskMeter | None = None) -> StatsCollector:
    """A collector of the pods' usage; ``disks`` None: measured every volumeStatsAggPeriod."""
    return make_collector(
        core.settings,
        core.outside.clock,
        runtime=core.outside.runtime,
        images=core.outside.images,
        pods=core.state.pods,
        cache=core.state.cache,
        tree=core.cgroups.tree,
        root_dir=core.flags.root_dir,
        huge_pages=withheld_huge_pages(core.settings, core.outside.machine.facts),
        runtime_cgroups=core.flags.runtime_cgroups,
        disks=disks,
        claimed=core.storage.meter.of_pods,
    )


def build_eviction(core: Core, upkeep: Upkeep) -> Eviction:
    """``upkeep`` reclaims what no pod needs."""
    settings, flags, outside, pods = core.settings, core.flags, core.outside, core.state.pods
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
                cache=core.state.cache,
                between=FRESH_S,
            ),
            pod=pods.get,
            is_over=core.state.queries.is_known_terminated,
        )
    rules = from_settings(
        settings, ignore_allocatable=flags.experimental_allocatable_ignore_eviction
    )
    sees: NodeSignals = Unwatched()
    uses: PodUses = Unwatched()
    watches_node = machine.signals is not None and bool(rules.thresholds)
    if machine.signals is not None and watches_node:
        sees = machine.signals
        uses = machine.uses or CollectedUses(
            new_collector(core, DiskMeter(clock, FRESH_S, patient=True))
        )
    elif limits is None:
        return Eviction([])
    keeper = EvictionKeeper(
        rules if watches_node else Rules(),
        sees,
        uses,
        limits,
        pods=core.running,
        pod=pods.get,
        kill=core.workers.kill_pod,
        is_over=core.state.queries.should_be_finished,
        reclaim=upkeep.reclaim,
        clear=upkeep.clear,
        changed=core.signals.node_changed,
        recorder=core.recorder,
        clock=clock,
        node_name=core.node_name,
        evicted=lambda signal: metrics.evictions.labels(signal).inc(),
        aged=lambda signal, seconds: metrics.eviction_stats_age.labels(signal).observe(seconds),
    )
    component = Component(
        keeper,
        (Task("eviction", keeper.run),),
        keep=lambda found: keeper.pods_changed(found.possibly_running),
        close=keeper.close,
    )
    return Eviction([component], keeper, watches_node)
