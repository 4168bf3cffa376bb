"""Periodic garbage collection: dead containers and sandboxes, unused images.

:mod:`kubeletpy.runtime_manager.plan.gc_selection` and :mod:`kubeletpy.images.gc_selection` decide
what is removed; this module only decides when.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kubeletpy.agent.component import Component, Task
from kubeletpy.images.gc import ImageGarbageCollector
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, node_reference
from kubeletpy.metrics.trace.tracer import NO_TRACER, Tracer
from kubeletpy.node.eviction.ranking import Reclaim
from kubeletpy.remote.errors import CRIError
from kubeletpy.runtime_manager.protocol import RuntimeManager

log = logging.getLogger(__name__)

CONTAINERS_PERIOD_S = 60.0
SOON_S = 5.0
"""After a pod has ended: its dead sandbox goes soon, and many ended pods share one round."""
IMAGES_PERIOD_S = 300.0


class Upkeep:
    """The timers of garbage collection."""

    def __init__(
        self,
        runtime: RuntimeManager,
        images: ImageGarbageCollector,
        recorder: EventRecorder,
        *,
        node_name: str,
        all_sources_ready: Callable[[], bool],
        removable: Callable[[str], bool],
        reported: Callable[[str], bool] = lambda uid: True,
        ended: Callable[[str], bool] = lambda uid: False,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """``removable(pod_uid)`` states whether everything of a pod may be removed,
        ``reported(pod_uid)`` whether the API has how its containers ended, ``ended(pod_uid)``
        whether everything of a pod has stopped. Rounds are spans of ``tracer``."""
        self._tracer = tracer
        self._runtime = runtime
        self._images = images
        self._recorder = recorder
        self._node = node_reference(node_name)
        self._all_sources_ready = all_sources_ready
        self._removable = removable
        self._reported = reported
        self._ended = ended
        self._wanted = asyncio.Event()

    def component(self) -> Component:
        """Its tasks and hooks, for the agent."""
        containers = Task("container-gc", self.collect_containers)
        return Component(self, (containers, Task("image-gc", self.collect_images)))

    def collect_soon(self) -> None:
        """A pod has ended: do not wait for the period."""
        self._wanted.set()

    async def collect_containers(self) -> None:
        """Collect dead containers and sandboxes until cancelled, first soon after startup."""
        self._wanted.set()  # what ended while no agent ran, or just before it stopped
        while True:
            try:
                async with asyncio.timeout(CONTAINERS_PERIOD_S):
                    await self._wanted.wait()
                await asyncio.sleep(SOON_S)
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                await self._collect(self._removable, self._reported)
            except CRIError as error:
                self._recorder.event(self._node, WARNING, Reason.CONTAINER_GC_FAILED, str(error))

    async def collect_images(self) -> None:
        """Collect unused images until cancelled; they are first listed soon after startup."""
        await asyncio.sleep(SOON_S)
        await self._images.record_images()
        while True:
            await asyncio.sleep(IMAGES_PERIOD_S)
            await self._images.run()

    async def clear(self, uid: str, *, unreported: bool) -> bool:
        """Remove the dead containers of an ended pod; returns whether the runtime has none left.

        They are kept until the API has how they ended, except with ``unreported``.
        """

        def reported(other: str) -> bool:
            return (unreported and other == uid) or self._reported(other)

        try:
            await self._reclaim_containers(reported)
            return not await self._runtime.has_containers(uid)
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
            await self._images.remove_unused()
            return False
        return await self._reclaim_containers(self._reported) > 0

    async def _reclaim_containers(self, reported: Callable[[str], bool]) -> int:
        return await self._collect(
            lambda uid: self._removable(uid) or (self._ended(uid) and reported(uid)), reported
        )

    async def _collect(
        self, removable: Callable[[str], bool], reported: Callable[[str], bool]
    ) -> int:
        with self._tracer.span("Containers/GarbageCollect", {}):
            return await self._runtime.collect_garbage(
                all_sources_ready=self._all_sources_ready(),
                removable=removable,
                reported=reported,
            )
