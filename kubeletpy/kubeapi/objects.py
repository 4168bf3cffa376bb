"""Objects that pods use, by name: each followed by one watch, however many pods share it.

Asked for by name only, as the Node authorizer demands, and let go with the last pod that uses it.
There are so many watches and no more (:mod:`kubeletpy.kubeapi.watch_slots`): what is beyond is
read every POLL_S, a few at a time, until there is room for a watch. What only environments need is
followed while it is being read, and for a while after. Where watching is forbidden (a node may
only read claims and volumes), objects are read instead: soon again while a pod waits, else now and
then. Must never
log what an object holds. Source: docs/reference/constants.csv: objects;
docs/reference/api-server.md, ae.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from kubeletpy.api.types import JSON
from kubeletpy.kubeapi.errors import ApiError, Forbidden, NotFound, Unavailable
from kubeletpy.kubeapi.protocol import KubeApi, Resource, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector
from kubeletpy.kubeapi.watch_slots import WatchSlots

logger = logging.getLogger(__name__)

FIRST_ANSWER_S = 1.0
"""How long a reader waits for an object that was not read yet."""
IDLE_S = 60.0
"""After the last reading, an object that no volume is made of is followed no longer."""
POLL_S = 60.0
"""Between two readings of an object that has no watch, and up to half as long again by chance."""
POLLS_AT_ONCE = 4
"""Others ask the API too: each request of theirs waits for a few of these at most."""
FORBIDDEN_WAITS = (0.03, 0.1, 0.3)
PRESSED_WAITS = (0.25, 5.0)
"""Between two readings of an object that has no watch while a pod waits for it to change: the first
wait, doubled each time up to the last."""
WATCH_AGAIN_S = 600.0
"""How long what was forbidden to be watched is only read: somebody may allow it."""
_KEPT_FIELDS = ("data", "binaryData", "immutable", "type")


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """One object."""

    resource: Resource
    namespace: str
    name: str


@dataclass(slots=True)
class _Tracked:
    """An object that pods use."""

    key: ObjectKey
    users: dict[str, bool] = field(default_factory=dict)
    """Pod uid -> whether changes matter to it (a volume is made of the object)."""
    object: JSON | None = field(default=None, repr=False)
    known: bool = False
    """Whether ``object`` is what the API said (None: there is none)."""
    error: ApiError | None = None
    """Why it is not known."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Known, or refused for now."""
    disappointed: bool = False
    """A caller was refused the object, and waits to be notified that it can be had."""
    task: asyncio.Task[None] | None = None
    idle: asyncio.TimerHandle | None = None
    pressed: set[str] = field(default_factory=set)
    """Uids of pods that can not go on before it changes."""
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    pace: float = 0.0
    """Seconds between the last two readings while pods waited."""

    @property
    def live(self) -> bool:
        return any(self.users.values())


