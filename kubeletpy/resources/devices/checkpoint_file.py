"""The device checkpoint on disk, read at the start and written atomically when needed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from kubeletpy.base.host.files import write_private
from kubeletpy.base.tasks import Lasting
from kubeletpy.resources.devices import checkpoint
from kubeletpy.resources.devices.model import DeviceState

log = logging.getLogger(__name__)

MAX_BYTES = 64 << 20
"""More than any node's devices need; a bigger file is not read."""
SOON_S = 0.5
RETRY_S = 30.0


class CheckpointFile:
    """``device-plugins/kubelet_internal_checkpoint``. Use it inside the event loop only."""

    def __init__(self, directory: Path, state: DeviceState) -> None:
        self._path = directory / checkpoint.FILE
        self._state = state
        self._writing = asyncio.Lock()
        self._lasting = Lasting()
        self._changes = 0
        self._written = 0
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Task[None] | None = None
        self._write_failing = False

    async def restore(self, now: float) -> None:
        """Restore the state. An unusable file is reported and ignored."""
        try:
            text = await asyncio.to_thread(_read_checkpoint, self._path)
            bookings, resources = await asyncio.to_thread(checkpoint.parse_checkpoint, text)
        except FileNotFoundError:
            return
        except (OSError, checkpoint.BadDeviceCheckpoint) as error:
            log.error(
                "which devices pods have can't be read: their containers keep them, but they may "
                "be given again; drain the node, then remove the file",
                extra={"file": str(self._path), "why": str(error)},
            )
            return
        self._state.restored(resources, bookings, now)

    async def write(self) -> None:
        """Return once the current state, or a later one, is on the disk. Raises OSError."""
        self._changes += 1
        # finish it even if the waiter is cancelled: the next must not be written before it
        await self._lasting.finish(self._write(self._changes))

    async def _write(self, desired: int) -> None:
        async with self._writing:
            if self._written >= desired:
                return
            writes = self._changes
            text = self._text()
            await asyncio.to_thread(lambda: write_private(self._path, text()))
            self._written = writes
            self._write_failing = False

    def write_soon(self) -> None:
        """Write within SOON_S; a failed write is retried."""
        self._write_after(SOON_S)

    async def close(self) -> None:
        """Write what is pending, and end."""
        pending = self._timer is not None or self._soon is not None
        if self._timer is not None:
            self._timer.cancel()
        if self._soon is not None:
            await asyncio.wait([self._soon])
        if pending:
            with contextlib.suppress(OSError):
                await self.write()
        await self._lasting.close()

    def _write_after(self, delay: float) -> None:
        if self._timer is None and self._soon is None:
            self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        self._timer = None
        self._soon = asyncio.get_running_loop().create_task(
            self._write_now(), name=f"write {self._path.name}"
        )

    async def _write_now(self) -> None:
        try:
            await self.write()
        except OSError as error:
            self._soon = None
            if not self._write_failing:
                self._write_failing = True
                extra = {"file": str(self._path), "why": str(error)}
                log.warning("the device checkpoint can't be written; trying again", extra=extra)
            self._write_after(RETRY_S)
        else:
            self._soon = None

    def _text(self) -> Callable[[], str]:
        bookings = dict(self._state.bookings)
        healthy = {name: each.healthy for name, each in self._state.resources.items()}
        return lambda: checkpoint.render(
            bookings, {name: sorted(ids) for name, ids in healthy.items()}
        )


def _read_checkpoint(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise OSError(f"it is larger than {MAX_BYTES} bytes")
    return data
