"""Holds the inputs back while the runtime can't be used (docs/reference/behaviour.md, a3).

Keeps only the newest full set of each source and the uids of changed pods, however long the outage
lasts. Workers go on by themselves: what is ending ends, as far as the runtime lets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.syncloop.merge import Merge, object_uid

log = logging.getLogger(__name__)

FIRST_WAIT = 0.1
LAST_WAIT = 5.0
"""Seconds between two checks of the error, doubled; :meth:`Pause.recheck` cuts a wait short."""
QUIET = 1.0
"""Seconds of waiting that are not reported: each start waits for the runtime's first status."""

Resume = Callable[[dict[str, Sequence[api.Pod]], Iterable[str]], None]


class Pause:
    """While ``error`` gives a reason, inputs are held; afterwards ``resume`` gets them."""

    def __init__(self, merge: Merge, error: Callable[[], str], resume: Resume) -> None:
        self._merge = merge
        self._error = error
        self._resume = resume
        self._sets: dict[str, dict[str, api.Pod]] = {}
        self._changed: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._recheck = asyncio.Event()

    def hold_set(self, source: str, objects: Sequence[api.Pod]) -> bool:
        """Keep a full set if inputs are held; returns whether they are."""
        if not self._holding():
            return False
        self._sets[source] = {
            object_uid(obj) or f"malformed {index}": obj for index, obj in enumerate(objects)
        }
        return True

    def hold_event(self, source: str, event_type: str, obj: api.Pod) -> bool:
        """Keep one change if inputs are held; returns whether they are."""
        if not self._holding():
            return False
        if source not in self._sets:
            self._sets[source] = dict(self._merge.delivered(source))
        key = object_uid(obj) or "malformed 0"
        if event_type == "DELETED":
            self._sets[source].pop(key, None)
        else:
            self._sets[source][key] = obj
        return True

    def hold_change(self, uid: str) -> bool:
        """Queue a pod for later if inputs are held; returns whether they are."""
        if not self._holding():
            return False
        self._changed[uid] = None
        return True

    def recheck(self) -> None:
        """Check the error now: it may have changed."""
        self._recheck.set()

    async def close(self) -> None:
        """Stop waiting for the runtime."""
        await cancel_tasks((self._task,))

    def _holding(self) -> bool:
        if self._task is not None:
            return True
        if not self._error():
            return False
        self._task = asyncio.get_running_loop().create_task(self._wait())
        return True

    async def _wait(self) -> None:
        now = asyncio.get_running_loop().time
        delay, begun, reported = FIRST_WAIT, now(), False
        while error := self._error():
            if now() - begun >= QUIET and not reported:
                log.warning("syncing pods is paused", extra={"error": error})
                reported = True
            self._recheck.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._recheck.wait()
            delay = min(delay * 2, LAST_WAIT)
        if reported:
            log.info("syncing pods resumed")
        sets, changed = self._sets, self._changed
        self._sets, self._changed, self._task = {}, {}, None
        self._resume({source: list(objects.values()) for source, objects in sets.items()}, changed)
