"""Files with the newest state of a component: read with a bound, written atomically by a thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from kubeletpy.base.host.files import write_private
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import Lasting, cancel_tasks

log = logging.getLogger(__name__)

MAX_BYTES = 64 << 20
"""More than the state of any node needs; a bigger file is not read."""
RETRY_S = 30.0


class StateFile(Component):
    """The file of a component's state. Use it inside the event loop only.

    A write stores the state of the moment at which it begins, so that one write is enough for all
    changes before it. Writes follow one another, and each is completed even if its caller is
    canceled: an older state never replaces a newer one.
    """

    path: Path
    capture: Callable[[], Callable[[], str | bytes]]
    """Takes hold of the state; what it returns renders that in a thread."""
    problem: str
    """Is logged when :meth:`store` fails, once until a write succeeds."""
    soon_s: float = 0.0
    """How long :meth:`write_soon` waits for further changes."""
    stored: Callable[[], None] = lambda: None
    """Called after each write, with the state of its capture in the file."""

    def __post_init__(self) -> None:
        self._turn = asyncio.Lock()
        self._lasting = Lasting()
        self._changes = 0
        self._stored = 0
        """How many of the changes are in the file."""
        self._later: asyncio.Task[None] | None = None
        self._closed = False
        self._failing = False

    def note_change(self) -> None:
        """Note that the file lacks a change: the next write, or the end, stores it."""
        self._changes += 1

    async def write(self) -> None:
        """Return once the current state, or a later one, is in the file. Raises OSError."""
        self._changes += 1
        await self._lasting.finish(self._write(self._changes))

    async def store(self) -> bool:
        """Write what is not in the file yet; whether that succeeded. A failure is logged."""
        try:
            await self._lasting.finish(self._write(self._changes))
        except OSError as error:
            self.failed(error)
            return False
        return True

    def write_soon(self) -> None:
        """Write the state soon. A failure is logged, and the write is retried."""
        self._changes += 1
        if self._later is None and not self._closed:
            self._later = asyncio.get_running_loop().create_task(
                self._write_later(), name=f"write {self.path.name}"
            )

    def failed(self, error: OSError) -> None:
        """Log a failed write, once until a write succeeds."""
        if not self._failing:
            self._failing = True
            log.warning(self.problem, extra={"file": str(self.path), "why": str(error)})

    async def close(self) -> None:
        """Write what is not in the file yet, and end."""
        self._closed = True
        await cancel_tasks((self._later,))
        await self.store()
        await self._lasting.close()

    async def _write_later(self) -> None:
        wait = self.soon_s
        while self._stored < self._changes:
            await asyncio.sleep(wait)
            wait = self.soon_s if await self.store() else RETRY_S
        self._later = None

    async def _write(self, change: int) -> None:
        async with self._turn:
            if self._stored >= change:
                return
            changes, render = self._changes, self.capture()
            await asyncio.to_thread(lambda: write_private(self.path, render()))
            self.stored()
            self._stored = changes
            self._failing = False


def read_state(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return a file's content. Blocking. Raises OSError, and ValueError for more than ``limit``."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"it is larger than {limit} bytes")
    return data
