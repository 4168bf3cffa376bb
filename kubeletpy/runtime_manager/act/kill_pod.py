"""Stop containers and pods: with the grace they have, in the order they need.

Source: docs/reference/behaviour.md, n2, n3. Must never remove anything: dead records are needed for
the truth about them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from kubeletpy.api import types as api
from kubeletpy.events.recorder import NORMAL, WARNING, pod_reference
from kubeletpy.pods.pod import ContainerKind, Pod, field_path
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from kubeletpy.pods.sync_results import StartError, SyncAction, SyncResult
from kubeletpy.remote.errors import CRIError, NotFound
from kubeletpy.runtime_manager.act.draft import StatusDraft
from kubeletpy.runtime_manager.act.kept_hooks import HookLost, kept_hook
from kubeletpy.runtime_manager.act.pre_stop import PreStopRun
from kubeletpy.runtime_manager.act.slots import STOP_AT_MOST_S, STOP_WAITS_AT_MOST_S, StopKind
from kubeletpy.runtime_manager.act.stop_order import StopOrder
from kubeletpy.runtime_manager.act.tools import Tools
from kubeletpy.runtime_manager.hooks import HookFailed
from kubeletpy.runtime_manager.names.labels import read_container_annotations
from kubeletpy.runtime_manager.plan import grace as graces
from kubeletpy.runtime_manager.plan.actions import KillReason
from kubeletpy.trace.names import Call
from kubeletpy.trace.spans import phase

logger = logging.getLogger(__name__)

KILL_CONTAINER_ERROR = "KillContainerError"
KILL_SANDBOX_ERROR = "KillPodSandboxError"
OnStopped = Callable[[PodRuntimeStatus], None]
"""Told the pod's status when its containers have ended and its sandboxes are being stopped."""
_STOPPABLE = (ContainerState.RUNNING, ContainerState.CREATED, ContainerState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Victim:
    """A container to stop, and all that its stop needs to know."""

    pod_uid: str
    id: str
    name: str
    grace: int
    reference: api.ObjectReference
    pod: Pod | None = None
    pre_stop: api.LifecycleHandler | None = None


class Killer:
    """Stops things."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def kill_container(
        self,
        pod: Pod,
        name: str,
        container_id: str,
        *,
        message: str,
        reason: KillReason | None = None,
        override: int | None = None,
    ) -> StartError | None:
        """Stop one container of a pod that goes on. None: it has stopped."""
        return await self._stop(_victim(pod, name, container_id, reason), message, override, None)

    async def kill_pod(
        self,
        pod: Pod | None,
        status: PodRuntimeStatus,
        override: int | None,
        draft: StatusDraft,
        reason: str = "",
        *,
        on_stopped: OnStopped | None = None,
    ) -> list[SyncResult]:
        """Stop all that may run of a pod, then its sandboxes; ``draft`` learns what was done.

        Sandboxes are stopped even when a container could not be: that ends it by force. How the
        containers ended is looked at while the sandboxes stop, and told to ``on_stopped``.
        """
        targets = [c for c in status.containers if c.state in _STOPPABLE]
        order = StopOrder(pod, {target.name for target in targets})
        results = list(
            await asyncio.gather(
                *(
                    self._kill_one(pod, status, target, override=override, order=order, why=reason)
                    for target in targets
                )
            )
        )
        for target in targets:
            draft.touch(target.id, target.sandbox_id)
        stopped = bool(targets) and all(result.error is None for result in results)
        look = [self._look(draft, on_stopped)] if stopped else []
        ends = await asyncio.gather(
            *(
                self._stop_sandbox(status, sandbox.id, draft, reason)
                for sandbox in status.sandboxes
            ),
            *look,
        )
        return results + [end for end in ends if end is not None]

    async def _look(self, draft: StatusDraft, on_stopped: OnStopped | None) -> None:
        try:
            status = await draft.finished(self._tools.source)
        except CRIError as error:
            logger.debug("ended containers not looked at", extra={"error": str(error)})
            return
        if on_stopped is not None:
            on_stopped(status)

    async def _kill_one(
        self,
        pod: Pod | None,
        status: PodRuntimeStatus,
        target: ContainerStatus,
        *,
        override: int | None,
        order: StopOrder,
        why: str,
    ) -> SyncResult:
        try:
            if pod is not None and pod.find_container(target.name) is not None:
                victim = _victim(pod, target.name, target.id, None)
            else:
                victim = await self._remembered(status, target)
        except NotFound:
            order.ended(target.name)
            return SyncResult(SyncAction.KILL_CONTAINER, target.name, reason=why)
        except CRIError as failure:
            error = StartError(KILL_CONTAINER_ERROR, str(failure))
            return SyncResult(SyncAction.KILL_CONTAINER, target.name, error, why)
        message = f"Stopping container {target.name}"
        failed = await self._stop(victim, message, override, order)
        return SyncResult(SyncAction.KILL_CONTAINER, target.name, failed, why)

    async def _remembered(self, status: PodRuntimeStatus, target: ContainerStatus) -> Victim:
        """The container's own annotations say what its spec, which is gone, said."""
        answer = await self._tools.runtime.container_status(target.id)
        remembered = read_container_annotations(answer.status.annotations)
        pre_stop = remembered.pre_stop
        if pre_stop is None and remembered.kept_pre_stop:
            pre_stop = await self._kept(status, target, remembered.kept_pre_stop)
        reference: api.ObjectReference = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": status.namespace,
            "name": status.name,
            "uid": status.uid,
            "fieldPath": field_path(ContainerKind.REGULAR, target.name),
        }
        return Victim(
            status.uid,
            target.id,
            target.name,
            graces.remembered_grace(remembered),
            reference,
            pre_stop=pre_stop,
        )

    async def _kept(
        self, status: PodRuntimeStatus, target: ContainerStatus, name: str
    ) -> api.LifecycleHandler | None:
        """The preStop hook that was too large for an annotation; None when its file is gone."""
        try:
            return await asyncio.to_thread(
                kept_hook, self._tools.root_dir, status.uid, target.name, name
            )
        except HookLost as error:
            logger.warning(
                "container is stopped without its preStop hook, which cannot be read",
                extra={
                    "pod": f"{status.namespace}/{status.name}",
                    "container": target.name,
                    "error": str(error),
                },
            )
            return None

    async def _stop(
        self, victim: Victim, message: str, override: int | None, order: StopOrder | None
    ) -> StartError | None:
        self._tools.recorder.event(victim.reference, NORMAL, "Killing", message)
        grace = victim.grace if override is None else override
        if not victim.pre_stop or grace <= 0:
            return await self._end(victim, grace, order)
        pre_stop = self._tools.seams.hooks.pre_stop(
            victim.pod, victim.name, victim.id, victim.pre_stop
        )
        hook = PreStopRun(pre_stop, victim.name, victim.id)
        try:
            took = await self._pre_stop(victim, hook, grace)
            error = await self._end(victim, graces.remaining(grace, took), order)
            if hook.failed_late():
                self._hook_failed(victim)
            return error
        finally:
            hook.give_up()

    async def _end(self, victim: Victim, grace: int, order: StopOrder | None) -> StartError | None:
        """Stop it when its turn has come, with what is left of its grace period."""
        if order is not None and grace > 0:
            with phase(Call.STOP_ORDER, victim.name, limit=grace):
                waited = await order.wait_for_turn(victim.name, grace)
            grace = graces.remaining(grace, waited)
        timeout = max(grace, graces.MINIMUM)
        try:
            async with self._place(StopKind.CONTAINER):
                with phase(Call.STOP_CONTAINER, victim.name, limit=timeout, milestone=True):
                    await self._tools.mutations.interruptible(
                        victim.pod_uid, self._tools.runtime.stop_container(victim.id, timeout)
                    )
        except NotFound:
            logger.debug("container was gone already", extra={"container_id": victim.id})
        except CRIError as error:
            logger.warning(
                "container could not be stopped",
                extra={"container_id": victim.id, "container": victim.name, "error": str(error)},
            )
            return StartError(KILL_CONTAINER_ERROR, str(error))
        if order is not None:
            order.ended(victim.name)
        return None

    def _place(self, kind: StopKind) -> AbstractAsyncContextManager[None]:
        patience = STOP_WAITS_AT_MOST_S if kind is StopKind.CONTAINER else math.inf
        return self._tools.stop_slots.hold(kind, STOP_AT_MOST_S[kind], patience)

    async def _pre_stop(self, victim: Victim, hook: PreStopRun, grace: float) -> float:
        """Wait for the hook for at most the grace period; the seconds it took."""
        started = asyncio.get_running_loop().time()
        try:
            return await hook.wait(grace)
        except HookFailed as error:
            # Its text may hold what the pod's owner would not publish: it stays in the log.
            logger.info(
                "preStop hook failed",
                extra={"container": victim.name, "error": str(error)},
            )
            self._hook_failed(victim)
        return asyncio.get_running_loop().time() - started

    def _hook_failed(self, victim: Victim) -> None:
        self._tools.recorder.event(
            victim.reference, WARNING, "FailedPreStopHook", "PreStopHook failed"
        )

    async def _stop_sandbox(
        self, status: PodRuntimeStatus, sandbox_id: str, draft: StatusDraft, reason: str
    ) -> SyncResult:
        error = None
        try:
            async with self._place(StopKind.SANDBOX):
                with phase(Call.STOP_POD_SANDBOX, sandbox_id[:13], milestone=True):
                    await self._tools.mutations.finish(
                        status.uid, self._tools.runtime.stop_pod_sandbox(sandbox_id)
                    )
        except NotFound:
            logger.debug("sandbox was gone already", extra={"sandbox_id": sandbox_id})
        except CRIError as failure:
            logger.warning(
                "sandbox could not be stopped",
                extra={"sandbox_id": sandbox_id, "error": str(failure)},
            )
            error = StartError(KILL_SANDBOX_ERROR, str(failure))
        if error is None:
            draft.sandbox_stopped(sandbox_id)
        return SyncResult(SyncAction.KILL_POD_SANDBOX, sandbox_id, error, reason)


def _victim(pod: Pod, name: str, container_id: str, reason: KillReason | None) -> Victim:
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
    )
