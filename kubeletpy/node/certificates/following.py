"""Notices when files of credentials have changed, whoever changed them.

inotify reports that something happened nearby, the files' stamps show whether it matters, and a
periodic check makes certain. Must never read their contents.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from kubeletpy.base.host.files import Stamp, stamp
from kubeletpy.base.host.inotify import DirectoryWatch
from kubeletpy.kubeapi.kubeconfig import KubeconfigError

log = logging.getLogger(__name__)

LOOK_S = 60.0
SETTLE_S = 0.2
"""A program that writes a certificate and then its key has this long between the two."""

Stamps = dict[Path, Stamp | None]


class FileFollower:
    """Follows a few files.

    Args:
        paths: the files; called again after each change, as one file may name the others.
        changed: called after a change; if it raises KubeconfigError, it is called again later.
    """

    def __init__(
        self, paths: Callable[[], Iterable[Path]], changed: Callable[[], Awaitable[None]]
    ) -> None:
        self._paths = paths
        self._changed = changed
        self._followed: list[Path] = []
        self._watches: dict[Path, DirectoryWatch] = {}
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            await self._follow()
        finally:
            for watch in self._watches.values():
                watch.close()

    async def _follow(self) -> None:
        seen: Stamps | None = await asyncio.to_thread(self._reload_changed)
        while True:
            self._watch_directories()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._woken.wait()
                    await asyncio.sleep(SETTLE_S)
            self._woken.clear()
            found = await asyncio.to_thread(self._reload_changed)
            if found == seen:
                continue
            try:
                await self._changed()
                seen = found
            except KubeconfigError as error:
                seen = None
                log.warning(
                    "changed credentials can't be used; the old ones stay in use",
                    extra={"why": str(error)},
                )

    def _reload_changed(self) -> Stamps:
        self._followed = list(self._paths())
        return {path: stamp(path) for path in self._followed}

    def _watch_directories(self) -> None:
        wanted = {path.parent for path in self._followed}
        for directory in wanted:
            watch = self._watches.setdefault(directory, DirectoryWatch(directory, self._woken.set))
            watch.start()
        for directory in self._watches.keys() - wanted:
            self._watches.pop(directory).close()
