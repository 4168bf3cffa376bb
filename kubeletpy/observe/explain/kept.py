"""Keeps on disk since when pods have been failing or ending, for a restarted agent.

A small file of uids and times. Without it, or if it can't be read or written, the agent begins
anew: nothing is decided by it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

from kubeletpy.base.host.files import write_private
from kubeletpy.podworkers.troubles import Troubles

log = logging.getLogger(__name__)

FILE_NAME = "explain-troubles.json"
EVERY_S = 30.0
"""Seconds between checks whether there is anything to write."""
NOW_AND_THEN = 8
"""Checks: well within the time after which a row counts as over."""
MAX_BYTES = 2**20


class KeptTroubles:
    """Reads the file at the start, writes it when a row of failures or an end is noted or over."""

    def __init__(self, path: Path, troubles: Troubles) -> None:
        self._path = path
        self._troubles = troubles
        self._written: dict[str, dict[str, float]] = {}
        self._checks = 0
        self._warned = False

    async def start(self) -> None:
        """Take what an earlier agent has left."""
        self._troubles.restore(await asyncio.to_thread(_read, self._path))
        self._written = self._troubles.begun()

    async def run(self) -> None:
        """Write changes until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.save()

    async def save(self) -> None:
        """Write the file if a row has begun or ended; one that goes on is written now and then."""
        rows, begun = self._troubles.as_json(), self._troubles.begun()
        self._checks += 1
        goes_on = bool(begun["failing"]) and self._checks % NOW_AND_THEN == 0
        if begun == self._written and not goes_on:
            return
        self._written = begun
        try:
            await asyncio.to_thread(write_private, self._path, json.dumps(rows))
        except OSError as error:
            if not self._warned:
                self._warned = True
                log.warning(
                    "after a restart the agent will have lost since when pods have been failing",
                    extra={"path": str(self._path), "why": str(error)},
                )


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