class WatchedObjects:
    """The objects of the pods of this node. Make it inside a running event loop."""

    def __init__(
        self,
        api: KubeApi | None,
        *,
        rng: random.Random | None = None,
        slots: WatchSlots | None = None,
        keep: Callable[[JSON], JSON] | None = None,
        read_when_forbidden: bool = False,
    ) -> None:
        """Args:
        api: None: standalone, there are no objects.
        rng: for jitter.
        slots: how many watches there may be.
        keep: the part of an object that is worth its memory; by default what files are made of.
        read_when_forbidden: read what may not be watched.
        """
        self._api = api
        self._keep = keep or _kept
        self._read_when_forbidden = read_when_forbidden
        self._unwatchable: dict[Resource, float] = {}
        self._rng = rng or random.Random()
        self._slots = slots or WatchSlots()
        self._polls = asyncio.Semaphore(POLLS_AT_ONCE)
        self._tracked: dict[ObjectKey, _Tracked] = {}
        self._keys: dict[str, dict[ObjectKey, bool]] = {}
        self._wake: Callable[[str], None] = lambda uid: None

    def on_change(self, wake: Callable[[str], None]) -> None:
        """Have ``wake(pod uid)`` called for each pod that uses an object that changed."""
        self._wake = wake

    @property
    def watches(self) -> int:
        """How many objects are being followed now, by a watch or by polling."""
        return sum(tracked.task is not None for tracked in self._tracked.values())

    def register(
        self, uid: str, live: Collection[ObjectKey], on_demand: Collection[ObjectKey] = ()
    ) -> None:
        """Say which objects a pod uses; what it used before and does not now is let go.

        Args:
            uid: of the pod.
            live: objects that it must hear changes of.
            on_demand: objects that are read now and then.
        """
        wanted = {**dict.fromkeys(on_demand, False), **dict.fromkeys(live, True)}
        before = self._keys.get(uid, {})
        if wanted == before:
            return
        for key in before.keys() - wanted.keys():
            self._let_go(uid, key)
        if wanted:
            self._keys[uid] = wanted
        else:
            self._keys.pop(uid, None)
        for key, is_live in wanted.items():
            tracked = self._tracked.setdefault(key, _Tracked(key))
            tracked.users[uid] = is_live
            self._follow(tracked)  # read at once: a container will ask for it soon
            if not tracked.live:
                self._rest_later(tracked)

    def release(self, uid: str) -> None:
        """A pod has ended."""
        self.register(uid, ())

    async def get(self, key: ObjectKey) -> JSON | None:
        """An object that a pod is registered for; None when there is none. Never change it.

        Raises:
            ApiError: it cannot be read; pods that use it are woken when it can.
        """
        tracked = self._tracked.get(key)
        if tracked is None:
            raise Unavailable(f'object "{key.namespace}"/"{key.name}" not registered')
        self._follow(tracked)
        if not tracked.live:
            self._rest_later(tracked)
        if not tracked.settled.is_set():
            try:
                async with asyncio.timeout(FIRST_ANSWER_S):
                    await tracked.settled.wait()
            except TimeoutError:
                tracked.disappointed = True
                raise Unavailable(f"{_name(key)}: no answer from the API yet") from None
        if not tracked.known:
            tracked.disappointed = True
            raise tracked.error or Unavailable(f"{_name(key)} could not be read")
        return tracked.object

    async def close(self) -> None:
        """Follow nothing any more."""
        tasks = [t.task for t in self._tracked.values() if t.task is not None]
        for tracked in list(self._tracked.values()):
            self._rest(tracked)
        self._tracked.clear()
        self._keys.clear()
        if tasks:
            await asyncio.wait(tasks)

    def _follow(self, tracked: _Tracked) -> None:
        if tracked.task is not None or (tracked.known and _immutable(tracked.object)):
            return
        if self._api is None:
            tracked.error = Unavailable(f"{_name(tracked.key)}: this node has no API")
            tracked.settled.set()
            return
        tracked.task = asyncio.get_running_loop().create_task(
            self._keep_known(self._api, tracked), name=f"watch {_name(tracked.key)}"
        )

    def press(self, uid: str, keys: Collection[ObjectKey]) -> None:
        """Say which of its objects a pod waits for: they are looked at again soon, watched or not.

        Objects that it waited for before and does not now are left to their own pace.
        """
        for key in self._keys.get(uid, {}):
            tracked = self._tracked[key]
            if key in keys:
                tracked.pressed.add(uid)
                tracked.hurry.set()
            else:
                tracked.pressed.discard(uid)

    def known(self, key: ObjectKey) -> JSON | ApiError | None:
        """An object as it was last read, at once; None: there is none. Never change it."""
        tracked = self._tracked.get(key)
        if tracked is None or not tracked.known:
            error = tracked.error if tracked is not None else None
            return error or Unavailable(f"{_name(key)} was not read yet")
        return tracked.object

    async def _keep_known(self, api: KubeApi, tracked: _Tracked) -> None:
        readable = False
        while True:
            while self._only_read(tracked.key.resource) or not self._slots.take(
                tracked.key, tracked.users
            ):
                await self._poll(api, tracked)
                await self._pause(tracked)
            if await self._watch(api, tracked):
                readable = False
            elif readable:
                self._not_watchable(tracked.key.resource)
                readable = False
                await self._pause(tracked)
                continue
            # What is no business of this node yet (an attachment that is not there) may not even
            # be read. Only what may be read and still not be watched speaks for all of its kind.
            readable = await self._poll(api, tracked)
            if not readable:
                await self._pause(tracked)

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

    async def _pause(self, tracked: _Tracked) -> None:
        """Until it is time to read an object again that has no watch."""
        loop = asyncio.get_running_loop()
        until = loop.time() + POLL_S * self._rng.uniform(1.0, 1.5)
        if tracked.pressed:
            tracked.pace = min(max(tracked.pace * 2, PRESSED_WAITS[0]), PRESSED_WAITS[1])
            until = min(until, loop.time() + tracked.pace)
        else:
            tracked.pace = 0.0
        tracked.hurry.clear()
        try:
            async with asyncio.timeout_at(until):
                await tracked.hurry.wait()
                # somebody waits: not at once, for it may ask again and again
                tracked.pace = max(tracked.pace, PRESSED_WAITS[0])
                await asyncio.sleep(tracked.pace)
        except TimeoutError:
            return

    async def _watch(self, api: KubeApi, tracked: _Tracked) -> bool:
        """Follow an object until that is forbidden, where it can be read instead.

        Returns whether that lasted: what was found out of it before counts no more.
        """
        begun, forbidden = asyncio.get_running_loop().time(), asyncio.Event()

        def failed(error: ApiError) -> None:
            if self._read_when_forbidden and isinstance(error, Forbidden):
                forbidden.set()
                return
            self._failed(tracked, error)

        reflector = Reflector(
            api,
            tracked.key.resource,
            tracked.key.namespace or None,
            on_replace=partial(self._replaced, tracked),
            on_event=partial(self._changed, tracked),
            field_selector=f"metadata.name={tracked.key.name}",
            forbidden_waits=() if self._read_when_forbidden else FORBIDDEN_WAITS,
            on_error=failed,
            foreseen=(Forbidden,) if self._read_when_forbidden else (),
            rng=self._rng,
        )
        running = asyncio.ensure_future(reflector.run())
        waiting = asyncio.ensure_future(forbidden.wait())
        try:
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            running.cancel()
            waiting.cancel()
            self._slots.give_back(tracked.key)
        return asyncio.get_running_loop().time() - begun >= POLL_S

    async def _poll(self, api: KubeApi, tracked: _Tracked) -> bool:
        """Read an object once; returns whether the API said what it is."""
        key = tracked.key
        async with self._polls:
            for wait in (*FORBIDDEN_WAITS, None):
                try:
                    found: JSON | None = await api.get(
                        key.resource, key.name, key.namespace or None
                    )
                except Forbidden as error:
                    if wait is not None and not tracked.known:
                        await asyncio.sleep(wait)
                        continue
                    self._failed(tracked, error)
                    return False
                except NotFound:
                    found = None
                except ApiError as error:
                    self._failed(tracked, error)
                    return False
                self._take(tracked, found)
                return True
        return False

    def _let_go(self, uid: str, key: ObjectKey) -> None:
        tracked = self._tracked[key]
        del tracked.users[uid]
        tracked.pressed.discard(uid)
        self._slots.pass_on(key, uid, tracked.users)
        if not tracked.users:
            self._rest(tracked)
            del self._tracked[key]
        elif not tracked.live:
            self._rest_later(tracked)

    def _rest_later(self, tracked: _Tracked) -> None:
        if tracked.idle is not None:
            tracked.idle.cancel()
        loop = asyncio.get_running_loop()
        tracked.idle = loop.call_later(IDLE_S, self._rest_if_idle, tracked)

    def _rest_if_idle(self, tracked: _Tracked) -> None:
        if not tracked.live:
            self._rest(tracked)

    def _rest(self, tracked: _Tracked) -> None:
        """Stop following; what was known is forgotten, for it may change unseen."""
        self._end(tracked)
        if tracked.idle is not None:
            tracked.idle.cancel()
            tracked.idle = None
        tracked.object, tracked.known = None, False
        tracked.settled.clear()

    def _end(self, tracked: _Tracked) -> None:
        self._slots.give_back(tracked.key)
        if tracked.task is not None:
            tracked.task.cancel()
            tracked.task = None

    def _replaced(self, tracked: _Tracked, items: list[JSON]) -> None:
        # an API that ignores the selector must not have us take another object for this one
        named = [item for item in items if item["metadata"].get("name") == tracked.key.name]
        self._take(tracked, named[0] if named else None)

    def _changed(self, tracked: _Tracked, event: WatchEvent) -> None:
        if event.object["metadata"].get("name") == tracked.key.name:
            self._take(tracked, None if event.type == "DELETED" else event.object)

    def _take(self, tracked: _Tracked, found: JSON | None) -> None:
        changed = tracked.known and _version(found) != _version(tracked.object)
        if changed or not tracked.known:
            tracked.object = None if found is None else self._keep(found)
        wake = changed or tracked.disappointed
        tracked.known, tracked.error, tracked.disappointed = True, None, False
        tracked.settled.set()
        if changed:
            tracked.pace = 0.0
        if _immutable(found):
            self._end(tracked)
        if wake:
            for uid in list(tracked.users):
                self._wake(uid)

    def _failed(self, tracked: _Tracked, error: ApiError) -> None:
        if not tracked.known:
            tracked.error = error
            tracked.settled.set()


def _kept(found: JSON) -> JSON:
    """The part of an object that is worth its memory."""
    metadata = found["metadata"]
    kept: JSON = {name: found[name] for name in _KEPT_FIELDS if name in found}
    kept["metadata"] = {
        name: metadata[name] for name in ("name", "uid", "resourceVersion") if name in metadata
    }
    return kept


def _version(found: JSON | None) -> tuple[str, str] | None:
    if found is None:
        return None
    metadata = found["metadata"]
    return str(metadata.get("uid")), str(metadata.get("resourceVersion"))


def _immutable(found: JSON | None) -> bool:
    return found is not None and found.get("immutable") is True


def _name(key: ObjectKey) -> str:
    name = f"{key.namespace}/{key.name}" if key.namespace else key.name
    return f'{key.resource.kind.lower()} "{name}"'
