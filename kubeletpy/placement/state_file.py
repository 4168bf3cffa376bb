"""A state file of placement: read at the start, written as a whole, one write after another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from kubeletpy.host.private_files import write_private
from kubeletpy.placement.state_json import StateError

log = logging.getLogger(__name__)

MAX_BYTES = 64 << 20
"""More than any node's pods need; a bigger file is not read."""


class StateUnusable(Exception):
    """The agent can't start with a state file as it is; the message says what to do."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{path} can't be used: {why}. Drain this node and delete the file, then start again."
        )


class StateFile:
    """One file. Use it inside the event loop only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turn = asyncio.Lock()
        self._newest: str | None = None
        """What is to be in the file."""
        self._written: str | None = None
        self._later: asyncio.Task[None] | None = None

    def read(self) -> str | None:
        """What the file says; None: there is none. Blocking. Raises StateUnusable."""
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateUnusable(self.path, error.strerror or str(error)) from error
        if len(data) > MAX_BYTES:
            raise StateUnusable(self.path, f"it is larger than {MAX_BYTES} bytes")
        return data.decode("utf-8", "surrogateescape") or None

    def unusable(self, why: str | StateError) -> StateUnusable:
        """What to raise when the file does not suit."""
        return StateUnusable(self.path, str(why))

    async def write(self, text: str) -> None:
        """Have the file say this. Raises OSError."""
        self._newest = text
        async with self._turn:
            # a newer text that waited meanwhile has written this one too
            if self._written != (newest := self._newest):
                await asyncio.to_thread(self._replace, newest)
                self._written = newest

    def write_soon(self, text: str) -> None:
        """Have the file say this before long; a failure is left for the next write."""
        self._newest = text
        if self._later is None:
            self._later = asyncio.ensure_future(self._write_newest())
            self._later.add_done_callback(lambda _: setattr(self, "_later", None))

    async def close(self) -> None:
        """Wait for what is being written."""
        if self._later is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self._later])

    async def _write_newest(self) -> None:
        try:
            while self._newest is not None and self._newest != self._written:
                await self.write(self._newest)
        except OSError as error:
            log.warning("state not written", extra={"path": str(self.path), "error": str(error)})

    def _replace(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_private(self.path, text.encode("utf-8", "surrogateescape"))
