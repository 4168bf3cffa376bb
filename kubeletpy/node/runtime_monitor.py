"""Checks the runtime's health every few seconds and whenever its connection comes or goes.

Keeps the last answer for everything that depends on it. Must never decide what follows from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from kubeletpy.node.conditions import RUNTIME_DOWN_AFTER_S, network_not_ready
from kubeletpy.runtime_manager.protocol import RuntimeManager
from kubeletpy.runtime_manager.runtime_health import RuntimeHealth

log = logging.getLogger(__name__)

PERIOD_S = 5.0
FIRST_WAIT_S = 0.25
"""Until the next check while something is wrong, doubled up to the period: a runtime that has just
been started accepts connections some time before it can work."""
ANSWER_WITHIN_S = 10.0
"""A hanging status call is abandoned after this long and repeated: the runtime may have recovered
long before the call's own deadline (runtimeRequestTimeout, 2 min)."""
DOWN = "container runtime is down"


class RuntimeMonitor:
    """The runtime's last known health."""

    def __init__(self, runtime: RuntimeManager, on_change: Callable[[], None]) -> None:
        """``on_change`` is called when runtime or network readiness changes."""
        self._runtime = runtime
        self._on_change = on_change
        self._health: RuntimeHealth | None = None
        self.good_at: float | None = None
        """Event-loop seconds at which it was last known to be well; None: never."""
        self._check_due = asyncio.Event()
        self._lost = ""

    async def run(self) -> None:
        """Poll until cancelled."""
        wait = FIRST_WAIT_S
        while True:
            self._check_due.clear()
            if not await self.check():
                continue
            if not (self.runtime_error() or self.network_error()):
                wait = PERIOD_S
            try:
                async with asyncio.timeout(wait):
                    await self._check_due.wait()
                wait = FIRST_WAIT_S
            except TimeoutError:
                wait = min(2 * wait, PERIOD_S)

    async def check(self) -> bool:
        """Query once; returns whether there was an answer. Never raises for runtime failures.

        A missing answer alone changes nothing: the last one is valid for RUNTIME_DOWN_AFTER_S.
        """
        before = (self.runtime_error(), self.network_error())
        health = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN_S):
                health = await self._runtime.health()
        if health is not None:
            self._health = health
            if health.runtime_ready:
                self.good_at = asyncio.get_running_loop().time()
                self._lost = ""
        after = (self.runtime_error(), self.network_error())
        if after != before:
            self._log_readiness(after)
            self._on_change()
        return health is not None

    def connection_changed(self, connected: bool) -> None:
        """The connection to the runtime was lost or is back."""
        before = self.runtime_error()
        self._lost = "" if connected else "its endpoint is not connected"
        self._check_due.set()
        if self.runtime_error() != before:
            self._on_change()

    def runtime_error(self) -> str:
        """Why the runtime can't be used; empty when it can."""
        if self._lost:
            return f"{DOWN}: {self._lost}"
        if self._health is None:
            return "container runtime status check may not have completed yet"
        if not self._health.runtime_ready:
            return f"{DOWN}: {self._health.message}"
        now = asyncio.get_running_loop().time()
        if self.good_at is None or now - self.good_at > RUNTIME_DOWN_AFTER_S:
            return f"{DOWN}: it has not answered for {RUNTIME_DOWN_AFTER_S:.0f} s"
        return ""

    @property
    def unanswered(self) -> bool:
        """Whether the error is only that the runtime has not answered since the agent's start."""
        return self._health is None and not self._lost

    def network_error(self) -> str:
        """Why pods can't have a network; empty when they can."""
        if self._health is None or self._health.network_ready:
            return ""
        return network_not_ready(self._health.network_message)

    def _log_readiness(self, errors: tuple[str, str]) -> None:
        problems = [error for error in errors if error]
        if problems:
            log.warning("runtime not ready", extra={"why": "; ".join(problems)})
        else:
            log.info("runtime ready")
