"""A node of which nothing is watched: only limits of pods are kept there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence

from kubeletpy.node.eviction.pod_use import Candidate
from kubeletpy.node.eviction.signals import Layout, Observations, Signal
from kubeletpy.pods.pod import Pod


class Unwatched:
    """A NodeSignals and a PodUses without numbers."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    async def observe(self, wanted: Collection[Signal]) -> Observations:
        """Nothing."""
        return {}

    async def layout(self) -> Layout | None:
        """It is not known."""
        return None

    def arm(self, margins: Mapping[Signal, int]) -> None:
        """Nobody notifies."""

    async def noticed(self, within: float | None) -> None:
        """Wait until woken, at most this many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._woken.wait()
        self._woken.clear()

    def wake(self) -> None:
        """Have :meth:`noticed` return."""
        self._woken.set()

    async def candidates(self, pods: Sequence[Pod], *, disk: bool) -> list[Candidate]:
        """Nobody is a candidate."""
        return []

    async def close(self) -> None:
        """Nothing is held."""
