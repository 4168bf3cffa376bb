"""Notices exits between two relists: by the runtime's own events, or else by early polls.

Events make the agent fast; relists keep it correct. A runtime without CRI events (Unimplemented) is
relisted every second. If it is a containerd, its task events start the early polls. A broken stream
is retried with backoff, with relists meanwhile. An event never replaces a newer status
(:func:`~kubeletpy.syncloop.lifecycle.goes_forward`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, cast

from kubeletpy.base.clock import Clock, steady_ns
from kubeletpy.base.structs import Component, field
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus, event_observed_at
from kubeletpy.podworkers.status_cache import PodStatusCache, essence
from kubeletpy.remote.errors import CRIError, PermissionDenied, Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService, TaskExits, missing
from kubeletpy.syncloop.lifecycle import (
    LifecycleEvent,
    LifecycleType,
    diff,
    goes_forward,
    summarise,
    without,
)
from kubeletpy.syncloop.pleg import OnChange, Pleg

log = logging.getLogger(__name__)

EventReader = Callable[
    [cri.ContainerEventResponse, PodRuntimeStatus | None], Awaitable[PodRuntimeStatus | None]
]
"""The pod's status as an event shows it, given what is known; None: it shows none."""

FIRST_RETRY = 0.1
LAST_RETRY = 5.0
ESTABLISHED_AFTER = 1.0
"""Seconds without an error after which a silent stream counts as connected."""
STEP_NS = 10**9
"""Nanoseconds by which the wall clock moves against the event loop's before it was set, not
corrected slowly."""


