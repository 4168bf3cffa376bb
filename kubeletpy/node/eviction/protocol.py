"""Interfaces of the eviction keeper: signals of the machine, and what pods use."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from kubeletpy.node.eviction.pod_use import Candidate
from kubeletpy.node.eviction.signals import Layout, Observations, Signal
from kubeletpy.pods.pod import Pod


class NodeSignals(Protocol):
    """Observes how much of each resource a node has left."""

    async def observe(self, wanted: Collection[Signal]) -> Observations:
        """Observe what is available for each signal, as far as that is possible."""
        ...

    async def layout(self) -> Layout | None:
        """Where images and writable layers are; None: not known yet."""
        ...

    def arm(self, margins: Mapping[Signal, int]) -> None:
        """Have :meth:`noticed` return when this many more bytes are used."""
        ...

    async def noticed(self, within: float | None) -> None:
        """Wait for a notice, at most this many seconds; None: as long as it takes."""
        ...

    def wake(self) -> None:
        """Have :meth:`noticed` return."""
        ...

    async def close(self) -> None:
        """Stop."""
        ...


class PodUses(Protocol):
    """Measures the current resource use of pods."""

    async def candidates(self, pods: Sequence[Pod], *, disk: bool) -> list[Candidate]:
        """Each pod with what it uses; ``disk``: including the disk."""
        ...

    async def close(self) -> None:
        """Stop."""
        ...
