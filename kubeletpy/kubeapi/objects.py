"""Objects that pods use, followed by name with a watch or by polling, once for all pods.

Objects are requested by name only, as the Node authorizer demands, and dropped with the last pod
that uses them. An object that only environments need is followed while it is being read, and for a
while after. Immutable objects have no watch, nor have those beyond the limit. They are read again
for each pod that is new to them, because the name may be another object's by then. Must never log
what an object holds.

Source: docs/reference/constants.csv: objects; docs/reference/api-server.md, ae.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from contextlib import suppress

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component, field
from kubeletpy.base.tasks import background, cancel_tasks, until_one_ends, wait_within
from kubeletpy.kubeapi import tracked_object
from kubeletpy.kubeapi.errors import ApiError, Forbidden, NoAnswerYet, Unavailable
from kubeletpy.kubeapi.protocol import KubeApi, Resource, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector
from kubeletpy.kubeapi.watch_state import WatchSlots

# Following. The number of watches is limited (:mod:`kubeletpy.kubeapi.watch_state`). The limit
# depends on the protocol among other things, so it may fall while they last. All other objects are
# read every POLL_S, a few at a time, until a watch is free. Where watching is forbidden (a node may
# only read claims and volumes), objects are polled instead: frequently while a pod waits, else now
# and then.

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


class ObjectFollower(Component):
    """Keeps objects up to date, each in its own task (:meth:`follow`)."""

    api: KubeApi
    replaced: Callable[[tracked_object.Tracked, list[JSON]], None]
    """Called with the object that the API returned, or with none."""
    changed: Callable[[tracked_object.Tracked, WatchEvent], None]
    """Called with what a watch shows of it later."""
    failed: Callable[[tracked_object.Tracked, ApiError], None]
    """Called when the API could not be reached, or refused."""
    rng: random.Random
    slots: WatchSlots
    read_when_forbidden: bool
    """Poll objects that may not be watched."""

    def __post_init__(self) -> None:
        self._unwatchable: dict[Resource, float] = {}
        self._stated_full = False
        self._reader = tracked_object.ObjectReader(self.api)

    async def follow(self, tracked: tracked_object.Tracked) -> None:
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

    def _has_slot(self, tracked: tracked_object.Tracked) -> bool:
        most = self.api.watch_capacity
        if self.slots.acquire(tracked.key, tracked.users, most):
            return True
        if len(self.slots) >= most and not self._stated_full:
            self._stated_full = True
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

    async def _pause(self, tracked: tracked_object.Tracked) -> None:
        """Wait until it is time to read an object without a watch again."""
        loop = asyncio.get_running_loop()
        until = loop.time() + POLL_S * self.rng.uniform(1.0, 1.5)
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

    async def _watch(self, tracked: tracked_object.Tracked) -> bool:
        """Follow an object with a watch until it must be polled: no room, or no permission.

        Returns whether earlier findings about the object are outdated: the watch lasted.
        """
        begun, over = asyncio.get_running_loop().time(), asyncio.Event()
        crowded_out, following = False, tracked.task

        def replaced(items: list[JSON]) -> None:
            if tracked.task is following:  # else the last event of a watch that was ended
                self.replaced(tracked, items)

        def changed(event: WatchEvent) -> None:
            if tracked.task is following:
                self.changed(tracked, event)

        def admit() -> None:
            most = self.api.watch_capacity
            if len(self.slots) > most:
                raise _NoRoom(f"no more than {most} watches")

        def failed(error: ApiError) -> None:
            nonlocal crowded_out
            if isinstance(error, _NoRoom):
                # at once, so that only as many as needed make room
                self.slots.give_back(tracked.key)
                crowded_out = True
                over.set()
            elif self.read_when_forbidden and isinstance(error, Forbidden):
                over.set()
            elif tracked.task is following:
                self.failed(tracked, error)

        reflector = Reflector(
            self.api,
            tracked.key.resource,
            namespace=tracked.key.namespace or None,
            on_replace=replaced,
            on_event=changed,
            field_selector=f"metadata.name={tracked.key.name}",
            forbidden_waits=() if self.read_when_forbidden else tracked_object.FORBIDDEN_WAITS,
            on_error=failed,
            # there are hundreds: the watch of the pods reports that the API is unreachable
            foreseen=(_NoRoom, Unavailable, *((Forbidden,) if self.read_when_forbidden else ())),
            before_watch=admit,
            watch_seconds=(SHORTEST_WATCH_S, LONGEST_WATCH_S),
            rng=self.rng,
        )
        try:
            async with background(reflector.run()) as running, background(over.wait()) as waiting:
                await until_one_ends(running, waiting)
        finally:
            self.slots.give_back(tracked.key)
        return crowded_out or asyncio.get_running_loop().time() - begun >= POLL_S

    async def _poll(self, tracked: tracked_object.Tracked) -> bool:
        """Read an object once; returns whether the API answered."""
        try:
            found = await self._reader.read_object(tracked.key, first=not tracked.known)
        except ApiError as error:
            self.failed(tracked, error)
            return False
        self.replaced(tracked, [] if found is None else [found])
        return True


FIRST_ANSWER_S = 1.0
"""How long a reader waits for an object that has not been read yet."""
IDLE_S = 60.0
"""After its last read, how long an object that is in no volume is still followed."""


class WatchedObjects(Component):
    """:class:`~kubeletpy.kubeapi.tracked_object.PodObjects` with watches. Create it inside a
    running event loop."""

    api: KubeApi | None
    """None: standalone, there are no objects."""
    rng: random.Random = field(default_factory=random.Random)
    slots: WatchSlots = field(default_factory=WatchSlots)
    keep: Callable[[JSON], JSON] = tracked_object.worth_keeping
    """Returns the part of an object to keep in memory; by default what files are made of."""
    read_when_forbidden: bool = False
    """Poll objects that may not be watched."""

    def __post_init__(self) -> None:
        self._follower = (
            None
            if self.api is None
            else ObjectFollower(
                self.api,
                self._replaced,
                self._changed,
                self._failed,
                rng=self.rng,
                slots=self.slots,
                read_when_forbidden=self.read_when_forbidden,
            )
        )
        self._tracked: dict[tracked_object.ObjectKey, tracked_object.Tracked] = {}
        self._keys: dict[str, dict[tracked_object.ObjectKey, bool]] = {}
        self._wake: Callable[[str], None] = lambda uid: None

    def on_change(self, wake: Callable[[str], None]) -> None:
        self._wake = wake

    @property
    def watches(self) -> int:
        """How many objects are currently followed, by a watch or by polling."""
        return sum(tracked.task is not None for tracked in self._tracked.values())

    def unread(self, uid: str) -> Collection[tracked_object.ObjectKey]:
        return [key for key in self._keys.get(uid, {}) if not self._tracked[key].usable]

    def register(
        self,
        uid: str,
        live: Collection[tracked_object.ObjectKey],
        on_demand: Collection[tracked_object.ObjectKey] = (),
    ) -> None:
        desired = {**dict.fromkeys(on_demand, False), **dict.fromkeys(live, True)}
        before = self._keys.get(uid, {})
        if desired == before:
            return
        for key in [key for key in before if key not in desired]:
            self._let_go(uid, key)
        if desired:
            self._keys[uid] = desired
        else:
            self._keys.pop(uid, None)
        for key, is_live in desired.items():
            tracked = self._tracked.setdefault(key, tracked_object.Tracked(key))
            tracked.users[uid] = is_live
            if key not in before:
                self._outdate(tracked)
            self._follow(tracked)  # read at once: a container will need it soon
            if not tracked.live:
                self._rest_later(tracked)

    def release(self, uid: str) -> None:
        self.register(uid, ())

    async def get(self, key: tracked_object.ObjectKey) -> JSON | None:
        tracked = self._tracked.get(key)
        if tracked is None:
            raise Unavailable(f'object "{key.namespace}"/"{key.name}" not registered')
        self._follow(tracked)
        if not tracked.live:
            self._rest_later(tracked)
        if not await wait_within(tracked.settled, FIRST_ANSWER_S):
            tracked.disappointed = True
            raise NoAnswerYet(f"{tracked_object.reported(key)}: no answer from the API yet")
        if not tracked.usable:
            tracked.disappointed = True
            raise tracked.error or Unavailable(f"{tracked_object.reported(key)} could not be read")
        return tracked.object

    async def close(self) -> None:
        """Stop following all objects and forget them."""
        tasks = [t.task for t in self._tracked.values()]
        for tracked in list(self._tracked.values()):
            self._rest(tracked)
        self._tracked.clear()
        self._keys.clear()
        await cancel_tasks(tasks)

    def _outdate(self, tracked: tracked_object.Tracked) -> None:
        """Have an object without a watch read for a pod that is new to it."""
        if tracked.known and (tracked.outdated or tracked.key not in self.slots):
            self._end(tracked)  # a read under way may have begun before the pod existed
            tracked.outdated = True
            tracked.settled.clear()

    def _follow(self, tracked: tracked_object.Tracked) -> None:
        if tracked.task is not None or (
            tracked.usable and tracked_object.is_immutable(tracked.object)
        ):
            return
        if self._follower is None:
            tracked.error = Unavailable(
                f"{tracked_object.reported(tracked.key)}: this node has no API"
            )
            tracked.settled.set()
            return
        tracked.task = asyncio.get_running_loop().create_task(
            self._follower.follow(tracked), name=f"watch {tracked_object.reported(tracked.key)}"
        )

    def press(self, uid: str, keys: Collection[tracked_object.ObjectKey]) -> None:
        """Set which of its objects a pod waits for: they are read again soon, watched or not.

        Objects that it no longer waits for return to their normal pace.
        """
        for key in self._keys.get(uid, {}):
            tracked = self._tracked[key]
            if key in keys:
                tracked.pressed.add(uid)
                tracked.hurry.set()
            else:
                tracked.pressed.discard(uid)

    def cached(self, key: tracked_object.ObjectKey) -> JSON | ApiError | None:
        """An object as last read, without waiting; None: it does not exist. Never change it."""
        tracked = self._tracked.get(key)
        if tracked is None or not tracked.known:
            error = tracked.error if tracked is not None else None
            return error or Unavailable(f"{tracked_object.reported(key)} was not read yet")
        return tracked.object

    def _let_go(self, uid: str, key: tracked_object.ObjectKey) -> None:
        tracked = self._tracked[key]
        del tracked.users[uid]
        tracked.pressed.discard(uid)
        self.slots.pass_on(key, uid, tracked.users)
        if not tracked.users:
            self._rest(tracked)
            del self._tracked[key]
        elif not tracked.live:
            self._rest_later(tracked)

    def _rest_later(self, tracked: tracked_object.Tracked) -> None:
        if tracked.idle is not None:
            tracked.idle.cancel()
        loop = asyncio.get_running_loop()
        tracked.idle = loop.call_later(IDLE_S, self._rest_if_idle, tracked)

    def _rest_if_idle(self, tracked: tracked_object.Tracked) -> None:
        if not tracked.live:
            self._rest(tracked)

    def _rest(self, tracked: tracked_object.Tracked) -> None:
        """Stop following; drop what was known, because it may change unseen."""
        self._end(tracked)
        if tracked.idle is not None:
            tracked.idle.cancel()
            tracked.idle = None
        tracked.object, tracked.known, tracked.outdated = None, False, False
        tracked.settled.clear()

    def _end(self, tracked: tracked_object.Tracked) -> None:
        self.slots.give_back(tracked.key)
        if tracked.task is not None:
            tracked.task.cancel()
            tracked.task = None

    def _replaced(self, tracked: tracked_object.Tracked, items: list[JSON]) -> None:
        # an API that ignores the selector must not make us mistake another object for this one
        named = [item for item in items if tracked_object.is_that_object(tracked.key, item)]
        self._store(tracked, named[0] if named else None)

    def _changed(self, tracked: tracked_object.Tracked, event: WatchEvent) -> None:
        if tracked_object.is_that_object(tracked.key, event.object):
            self._store(tracked, None if event.type == "DELETED" else event.object)

    def _store(self, tracked: tracked_object.Tracked, found: JSON | None) -> None:
        changed = tracked.known and tracked_object.version(found) != tracked_object.version(
            tracked.object
        )
        if changed or not tracked.known:
            tracked.object = None if found is None else self.keep(found)
        wake = changed or tracked.disappointed
        tracked.known, tracked.outdated = True, False
        tracked.error, tracked.disappointed = None, False
        tracked.settled.set()
        if changed:
            tracked.pace = 0.0
        if tracked_object.is_immutable(found):
            self._end(tracked)
        if wake:
            for uid in list(tracked.users):
                self._wake(uid)

    def _failed(self, tracked: tracked_object.Tracked, error: ApiError) -> None:
        if not tracked.usable:
            tracked.error = error
            tracked.settled.set()