class EventStream(Component):
    """Feeds CRI events to the status cache and the PLEG."""

    service: RuntimeService
    read_event: EventReader
    cache: PodStatusCache
    pleg: Pleg
    clock: Clock
    on_change: OnChange
    follow_exits: Callable[[], Awaitable[None]]
    """Follows the exits that a runtime without CRI events reports; raises CRIError."""
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._established: asyncio.TimerHandle | None = None
        self._delay = FIRST_RETRY
        self._opened_at = 0
        """Nanoseconds of the event loop's clock."""
        self._wall_offset = 0
        """Nanoseconds from the event loop's clock to the wall clock, when the stream was opened."""

    async def run(self) -> None:
        """Follow until cancelled, or until it is clear that the runtime has no events."""
        while True:
            try:
                await self._follow()
            except Unimplemented:
                self._lost()
                if not await self._follow_exits_only():
                    log.info("the runtime has no event stream; relisting every second")
                    return
            except CRIError as error:
                self.pleg.metrics.evented_connection_errors.inc()
                log.debug("event stream broke", extra={"error": str(error)})
            finally:
                self._lost()
            await asyncio.sleep(self._delay * self.rng.uniform(0.5, 1.0))
            self._delay = min(self._delay * 2, LAST_RETRY)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        self._established = loop.call_later(ESTABLISHED_AFTER, self._connected)
        self._opened_at = steady_ns()
        self._wall_offset = self._wall_ns() - self._opened_at
        events = self.service.get_container_events()
        async with aclosing(cast("Any", events)) as stream:
            async for event in stream:
                self._connected()
                if not self._is_left_over(event):
                    await self._handle_event(event)
                elif self._clock_was_set():
                    self.pleg.relist_soon()  # a new event can appear old after a clock change

    async def _follow_exits_only(self) -> bool:
        """Follow exits until their stream breaks; returns whether the runtime reports any."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self.follow_exits()
        except (Unimplemented, PermissionDenied):
            return False
        except CRIError as error:
            log.debug("stream of exits broke", extra={"error": str(error)})
        if loop.time() - began > ESTABLISHED_AFTER:
            self._delay = FIRST_RETRY
        return True

    def _is_left_over(self, event: cri.ContainerEventResponse) -> bool:
        """Whether an event is an old one, which the runtime has kept from before we listened.

        The relist on connecting is newer. Applied one after the other, such events would bring
        back, for some milliseconds, sandboxes that were removed long ago.
        """
        sent_at = event_observed_at(event.created_at, self._wall_ns(), steady_ns())
        return sent_at is not None and sent_at < self._opened_at

    def _clock_was_set(self) -> bool:
        """Whether the wall clock was set since the stream was opened."""
        return abs(self._wall_ns() - steady_ns() - self._wall_offset) > STEP_NS

    def _wall_ns(self) -> int:
        return int(self.clock.now() * 1e9)

    def _connected(self) -> None:
        if self._established is None:
            return
        self._established.cancel()
        self._established = None
        self._delay = FIRST_RETRY
        self.pleg.metrics.evented_connection_successes.inc()
        self.pleg.events_flow(True)

    def _lost(self) -> None:
        if self._established is not None:
            self._established.cancel()
            self._established = None
        self.pleg.events_flow(False)

    async def _handle_event(self, event: cri.ContainerEventResponse) -> None:
        late = max(self.clock.now() - event.created_at / 1e9, 0.0)
        self.pleg.metrics.evented_latency.observe(late)
        if event.container_event_type == cri.ContainerEventType.CONTAINER_DELETED_EVENT:
            self._removed(event)
            return
        uid = event.pod_sandbox_status.metadata.uid
        if not uid:
            self.pleg.relist_soon()
            return
        known = self.cache.status(uid)
        status = await self.read_event(event, known)
        known = self.cache.status(uid)
        believed = status is not None and status.uid == uid and goes_forward(known, status)
        if status is None or not believed or _is_late_changes(known, status):
            metadata = event.pod_sandbox_status.metadata
            self.pleg.read_soon(uid, metadata.name, metadata.namespace)
            return
        if self.cache.set(status):
            old = None if known is None else summarise(known)
            self.on_change(uid, diff(old, summarise(status)))

    def _removed(self, event: cri.ContainerEventResponse) -> None:
        uid = event.pod_sandbox_status.metadata.uid or self.cache.owner(event.container_id)
        known = None if uid is None else self.cache.status(uid)
        if uid is None or known is None:
            return
        if self.cache.is_doubtful(uid):
            # the cached status may lack running containers: they must not count as removed
            self.pleg.read_soon(uid, known.name, known.namespace)
            return
        sent_at = event_observed_at(event.created_at, self._wall_ns(), steady_ns())
        rest = without(known, event.container_id, known.observed_at if sent_at is None else sent_at)
        if rest.empty:
            self.cache.remove(uid)
        elif rest.sandboxes != known.sandboxes or rest.containers != known.containers:
            self.cache.set(rest)
        else:
            return
        removed = LifecycleEvent(uid, LifecycleType.REMOVED, event.container_id)
        events = [e for e in diff(summarise(known), summarise(rest)) if e != removed]
        self.on_change(uid, [*events, removed])


def _is_late_changes(known: PodRuntimeStatus | None, status: PodRuntimeStatus) -> bool:
    """Whether an event reports something that a newer known status does not have.

    Such a status combines a worker's own calls with what it had of the other containers.
    """
    return (
        known is not None
        and status.observed_at < known.observed_at
        and essence(status) != essence(known)
    )


FIRST_PAUSE_S = 0.02
LAST_PAUSE_S = 1.0
"""Pauses before polls, each twice as long as the previous one."""
MAX_EARLY_EXITS = 1000
"""Exits that are remembered of containers that no status has yet."""

CurrentPod = Callable[[str], tuple[Pod, Pod | None] | None]


class EarlyPolls(Component):
    """Polls what has just ended or may soon, where the runtime has no CRI events.

    containerd reports exits by task events. Its CRI handles the same events, so that the status of
    a container may be a moment late. So it is polled after growing pauses until it shows the exit,
    or until the relist is as good. A lost event costs a relist's period at most.

    Without task events init containers are polled after their start. The next container waits for
    this one to end, which most often happens soon; a relist every second would set the pace of
    every pod with init containers. Nothing else is polled: it may run forever.
    """

    runtime: RuntimeService
    cache: PodStatusCache
    pleg: Pleg
    current_pod: CurrentPod
    task_exits: TaskExits | None = None
    """The exits that the runtime reports beside the CRI; None: it reports none."""

    def __post_init__(self) -> None:
        self._polls: dict[str, asyncio.Task[None]] = {}
        """Running polls, by id of the container or sandbox."""
        self._polled: dict[str, str] = {}
        """Pod uid -> the init container that was polled last."""
        self._follows_exits = False
        self._early_exits: OrderedDict[str, None] = OrderedDict()
        """Ids that no status had when their exits were reported."""

    async def follow_exits(self) -> None:
        """Poll what the runtime reports as ended, until the stream breaks. Raises CRIError."""
        if self.task_exits is None:
            raise missing("Subscribe")
        loop = asyncio.get_running_loop()
        established = loop.call_later(ESTABLISHED_AFTER, self._exits_follow)
        try:
            async with aclosing(cast("Any", self.task_exits())) as exits:
                async for runtime_id in exits:
                    self._exits_follow()
                    self.exited(runtime_id)
        finally:
            established.cancel()
            self._follows_exits = False
            self._early_exits.clear()

    def exited(self, runtime_id: str) -> None:
        """The runtime reports the end of a container or sandbox, which may be anybody's."""
        uid = self.cache.owner(runtime_id)
        if uid is not None:
            self._start(uid, runtime_id)
            return
        self._early_exits[runtime_id] = None
        if len(self._early_exits) > MAX_EARLY_EXITS:
            self._early_exits.popitem(last=False)

    def changed(self, uid: str) -> None:
        """The cache has a new status of a pod, or none any more."""
        status = self.cache.status(uid)
        if status is None:
            self._polled.pop(uid, None)
            return
        if self.pleg.has_events:
            return
        if self._follows_exits:
            for container in status.containers if self._early_exits else ():
                if container.id in self._early_exits:
                    del self._early_exits[container.id]
                    self._start(uid, container.id)
            return
        container_id = self._running_init_container(uid, status)
        if not container_id or self._polled.get(uid) == container_id:
            return
        self._polled[uid] = container_id
        self._start(uid, container_id)

    async def close(self) -> None:
        """Cancel all polls and wait for their end."""
        await cancel_tasks(self._polls.values())

    def _exits_follow(self) -> None:
        if not self._follows_exits:
            log.info("following the runtime's task events; relisting every second")
        self._follows_exits = True

    def _start(self, uid: str, runtime_id: str) -> None:
        if runtime_id in self._polls or not self._is_alive(uid, runtime_id):
            return
        task = asyncio.get_running_loop().create_task(self._poll(uid, runtime_id))
        self._polls[runtime_id] = task
        task.add_done_callback(lambda _done: self._polls.pop(runtime_id, None))

    def _is_alive(self, uid: str, runtime_id: str) -> bool:
        """Whether a container or sandbox has not ended, by the newest status."""
        status = self.cache.status(uid)
        if status is None:
            return False
        if (container := status.by_id(runtime_id)) is not None:
            return container.state is not ContainerState.EXITED
        return any(each.id == runtime_id and each.ready for each in status.sandboxes)

    def _running_init_container(self, uid: str, status: PodRuntimeStatus) -> str:
        current = self.current_pod(uid)
        if current is None or not current[0].init_containers:
            return ""
        names = {c["name"] for c in current[0].init_containers if not is_sidecar(c)}
        return next((c.id for c in status.running_containers if c.name in names), "")

    async def _poll(self, uid: str, runtime_id: str) -> None:
        pause = FIRST_PAUSE_S
        while pause <= LAST_PAUSE_S:
            await asyncio.sleep(pause)
            pause *= 2
            status = self.cache.status(uid)
            if status is None or not self._is_alive(uid, runtime_id):
                return  # a relist or the pod's worker was faster
            try:
                ended = await self._has_ended(status, runtime_id)
            except CRIError as error:
                log.debug("early poll failed", extra={"error": str(error)})
                return
            if ended:
                self.pleg.read_soon(uid, status.name, status.namespace)
                return

    async def _has_ended(self, status: PodRuntimeStatus, runtime_id: str) -> bool:
        if status.by_id(runtime_id) is None:
            sandbox = await self.runtime.pod_sandbox_status(runtime_id)
            return sandbox.status.state != cri.SANDBOX_READY
        container = await self.runtime.container_status(runtime_id)
        return container.status.state != cri.CONTAINER_RUNNING
