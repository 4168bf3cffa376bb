"""The agent's health, combined from its components: what holds pods back, and Ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubeletpy.node.conditions import NodeHealth
from kubeletpy.node.runtime_monitor import RuntimeMonitor
from kubeletpy.node.shutdown.shutdown_manager import ShutdownManager
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.syncloop.pleg import Pleg

PASS_OVERDUE_S = 300.0
"""Without a housekeeping pass for this long (or two sync periods) the sync loop is unhealthy."""


class AgentHealth:
    """Combines the health of runtime, PLEG, storage and shutdown."""

    def __init__(
        self,
        monitor: RuntimeMonitor,
        pleg: Pleg,
        cache: PodStatusCache,
        shutdown: ShutdownManager,
        *,
        pressures: Callable[[], tuple[str, ...]],
        storage: Callable[[], str] = lambda: "",
        cgroups: Callable[[], str] = lambda: "",
    ) -> None:
        """``pressures``: the pressure conditions that are true. ``storage`` states why the node is
        not ready for volumes yet; empty: it is. ``cgroups``: why limits of pods do not hold; pods
        are synced nevertheless, since only a new sandbox shows that it is over."""
        self._monitor = monitor
        self._pleg = pleg
        self._cache = cache
        self._shutdown = shutdown
        self._pressures = pressures
        self._storage = storage
        self._cgroups = cgroups

    def runtime_error(self) -> str:
        """Why pods can't be synced now; empty when they can."""
        error = self._monitor.runtime_error()
        if not error and (pleg := self._pleg.health_error()):
            error = f"PLEG is not healthy: {pleg}"
        return error

    def node_health(self) -> NodeHealth:
        """The inputs of the node's Ready condition."""
        pleg = self._pleg.health_error() if self._cache.populated else ""
        runtime, storage = self._monitor.runtime_error(), self._storage()
        unanswered = (runtime if self._monitor.unanswered else "", storage)
        return NodeHealth(
            runtime_error=runtime,
            network_error=self._monitor.network_error(),
            storage_error=storage,
            pleg_error=f"PLEG is not healthy: {pleg}" if pleg else "",
            shutting_down=self._shutdown.shutting_down,
            pressures=self._pressures(),
            unanswered=tuple(filter(None, unanswered)),
            cgroup_error=self._cgroups(),
        )


class SyncLoopHealth:
    """Make it inside a running event loop."""

    def __init__(self, loop: SyncLoop, sync_frequency: float) -> None:
        """``sync_frequency`` in seconds."""
        self._loop = loop
        self._overdue = max(PASS_OVERDUE_S, 2 * sync_frequency)
        self._started_at = asyncio.get_running_loop().time()

    def error(self) -> str:
        """Why the sync loop is unhealthy: no housekeeping pass for too long; empty when healthy."""
        last = self._loop.last_pass_at or self._started_at
        silent = asyncio.get_running_loop().time() - last
        return f"no housekeeping pass for {silent:.0f} s" if silent > self._overdue else ""
