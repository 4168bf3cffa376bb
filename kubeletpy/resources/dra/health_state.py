"""Keeps drivers' reports on the health of their devices, in memory and in a file.

Source: docs/reference/behaviour-resources.md, rv, rx.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeletpy.base.clock import Clock
from kubeletpy.base.host.files import write_private
from kubeletpy.resources.dra import health
from kubeletpy.resources.dra.health import DeviceHealth, DeviceKey, Known

log = logging.getLogger(__name__)

MAX_BYTES = 16 << 20
_SOON_S = 0.01


class HealthState:
    """The known health of devices, with a file that outlives the agent.

    Use it inside the event loop only; ``close`` it there.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        changed: Callable[[set[tuple[str, DeviceKey]]], None],
    ) -> None:
        """Read the file; call ``changed`` with the drivers and devices whose health changed."""
        self._path = path
        self._clock = clock
        self._changed = changed
        self._known: dict[str, dict[DeviceKey, DeviceHealth]] = _read(path)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._writing: asyncio.Task[None] | None = None
        self._dirty = False
        self._wait()

    @property
    def reported(self) -> Known:
        """The reports by driver; whether one still counts depends on the time."""
        return self._known

    def driver_reported(self, driver: str, answer: Any) -> None:
        """Take in a driver's message."""
        now = self._clock.now()
        self._known[driver], changed = health.with_report(self._known.get(driver, {}), answer, now)
        if changed:
            self._save()
            self._changed({(driver, key) for key in changed})
        self._wait()

    async def close(self) -> None:
        """Write what is not written yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            await self._writing

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
        self._timer = loop.call_later(max(end - self._clock.now(), 0) + _SOON_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._known, ended = health.without_ended(self._known, self._clock.now())
        if ended:
            self._changed(ended)
        self._wait()

    # -- the file ------------------------------------------------------------------------------

    def _save(self) -> None:
        self._dirty = True
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="device health")

    async def _write(self) -> None:
        try:
            while self._dirty:
                self._dirty = False
                text = health.render(self._known)
                await asyncio.to_thread(write_private, self._path, text)
        except OSError as error:
            log.warning(
                "the health of devices cannot be written; after a restart it is unknown at first",
                extra={"file": str(self._path), "why": str(error)},
            )
        finally:
            self._writing = None


def _read(path: Path) -> dict[str, dict[DeviceKey, DeviceHealth]]:
    try:
        with path.open("rb") as file:
            return health.parse_health(file.read(MAX_BYTES).decode(errors="replace"))
    except OSError:
        return {}
