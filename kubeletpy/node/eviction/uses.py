"""Collects what pods use on demand: the ranking must not depend on old numbers."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.node.eviction.pod_use import Candidate, candidate
from kubeletpy.node.stats.collector import StatsCollector
from kubeletpy.pods.pod import Pod


class CollectedUses:
    """Reads usage from a collector; ``close`` it with the event loop it was used in."""

    def __init__(self, collector: StatsCollector) -> None:
        self._collector = collector

    async def candidates(self, pods: Sequence[Pod], *, disk: bool) -> list[Candidate]:
        """Each pod with what it uses; ``disk``: including the disk, which may take 2 s."""
        reading, disks = await self._collector.at_once(disk=disk)
        readings = {each.ref.uid: each for each in reading.pods}
        on_disk = disks.pods if disks is not None else {}
        return [candidate(pod, readings.get(pod.uid), on_disk.get(pod.uid)) for pod in pods]

    async def close(self) -> None:
        """Stop collecting."""
        await self._collector.close()
