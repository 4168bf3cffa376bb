"""Follows objects by name: with a watch where one is available, else by polling.

The number of watches is limited (:mod:`kubeletpy.kubeapi.watch_slots`). The limit depends on the
protocol among other things, so it may fall while they last. All other objects are read every
POLL_S, a few at a time, until a watch is free. Where watching is forbidden (a node may only read
claims and volumes), objects are polled instead: frequently while a pod waits, else now and then.
Must never log what an object holds.

Source: docs/reference/constants.csv: objects; docs/reference/api-server.md, ae.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress

from kubeletpy.base.api.types import JSON
from kubeletpy.base.tasks import background, until_one_ends
from kubeletpy.kubeapi.errors import ApiError, Forbidden, Unavailable
from kubeletpy.kubeapi.object_reader import FORBIDDEN_WAITS, ObjectReader
from kubeletpy.kubeapi.protocol import KubeApi, Resource, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector
from kubeletpy.kubeapi.tracked_object import Tracked
from kubeletpy.kubeapi.watch_slots import WatchSlots

logger = logging.getLogger(__name__)

POLL_S = 60.0
"""Between two reads of an object without a watch, plus up to half as long again as jitter."""
PRESSED_WAITS = (0.25, 5.0)
"""Between two reads of an object without a watch while a pod waits for it to change: the first
delay, doubled each time up to the last."""
WATCH_AGAIN_S = 600.0
"""How long objects are polled after watching was forbidden: it may be allowed later."""
SHORTEST_WATCH_S = 1800
"""How long a watch lasts, at least: there are many, and each new one is a request."""
LONGEST_WATCH_S = 3600


class _NoRoom(ApiError):
    """The API carries fewer watches than there are, since it speaks another protocol."""


class ObjectFollower:
    """Keeps objects up to date, each in its own task (:meth:`follow`)."""

    def __init__(
        self,
        api: KubeApi,
        replaced: Callable[[Tracked, list[JSON]], None],
        changed: Callable[[Tracked, WatchEvent], None],
        failed: Callable[[Tracked, ApiError], None],
        *,
        rng: random.Random,
        slots: WatchSlots,
        read_when_forbidden: bool,
    ) -> None:
        """Args:
        replaced: called with the object that the API returned, or with none.
        changed: called with what a watch shows of it later.
        failed: called when the API could not be reached, or refused.
        rng: for jitter.
        slots: limits the number of watches.
        read_when_forbidden: poll objects that may not be watched.
        """
        self._api = api
        self._replaced = replaced
        self._changed = changed
        self._failed = failed
        self._rng = rng
        self._slots = slots
        self._read_when_forbidden = read_when_forbidden
        self._unwatchable: dict[Resource, float] = {}
        self._said_full = False
        self._reader = ObjectReader(api)

    async def follow(self, tracked: Tracked) -> None:
        """Keep one object up to date until cancelled."""
        readable = False
        while True:
            while self._only_read(tracked.key.resource) or not self._has_slot(tracked):
                await self._poll(tracked)
                await self._pause(tracked)
            if tracked.outdated:  # if it is immutable, one read is all
                await self._poll(tracked)
            if await self._watch(tracked):
                readable = False
            elif readable:
                self._not_watchable(tracked.key.resource)
                readable = False
                await self._pause(tracked)
                continue
            # This node may not even read an object that it has no relation to yet (a missing
            # attachment). Only a readable but unwatchable object proves that its whole kind is so.
            readable = await self._poll(tracked)
            if not readable:
                await self._pause(tracked)

    def _has_slot(self, tracked: Tracked) -> bool:
        most = self._api.watch_capacity
        if self._slots.acquire(tracked.key, tracked.users, most):
            return True
        if len(self._slots) >= most and not self._said_full:
            self._said_full = True
            logger.warning(
                "pods use more objects than can be watched: changes of the rest are seen when they "
                "are read again",
                extra={"watches": most, "seconds": POLL_S},
            )
        return False

    def _only_read(self, resource: Resource) -> bool:
        until = self._unwatchable.get(resource)
        return until is not None and asyncio.get_running_loop().time() < until

    def _not_watchable(self, resource: Resource) -> None:
        if resource not in self._unwatchable:
            logger.info(
                "this node may not watch these objects: changes are seen when they are read again",
                extra={"resource": resource.plural, "seconds": POLL_S},
            )
        self._unwatchable[resource] = asyncio.get_running_loop().time() + WATCH_AGAIN_S

    async def _pause(self, tracked: Tracked) -> None:
        """Wait until it is time to read an object without a watch again."""
        loop = asyncio.get_running_loop()
        until = loop.time() + POLL_S * self._rng.uniform(1.0, 1.5)
        if tracked.pressed:
            tracked.pace = min(max(tracked.pace * 2, PRESSED_WAITS[0]), PRESSED_WAITS[1])
            until = min(until, loop.time() + tracked.pace)
        else:
            tracked.pace = 0.0
        tracked.hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await tracked.hurry.wait()
                # a pod waits: not at once, though, because it may request it again and again
                tracked.pace = max(tracked.pace, PRESSED_WAITS[0])
                await asyncio.sleep(tracked.pace)

    async def _watch(self, tracked: Tracked) -> bool:
        """Follow an object with a watch until it must be polled: no room, or no permission.

        Returns whether earlier findings about the object are outdated: the watch lasted.
        """
        begun, over = asyncio.get_running_loop().time(), asyncio.Event()
        crowded_out, following = False, tracked.task

        def replaced(items: list[JSON]) -> None:
            if tracked.task is following:  # else the last event of a watch that was ended
                self._replaced(tracked, items)

        def changed(event: WatchEvent) -> None:
            if tracked.task is following:
                self._changed(tracked, event)

        def admit() -> None:
            most = self._api.watch_capacity
            if len(self._slots) > most:
                raise _NoRoom(f"no more than {most} watches")

        def failed(error: ApiError) -> None:
            nonlocal crowded_out
            if isinstance(error, _NoRoom):
                # at once, so that only as many as needed make room
                self._slots.give_back(tracked.key)
                crowded_out = True
                over.set()
            elif self._read_when_forbidden and isinstance(error, Forbidden):
                over.set()
            elif tracked.task is following:
                self._failed(tracked, error)

        reflector = Reflector(
            self._api,
            tracked.key.resource,
            tracked.key.namespace or None,
            on_replace=replaced,
            on_event=changed,
            field_selector=f"metadata.name={tracked.key.name}",
            forbidden_waits=() if self._read_when_forbidden else FORBIDDEN_WAITS,
            on_error=failed,
            # there are hundreds: the watch of the pods reports that the API is unreachable
            foreseen=(_NoRoom, Unavailable, *((Forbidden,) if self._read_when_forbidden else ())),
            before_watch=admit,
            watch_seconds=(SHORTEST_WATCH_S, LONGEST_WATCH_S),
            rng=self._rng,
        )
        try:
            async with background(reflector.run()) as running, background(over.wait()) as waiting:
                await until_one_ends(running, waiting)
        finally:
            self._slots.give_back(tracked.key)
        return crowded_out or asyncio.get_running_loop().time() - begun >= POLL_S

    async def _poll(self, tracked: Tracked) -> bool:
        """Read an object once; returns whether the API answered."""
        try:
            found = await self._reader.read_object(tracked.key, first=not tracked.known)
        except ApiError as error:
            self._failed(tracked, error)
            return False
        self._replaced(tracked, [] if found is None else [found])
        return True
