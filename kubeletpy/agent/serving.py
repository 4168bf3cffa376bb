"""Begins to answer HTTP requests: a late task, which begins when the node is Ready.

The ports are bound before, and clients wait in the kernel's queue. Importing the handlers takes a
quarter of the time of all imports, and none of them makes a node Ready. They are loaded soon
anyway, not on the first request: by then it may be impossible to open files. Must never decide what
is served.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

RETRY_S = 1.0

log = logging.getLogger(__name__)


class Served(Protocol):
    """One of the servers."""

    @property
    def code(self) -> Sequence[str]:
        """The modules that it needs to serve."""
        ...

    async def serve(self) -> None:
        """Begin to answer."""
        ...


class Serving:
    """Has the servers answer, in order."""

    def __init__(self, servers: Sequence[Served]) -> None:
        self._servers = servers

    async def run(self) -> None:
        """Load, and begin; what serves then needs no task of its own."""
        await self._load()
        for server in self._servers:
            await server.serve()

    async def _load(self) -> None:
        names = dict.fromkeys(name for server in self._servers for name in server.code)
        said = ""
        while True:
            try:
                # in a thread, which the event loop takes the interpreter from when it has work
                await asyncio.to_thread(_import, names)
            except (OSError, ImportError) as error:
                # no descriptor, no memory: an import that failed is tried anew as a whole
                if str(error) != said:
                    log.error(
                        "HTTP handlers could not be imported; retrying",
                        extra={"why": str(error)},
                    )
                said = str(error)
                await asyncio.sleep(RETRY_S)
            else:
                return


def _import(names: Iterable[str]) -> None:
    for name in names:
        importlib.import_module(name)
