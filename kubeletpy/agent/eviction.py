"""Builds the parts that free resources: pod eviction, and the garbage collection of leftovers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from kubeletpy.agent.context import Component, Task
from kubeletpy.agent.core import Core
from kubeletpy.base import structs
from kubeletpy.base.tasks import wait_within
from kubeletpy.images.gc import ImageGarbageCollector
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, node_reference
from kubeletpy.metrics.trace.model import NO_TRACER, Tracer
from kubeletpy.node.eviction.decide import Rules, from_settings
from kubeletpy.node.eviction.keeper import EvictionKeeper
from kubeletpy.node.eviction.machine import CollectedUses, Unwatched
from kubeletpy.node.eviction.ranking import NodeSignals, PodUses, Reclaim
from kubeletpy.node.stats.collector import StatsCollector, make_collector, withheld_huge_pages
from kubeletpy.node.stats.disks import DiskMeter
from kubeletpy.node.stats.pod_storage import StorageMeter
from kubeletpy.pods.pod import Excluded, Pod
from kubeletpy.remote.errors import CRIError
from kubeletpy.runtime_manager.act.garbage_collection import ContainerGarbageCollector

if TYPE_CHECKING:
    from kubeletpy.node.eviction.report import EvictionOrder


# Garbage collection of dead containers and sandboxes, and of unused images: when it runs.
# :mod:`kubeletpy.runtime_manager.plan.gc_selection` and :mod:`kubeletpy.images.gc_selection` select
# what is removed.

log = logging.getLogger(__name__)

CONTAINERS_PERIOD_S = 60.0
SOON_S = 5.0
"""After a pod has ended: its dead sandbox goes soon, and many ended pods share one round."""
IMAGES_PERIOD_S = 300.0


class Upkeep(structs.Component):
    """The timers of garbage collection."""

    containers: ContainerGarbageCollector
    images: ImageGarbageCollector
    recorder: EventRecorder
    node_name: str
    all_sources_ready: Callable[[], bool]
    # Whether everything of a pod may be removed, by UID.
    removable: Callable[[str], bool]
    # Whether the API has how a pod's containers ended, by UID.
    reported: Callable[[str], bool] = lambda uid: True
    # Whether everything of a pod has stopped, by UID.
    ended: Callable[[str], bool] = lambda uid: False
    # Rounds are spans of it.
    tracer: Tracer = NO_TRACER

    def __post_init__(self) -> None:
        self._node = node_reference(self.node_name)
        self._desired = asyncio.Event()

    def component(self) -> Component:
        """Its tasks and hooks, for the agent."""
        containers = Task("container-gc", self.collect_containers)
        return Component(self, (containers, Task("image-gc", self.collect_images)))

    def collect_soon(self) -> None:
        """A pod has ended: do not wait for the period."""
        self._desired.set()

    async def collect_containers(self) -> None:
        """Collect dead containers and sandboxes until cancelled, first soon after startup."""
        self._desired.set()  # what ended while no agent ran, or just before it stopped
        while True:
            if await wait_within(self._desired, CONTAINERS_PERIOD_S):
                await asyncio.sleep(SOON_S)
            self._desired.clear()
            try:
                await self._collect(self.removable, self.reported)
            except CRIError as error:
                self.recorder.event(self._node, WARNING, Reason.CONTAINER_GC_FAILED, str(error))

    async def collect_images(self) -> None:
        """Collect unused images until cancelled; they are first listed soon after startup."""
        await asyncio.sleep(SOON_S)
        await self.images.record_images()
        while True:
            await asyncio.sleep(IMAGES_PERIOD_S)
            await self.images.run()

    async def clear(self, uid: str, *, unreported: bool) -> bool:
        """Remove the dead containers of an ended pod; returns whether the runtime has none left.

        They are kept until the API has how they ended, except with ``unreported``.
        """

        def reported(other: str) -> bool:
            return (unreported and other == uid) or self.reported(other)

        try:
            await self._reclaim_containers(reported)
            return not await self.containers.has_containers(uid)
        except CRIError as error:
            log.debug("unknown whether a pod left containers behind", extra={"why": str(error)})
            return False

    async def reclaim(self, what: Reclaim) -> bool:
        """Remove what the node can do without because its disk is about to fill up.

        Dead containers of ended pods are removed even though their objects still exist. Returns
        whether the runtime may free the space only later, as it does with writable layers.
        Raises CRIError, ImageGCError.
        """
        if what is Reclaim.IMAGES:
            await self.images.remove_unused()
            return False
        return await self._reclaim_containers(self.reported) > 0

    async def _reclaim_containers(self, reported: Callable[[str], bool]) -> int:
        return await self._collect(
            lambda uid: self.removable(uid) or (self.ended(uid) and reported(uid)), reported
        )

    async def _collect(
        self, removable: Callable[[str], bool], reported: Callable[[str], bool]
    ) -> int:
        with self.tracer.span("Containers/GarbageCollect", {}):
            return await self.containers.collect(
                all_sources_ready=self.all_sources_ready(), removable=removable, reported=reported
            )


FRESH_S = 1.0
"""Between two measurements of a pod's volumes and logs: eviction must not rely on stale numbers."""


class Eviction(structs.Struct, frozen=True):
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
        self, requested: Pod | None = None, without: Collection[str] = ()
    ) -> Sequence[EvictionOrder]:
        """In which order pods would be evicted; empty: the node is not watched."""
        pressure = self.pressure
        return () if pressure is None else await pressure.order(requested, without)

    def excluded(self, uid: str) -> Excluded | None:
        """How a critical pod exceeds a limit of its own storage and stays; None: it does not."""
        return None if self.keeper is None else self.keeper.excluded(uid)

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
    meter: StorageMeter | None = None
    if settings.local_storage_capacity_isolation:
        meter = StorageMeter.from_settings(
            settings,
            clock,
            outside.runtime,
            outside.images,
            root_dir=flags.root_dir,
            pods=pods,
            cache=core.state.cache,
            between=FRESH_S,
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
    elif meter is None:
        return Eviction([])
    keeper = EvictionKeeper(
        rules if watches_node else Rules(),
        sees,
        uses,
        meter,
        pods=core.running,
        pod=pods.get,
        kill=core.workers.kill_pod,
        has_stopped=core.state.queries.is_known_terminated,
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
