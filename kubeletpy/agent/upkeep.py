"""Garbage collection by the clock: dead containers and sandboxes, unused images.

What is removed is decided by :mod:`kubeletpy.runtime_manager.plan.gc_selection` and
:mod:`kubeletpy.images.gc_selection`; here is only when.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kubeletpy.events.reasons import Reason
from kubeletpy.events.recorder import WARNING, EventRecorder, node_reference
from kubeletpy.eviction.ranking import Reclaim
from kubeletpy.images.gc import ImageGarbageCollector
from kubeletpy.remote.errors import CRIError
from kubeletpy.runtime_manager.protocol import RuntimeManager

log = logging.getLogger(__name__)

CONTAINERS_PERIOD_S = 60.0
SOON_S = 5.0
"""After a pod has ended: its dead sandbox goes soon, and many ended pods are one round."""
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
    ) -> None:
        """``removable(pod_uid)`` says whether everything of a pod may go, ``reported(pod_uid)``
        whether the API knows how its containers ended, ``ended(pod_uid)`` whether all of a pod has
        stopped."""
        self._runtime = runtime
        self._images = images
        self._recorder = recorder
        self._node = node_reference(node_name)
        self._all_sources_ready = all_sources_ready
        self._removable = removable
        self._reported = reported
        self._ended = ended
        self._wanted = asyncio.Event()

    def collect_soon(self) -> None:
        """A pod has ended: do not wait for the period."""
        self._wanted.set()

    async def collect_containers(self) -> None:
        """Collect dead containers and sandboxes until cancelled; soon after the start first."""
        self._wanted.set()  # what ended while no agent ran, or a moment before it stopped
        while True:
            try:
                async with asyncio.timeout(CONTAINERS_PERIOD_S):
                    await self._wanted.wait()
                await asyncio.sleep(SOON_S)
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                await self._runtime.collect_garbage(
                    all_sources_ready=self._all_sources_ready(),
                    removable=self._removable,
                    reported=self._reported,
                )
            except CRIError as error:
                self._recorder.event(self._node, WARNING, Reason.CONTAINER_GC_FAILED, str(error))

    async def collect_images(self) -> None:
        """Collect unused images until cancelled; soon after the start they are looked at first."""
        await asyncio.sleep(SOON_S)
        await self._images.look()
        while True:
            await asyncio.sleep(IMAGES_PERIOD_S)
            await self._images.run()

    async def cleared(self, uid: str) -> bool:
        """Remove the dead containers of a pod that has ended; whether the runtime has none.

        They wait until the API knows how they ended.
        """
        try:
            await self.reclaim(Reclaim.CONTAINERS)
            return not await self._runtime.has_containers(uid)
        except CRIError as error:
            log.debug("not known what a pod has left", extra={"why": str(error)})
            return False

    async def reclaim(self, what: Reclaim) -> None:
        """Clear away what the node can do without: its disk is about to be full.

        Dead containers of pods that have ended go although their objects are still there.
        Raises CRIError, ImageGCError.
        """
        if what is Reclaim.IMAGES:
            await self._images.remove_unused()
            return
        await self._runtime.collect_garbage(
            all_sources_ready=self._all_sources_ready(),
            removable=lambda uid: (
                self._removable(uid) or (self._ended(uid) and self._reported(uid))
            ),
            reported=self._reported,
        )
