"""Stop one container: its preStop hook, its turn, StopContainer, within one grace period.

Source: docs/reference/behaviour.md, n2, n3. Must never remove anything: dead records are needed for
the truth about them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Component, Struct, replace
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import span
from kubeletpy.pods.pod import ContainerKind, Pod, field_path, is_sidecar
from kubeletpy.pods.runtime_status import KillReason, StartError, StopNote
from kubeletpy.remote.errors import CRIError, NotFound
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.container_files import StopRecords
from kubeletpy.runtime_manager.act.hooks_runner import LifecycleHookRunner
from kubeletpy.runtime_manager.act.mutations import Mutations, StopKind, StopSlots
from kubeletpy.runtime_manager.plan import grace as graces
from kubeletpy.runtime_manager.plan.grace import HookState, StopRecord, resume_stop
from kubeletpy.runtime_manager.protocol import HookFailed

logger = logging.getLogger(__name__)

KILL_CONTAINER_ERROR = "KillContainerError"


class Victim(Struct, frozen=True):
    """A container to stop, with all inputs of its stop."""

    pod_uid: str
    id: str
    name: str
    grace: int
    reference: api.ObjectReference
    pod: Pod | None = None
    pre_stop: api.LifecycleHandler | None = None
    reason: KillReason | None = None


def victim(pod: Pod, name: str, container_id: str, reason: KillReason | None) -> Victim:
    """Return the inputs of a container's stop, taken from its pod."""
    found = pod.find_container(name)
    kind, container = found if found is not None else (ContainerKind.REGULAR, None)
    lifecycle = (container or {}).get("lifecycle") or {}
    return Victim(
        pod.uid,
        container_id,
        name,
        graces.container_grace(pod, container, reason),
        pod_reference(pod, field_path(kind, name)),
        pod,
        lifecycle.get("preStop"),
        reason,
    )


