"""Keeps a receiver informed about one API collection: list once, then watch forever.

The list comes over the watch itself where the server does so (:mod:`.watch_state`), else as pages.
A watch that ends is resumed after the last change or bookmark that it has brought. The collection
of services, and the choice of a kind's version, are here, too.

Works against any KubeApi and on virtual time. A reflector keeps no objects itself. No malformed
object, failed request or failing callback ends it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component, field
from kubeletpy.base.tasks import wait_within
from kubeletpy.kubeapi import watch_state
from kubeletpy.kubeapi.errors import ApiError, Forbidden, NotFound, Removed, Unavailable
from kubeletpy.kubeapi.protocol import SERVICES, KubeApi, Resource, WatchEvent
from kubeletpy.kubeapi.transport import jittered_waits, spread
from kubeletpy.kubeapi.watch_state import SILENCE_S, FailingWatch, InitialEvents, Unstreamed

logger = logging.getLogger(__name__)

PAGE_SIZE = 500
FIRST_WAIT = 0.8
LONGEST_WAIT = 30.0
HURRIED_WITHIN = 3.0
"""Seconds within which a reflector retries an API that has just answered another request of ours:
all nodes have met the same outage."""
WATCH_SECONDS = (300, 600)
"""How long a watch lasts, drawn for each."""
SHORT_WATCH = 1.0
"""A watch that ends earlier than this without any event counts as a failure."""


class Reflector(Component):
    """Lists and watches one resource (and selector).

    Attributes:
        synced: set once the first list was delivered.
        last_error: why the API cannot be followed right now; None while it can.
    """

    api: KubeApi
    resource: Resource
    on_replace: Callable[[list[JSON]], None]
    """Receives all objects after each list."""
    on_event: Callable[[WatchEvent], None]
    """Receives each later ADDED, MODIFIED and DELETED event, in order."""
    namespace: str | None = None
    field_selector: str = ""
    forbidden_waits: Sequence[float] = ()
    """Seconds before each retry while the first list is refused: the authorizer may learn of a new
    relation some milliseconds after we do."""
    on_error: Callable[[ApiError], None] | None = None
    """Called each time the API cannot be followed."""
    foreseen: tuple[type[ApiError], ...] = ()
    """Errors that the user of this reflector expects and reports."""
    watch_seconds: tuple[int, int] = WATCH_SECONDS
    """The shortest and the longest that a watch lasts."""
    before_watch: Callable[[], None] = lambda: None
    """Called before each watch; may refuse it with an ApiError."""
    rng: random.Random = field(default_factory=random.Random)
    """For jitter."""

    def __post_init__(self) -> None:
        self._forbidden_waits = iter(self.forbidden_waits)
        self._version = ""
        self._waits = self._new_waits()
        self._waiting: asyncio.Future[None] | None = None
        self.synced = asyncio.Event()
        self.last_error: ApiError | None = None

    @property
    def healthy(self) -> bool:
        """Whether the API is being followed: listed once, and the last request succeeded."""
        return self.synced.is_set() and self.last_error is None

    def hurry(self) -> None:
        """Cuts the backoff short: another request has got an answer from the API.

        A wait that an answer requested is kept.
        """
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def first_answer(self, seconds: float) -> None:
        """Wait until the collection was listed once.

        Raises:
            ApiError: it was not; what the last try met, or that there is no answer yet.
        """
        if self.synced.is_set():
            return
        await wait_within(self.synced, seconds)
        if not self.synced.is_set():
            text = f"{self.resource.plural}: no answer from the API yet"
            raise self.last_error or Unavailable(text)

    async def run(self) -> None:
        """Follow the collection until canceled."""
        try:
            await self._follow()
        finally:
            self.api.failing_watches.ended(self)

    async def _follow(self) -> None:
        while True:
            try:
                await self._list_and_watch()
            except Removed as error:
                had_version, self._version = self._version, ""
                self._failed(error)
                if not had_version:
                    await self._wait(error)
            except Forbidden as error:
                early = None if self.synced.is_set() else next(self._forbidden_waits, None)
                if early is not None:
                    await asyncio.sleep(early)
                    continue
                self._failed(error)
                await self._wait(error)
            except ApiError as error:
                self._failed(error)
                await self._wait(error)

    async def _list_and_watch(self) -> None:
        if not self._version:
            lists, loop = self.api.streamed_lists, asyncio.get_running_loop()
            if lists.expected(loop.time()):
                try:
                    await self._watch(InitialEvents())
                    return
                except ApiError as error:
                    if self._version or not watch_state.list_instead(error):
                        raise
                    if lists.refused(error, loop.time()):
                        extra = {"resource": self.resource.plural, "error": error.message}
                        logger.info("the API server does not stream lists: listing", extra=extra)
            await self._list()
        await self._watch()

    async def _list(self) -> None:
        items: list[JSON] = []
        limit, continue_ = PAGE_SIZE, ""
        while True:
            try:
                page = await self.api.list(
                    self.resource,
                    self.namespace,
                    limit=limit,
                    continue_=continue_,
                    field_selector=self.field_selector,
                )
            except Removed:
                if not continue_:
                    raise
                # The pages took too long: their snapshot has expired. List all in one request.
                items, limit, continue_ = [], 0, ""
                continue
            found, metadata = page.get("items"), page.get("metadata")
            if not isinstance(metadata, dict) or not isinstance(found, list | None):
                raise Unavailable(f"list of {self.resource.plural}: the answer is not a list")
            items += (item for item in found or () if self._sound(item))
            continue_ = metadata.get("continue") or ""
            if not continue_:
                break
        self._listed(items, str(metadata.get("resourceVersion") or "0"))

    def _listed(self, objects: list[JSON], version: str) -> None:
        self._version = version
        # Items of a list do not carry their kind; those of a watch do.
        stamp = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        self._call_back(self.on_replace, [{**stamp, **each} for each in objects])
        self._worked()
        self.synced.set()

    async def _watch(self, initial: InitialEvents | None = None) -> None:
        """Watch from where we are; ``initial`` takes the objects that exist until all are there."""
        self.before_watch()
        loop = asyncio.get_running_loop()
        started, heard, accepted = loop.time(), False, False
        events = self.api.watch(
            self.resource,
            self.namespace,
            resource_version=self._version,
            timeout_seconds=self.rng.randint(*self.watch_seconds),
            send_initial_events=initial is not None,
            field_selector=self.field_selector,
        )
        try:
            async with asyncio.timeout(None if initial is None else SILENCE_S) as silence:
                async with aclosing(cast("Any", events)) as stream:
                    async for event in stream:
                        heard = heard or event.type != "BOOKMARK"
                        if initial is None:
                            # to decode a large object and to take it are a turn of the loop each
                            await asyncio.sleep(0)
                            self._handle_event(event)
                            continue
                        accepted = True
                        if self._initial(initial, event):
                            self._listed(initial.objects, initial.version)
                            initial, heard = None, True
                        silence.reschedule(None if initial is None else loop.time() + SILENCE_S)
        except TimeoutError:
            what = f"watch of {self.resource.plural}: nothing for {SILENCE_S:.0f} s"
            if accepted:
                raise Unstreamed(f"{what}, and no end of the list that it begins with") from None
            raise Unavailable(what) from None
        finally:
            # it refers to the task, which if cancelled keeps this frame: a cycle per ended watch
            del silence
        if initial is not None:
            raise Unavailable(f"watch of {self.resource.plural}: ended before its list was whole")
        if not heard and loop.time() - started < SHORT_WATCH:
            raise Unavailable(f"watch of {self.resource.plural}: ended at once")
        self._worked()

    def _initial(self, initial: InitialEvents, event: WatchEvent) -> bool:
        if event.type != "BOOKMARK" and not self._sound(event.object):
            return False
        return initial.add_event(event.type, event.object)

    def _handle_event(self, event: WatchEvent) -> None:
        self._worked()
        metadata = event.object.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        if event.type != "BOOKMARK" and self._sound(event.object):
            self._call_back(self.on_event, event)
        if isinstance(version, str) and version:
            self._version = version

    def _sound(self, item: object) -> bool:
        """Whether an object can be distinguished from others; the receiver checks the rest."""
        metadata = item.get("metadata") if isinstance(item, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if isinstance(name, str) and name:
            return True
        logger.warning("malformed object ignored", extra={"resource": self.resource.plural})
        return False

    def _call_back(self, callback: Callable[[Any], None], argument: Any) -> None:
        try:
            callback(argument)
        except (
            Exception
        ):  # one object that breaks its receiver must not end the watch of all others
            logger.exception("object not handled", extra={"resource": self.resource.plural})

    def _failed(self, error: ApiError) -> None:
        expected = isinstance(error, (Removed, *self.foreseen))
        level = logging.DEBUG if expected or self.last_error is not None else logging.WARNING
        extra = {"resource": self.resource.plural, "error": error.message, "code": error.code}
        logger.log(level, "cannot follow the API, trying again", extra=extra)
        self.last_error = error
        now = asyncio.get_running_loop().time()
        name = self.field_selector.partition("metadata.name=")[2]
        self.api.failing_watches.failed(
            self, FailingWatch(self.resource.plural, self.namespace or "", name, error.message, now)
        )
        if self.on_error is not None:
            self.on_error(error)

    def _worked(self) -> None:
        if self.last_error is not None:
            self.last_error = None
            self.api.failing_watches.accepted(self, asyncio.get_running_loop().time())
            self._waits = self._new_waits()
            logger.debug("following the API", extra={"resource": self.resource.plural})

    async def _wait(self, error: ApiError) -> None:
        requested = min(error.retry_after or 0.0, LONGEST_WAIT)
        seconds = max(next(self._waits), spread(requested, self.rng.random()))
        if error.code:
            await asyncio.sleep(seconds)
            return
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            hurried, _ = await asyncio.wait([self._waiting], timeout=seconds)
        finally:
            self._waiting = None
        if hurried:
            await asyncio.sleep(HURRIED_WITHIN * self.rng.random())

    def _new_waits(self) -> Iterator[float]:
        return jittered_waits(FIRST_WAIT, LONGEST_WAIT, self.rng)


# Services, followed with one watch for the environment of containers. Only the fields that
# variables need are kept, and a malformed service keeps no container from starting.

FIRST_LIST_S = 2.0
"""How long a reader waits for the first list."""
_MASTER = ("default", "kubernetes")


class ServiceList(Component):
    """The services of the cluster, by namespace."""

    kube_api: KubeApi
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._services: dict[str, dict[str, api.Service]] = {}
        self._reflector = Reflector(
            self.kube_api, SERVICES, on_replace=self._replaced, on_event=self._changed, rng=self.rng
        )

    async def run(self) -> None:
        """Follow the collection until canceled."""
        await self._reflector.run()

    async def of_namespace(self, namespace: str, *, wait: bool = True) -> list[api.Service] | None:
        """The services of a namespace, and default/kubernetes; None when never listed.

        ``wait``: wait a short while for the first list.
        """
        if not (wait or self._reflector.synced.is_set()):
            return None
        try:
            await self._reflector.first_answer(FIRST_LIST_S)
        except ApiError:
            return None
        found = list(self._services.get(namespace, {}).values())
        master = self._services.get(_MASTER[0], {}).get(_MASTER[1])
        if namespace != _MASTER[0] and master is not None:
            found.append(master)
        return found

    def _replaced(self, items: list[JSON]) -> None:
        self._services = {}
        for item in items:
            self._store_service(item)

    def _changed(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            metadata = event.object["metadata"]
            namespace = metadata.get("namespace", "")
            self._services.get(namespace, {}).pop(metadata["name"], None)
        else:
            self._store_service(event.object)

    def _store_service(self, item: JSON) -> None:
        metadata, spec = item["metadata"], item.get("spec")
        if not isinstance(spec, dict):
            return
        kept = {
            "metadata": {"name": metadata["name"], "namespace": metadata.get("namespace", "")},
            "spec": {k: spec[k] for k in ("clusterIP", "clusterIPs", "ports", "type") if k in spec},
        }
        by_name = self._services.setdefault(kept["metadata"]["namespace"], {})
        by_name[metadata["name"]] = cast(api.Service, kept)


# Versions of a kind, for servers of several Kubernetes versions.


async def first_served(
    api: KubeApi, versions: Sequence[Resource], *, field_selector: str = ""
) -> Resource:
    """The first version that the server lists.

    Args:
        api: the server.
        versions: of one kind, best first.
        field_selector: what this node may list.

    Raises:
        NotFound: the server has none of them.
        ApiError: the server does not report it.
    """
    for resource in versions:
        try:
            await api.list(resource, field_selector=field_selector, limit=1)
        except NotFound:
            continue
        return resource
    names = ", ".join(each.version for each in versions)
    kind = versions[0]
    raise NotFound(f"the API server has no {kind.plural} ({kind.group} {names})", code=404)
