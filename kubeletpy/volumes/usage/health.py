"""Queries CSI drivers for the health of the volumes that pods use, in the background.

The latest answers are kept in memory; a call that fails changes none of them. No caller waits for a
driver. Source: docs/reference/behaviour-storage.md, sr1.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_time
from kubeletpy.base.clock import Clock
from kubeletpy.base.tasks import run_together
from kubeletpy.volumes.claims.on_disk import MountedVolume, PublishedOnDisk
from kubeletpy.volumes.claims.operation import OperationFailed

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Volumes of one driver."""
DEFAULT_PERIOD_S = 60.0
"""Between two rounds, if the configured period is 0 or less."""

Conditions = Sequence[api.VolumeHealthCondition]


class VolumeHealthMonitor:
    """The health of volumes by pod. Make it inside a running event loop."""

    def __init__(
        self,
        mounted: Callable[[], Sequence[MountedVolume]],
        query: Callable[[PublishedOnDisk], Awaitable[Conditions | None]],
        changed: Callable[[str], None],
        clock: Clock,
        *,
        period: float,
    ) -> None:
        """Args:
        mounted: all volumes of pods.
        query: calls the driver; None: it does not report health. Raises OperationFailed.
        changed: called with the uid of a pod for which another answer came.
        period: seconds between two rounds; 0 or less: a minute.
        """
        self._mounted = mounted
        self._query = query
        self._changed = changed
        self._clock = clock
        self._period = period if period > 0 else DEFAULT_PERIOD_S
        self._known: dict[str, dict[str, api.PodVolumeHealth]] = {}
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(AT_ONCE)
        )

    def of_pod(self, uid: str) -> list[api.PodVolumeHealth]:
        """The latest answer for each volume of a pod whose driver reports health."""
        return list(self._known.get(uid, {}).values())

    async def run(self) -> None:
        """Query drivers until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(self._period)

    async def round(self) -> None:
        """Query every volume once, and forget those that were removed."""
        volumes = self._mounted()
        uids = {volume.uid for volume in volumes}
        for uid in self._known.keys() - uids:
            del self._known[uid]
        await run_together(*(self._one(volume) for volume in volumes))

    async def _one(self, volume: MountedVolume) -> None:
        async with self._slots[volume.left.driver]:
            try:
                conditions = await self._query(volume.left)
            except OperationFailed as error:
                extra = {"volume": volume.left.spec_name, "why": error.message}
                log.debug("health of a volume not read; what is known stays", extra=extra)
                return
        if conditions is None:
            return
        of_pod = self._known.setdefault(volume.uid, {})
        known = of_pod.get(volume.name)
        if known is not None and known.get("healthConditions") == list(conditions):
            return
        of_pod[volume.name] = {
            "name": volume.name,
            "healthConditions": list(conditions),
            "lastTransitionTime": format_time(self._clock.now()),
        }
        self._changed(volume.uid)