class ContainerStopper(Component):
    """Stops containers, one by one, and resumes the stops that an earlier agent began."""

    runtime: RuntimeService
    mutations: Mutations
    slots: StopSlots
    recorder: EventRecorder
    hooks: LifecycleHookRunner
    records: StopRecords
    # Called when a stop begins, and again when its preStop hook has taken too long.
    noted: Callable[[StopNote], None]

    async def stop(
        self,
        victim: Victim,
        message: str,
        override: int | None = None,
        order: StopOrder | None = None,
    ) -> StartError | None:
        """Stop one container; returns None when it has stopped.

        ``override``, in seconds, replaces its grace period; with ``order`` it waits for its turn.
        A stop that an earlier agent began continues with the rest of the grace period, and without
        a second hook.
        """
        self.recorder.event(victim.reference, NORMAL, Reason.KILLING, message)
        grace = victim.grace if override is None else override
        self.noted(StopNote(victim.id, victim.reason, grace))
        if grace <= graces.MINIMUM:
            return await self._stop(victim, victim.pre_stop, grace, order, None)
        record = await self.records.earlier(victim.pod_uid, victim.name, victim.id)
        deleting = victim.pod is not None and victim.pod.being_deleted
        left = resume_stop(
            record, grace=grace, deleting=deleting, pre_stop=victim.pre_stop, now=self.records.now()
        )
        if record is None or left.anew:
            record = self.records.new(victim.id, deleting=deleting)
            if not left.hook:
                await self.records.write(victim.pod_uid, victim.name, record)
        else:
            logger.info(
                "going on with the stop of a container that an earlier agent began",
                extra={"container": victim.name, "container_id": victim.id, "after": left.elapsed},
            )
        grace = graces.remaining(grace, left.elapsed)
        return await self._stop(victim, left.hook, grace, order, record)

    async def _stop(
        self,
        victim: Victim,
        handler: api.LifecycleHandler | None,
        grace: int,
        order: StopOrder | None,
        record: StopRecord | None,
    ) -> StartError | None:
        if not handler or grace <= 0:
            return await self._end(victim, grace, order)
        await self._note_hook(victim, record, HookState.BEGUN)
        pre_stop = self.hooks.pre_stop(victim.pod, victim.name, victim.id, handler)
        hook = PreStopRun(pre_stop, victim.name, victim.id)
        try:
            took = await self._pre_stop(victim, hook, grace)
            if hook.late:
                self.noted(StopNote(victim.id, victim.reason, grace, hook_late=True))
            await self._note_hook(victim, record, HookState.ENDED)
            error = await self._end(victim, graces.remaining(grace, took), order)
            if hook.failed_late():
                self._hook_failed(victim)
            return error
        finally:
            await hook.give_up()

    async def _note_hook(self, victim: Victim, record: StopRecord | None, state: HookState) -> None:
        if record is not None:
            await self.records.write(victim.pod_uid, victim.name, replace(record, hook=state))

    async def _end(self, victim: Victim, grace: int, order: StopOrder | None) -> StartError | None:
        """Stop it when its turn has come, with what is left of its grace period."""
        if order is not None and grace > 0:
            with span(TraceCall.STOP_ORDER, victim.name, limit=grace):
                waited = await order.wait_for_turn(victim.name, grace)
            grace = graces.remaining(grace, waited)
        timeout = max(grace, graces.MINIMUM)
        try:
            async with self.slots.stopping(StopKind.CONTAINER):
                with (
                    span(TraceCall.STOP_CONTAINER, victim.name, limit=timeout, milestone=True),
                    self.mutations.changing(victim.pod_uid),
                ):
                    await self.runtime.stop_container(victim.id, timeout)
        except NotFound:
            logger.debug("container no longer exists", extra={"container_id": victim.id})
        except CRIError as error:
            logger.warning(
                "container could not be stopped",
                extra={"container_id": victim.id, "container": victim.name, "error": str(error)},
            )
            return StartError(KILL_CONTAINER_ERROR, str(error))
        if order is not None:
            order.ended(victim.name)
        return None

    async def _pre_stop(self, victim: Victim, hook: PreStopRun, grace: float) -> float:
        """Wait for the hook for at most the grace period; returns the seconds it took."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            await hook.wait(grace)
        except HookFailed as error:
            # Its text may contain what the pod's owner would not publish: it stays in the log.
            logger.info(
                "preStop hook failed", extra={"container": victim.name, "error": str(error)}
            )
            self._hook_failed(victim)
        return loop.time() - started

    def _hook_failed(self, victim: Victim) -> None:
        self.recorder.event(
            victim.reference, WARNING, Reason.FAILED_PRE_STOP_HOOK, "PreStopHook failed"
        )


class PreStopRun(Component):
    """One preStop hook in progress, from its start until its container has ended.

    The grace period limits how long the container waits for the hook, not the hook itself. A hook
    that takes longer continues while the container is stopped. Source:
    docs/reference/behaviour.md, n1. Must never stop the container.
    """

    hook: Coroutine[Any, Any, None]
    container: str
    container_id: str

    def __post_init__(self) -> None:
        self._task = asyncio.ensure_future(self.hook)
        self.late = False
        """It has not ended within the grace period."""

    async def wait(self, grace: float) -> None:
        """Wait for its end, at most ``grace`` seconds. Raises HookFailed."""
        with span(TraceCall.PRE_STOP, self.container, limit=grace, milestone=True):
            await asyncio.wait({self._task}, timeout=grace)
        if self._task.done():
            self._task.result()
        else:
            self.late = True
            logger.info(
                "preStop hook did not end within the grace period",
                extra={"container_id": self.container_id, "container": self.container},
            )

    def failed_late(self) -> bool:
        """Whether it failed or was cut off after its grace period, with its container ended."""
        return self.late and (not self._task.done() or self._task.exception() is not None)

    async def give_up(self) -> None:
        """Cancel the hook: its container has ended, or nothing waits for it any more."""
        self._task.add_done_callback(_log_late_failure)
        await cancel_tasks((self._task,))


def _log_late_failure(task: asyncio.Task[None]) -> None:
    """Log a failure that no caller waits for: a hook may well die with its container."""
    if not task.cancelled() and (error := task.exception()) is not None:
        level = logging.DEBUG if isinstance(error, HookFailed) else logging.ERROR
        logger.log(level, "late preStop hook failed", extra={"error": str(error)})


def stop_prerequisites(pod: Pod) -> dict[str, tuple[str, ...]]:
    """Return the names that end before each sidecar's turn: regular containers, the next sidecar.

    Source: docs/reference/behaviour.md, n3; KEP-753.
    """
    regular = tuple(container["name"] for container in pod.containers)
    prerequisites: dict[str, tuple[str, ...]] = {}
    later: tuple[str, ...] = ()
    for container in reversed(pod.init_containers):
        if is_sidecar(container):
            prerequisites[container["name"]] = (*regular, *later)
            later = (container["name"],)
    return prerequisites


class StopOrder(Component):
    """The order in which a pod's containers stop: sidecars wait until nothing needs them."""

    pod: Pod | None
    # Names of the containers to stop; all others count as ended.
    stopping: Collection[str]

    def __post_init__(self) -> None:
        self._prerequisites = stop_prerequisites(self.pod) if self.pod is not None else {}
        self._ended = {name: asyncio.Event() for name in self.stopping}

    async def wait_for_turn(self, name: str, grace: float) -> float:
        """Wait until it is the container's turn, at most ``grace`` seconds; returns the wait."""
        awaited = [
            self._ended[other]
            for other in self._prerequisites.get(name, ())
            if other in self._ended and other != name
        ]
        if not awaited or grace <= 0:
            return 0.0
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(grace):
                for event in awaited:
                    await event.wait()
        except TimeoutError:
            pass
        return loop.time() - started

    def ended(self, name: str) -> None:
        """A container has stopped."""
        if name in self._ended:
            self._ended[name].set()
