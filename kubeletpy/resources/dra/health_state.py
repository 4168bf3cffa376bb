"""Keeps drivers' reports on the health of their devices, in memory and in a file.

Source: docs/reference/behaviour-resources.md, rv, rx.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kubeletpy.base.clock import Clock
from kubeletpy.base.host.state_file import StateFile, read_state
from kubeletpy.base.structs import Component
from kubeletpy.resources.dra import health
from kubeletpy.resources.dra.health import DeviceHealth, DeviceKey, Known

PROBLEM = "the health of devices cannot be written; after a restart it is unknown at first"
_SOON_S = 0.01


class HealthState(Component):
    """The known health of devices, with a file that outlives the agent.

    Use it inside the event loop only; ``close`` it there.
    """

    path: Path
    clock: Clock
    changed: Callable[[set[tuple[str, DeviceKey]]], None]
    """Called with the drivers and devices whose health changed."""

    def __post_init__(self) -> None:
        self._known: dict[str, dict[DeviceKey, DeviceHealth]] = _read(self.path)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._file = StateFile(self.path, self._capture, PROBLEM)
        self._wait()

    @property
    def reported(self) -> Known:
        """The reports by driver; whether one still counts depends on the time."""
        return self._known

    def driver_reported(self, driver: str, answer: Any) -> None:
        """Take in a driver's message."""
        now = self.clock.now()
        self._known[driver], changed = health.with_report(self._known.get(driver, {}), answer, now)
        if changed:
            self._file.write_soon()
            self.changed({(driver, key) for key in changed})
        self._wait()

    async def close(self) -> None:
        """Write what is not written yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._file.close()

    # -- time ----------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Check again when the next report expires."""
        end = health.next_end(self._known)
        if end is None or (self._timer is not None and self._timer_at <= end):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = end
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(end - self.clock.now(), 0) + _SOON_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._known, ended = health.without_ended(self._known, self.clock.now())
        if ended:
            self.changed(ended)
        self._wait()

    def _capture(self) -> Callable[[], str]:
        return partial(health.render, dict(self._known))


def _read(path: Path) -> dict[str, dict[DeviceKey, DeviceHealth]]:
    try:
        return health.parse_health(read_state(path).decode(errors="replace"))
    except (OSError, ValueError):
        return {}
