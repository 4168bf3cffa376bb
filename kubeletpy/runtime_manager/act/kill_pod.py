"""Stop what runs of a pod: its containers in the order they need, then its sandboxes.

Source: docs/reference/behaviour.md, n2, n3. Must never remove anything: dead records are needed for
the truth about them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Component, replace
from kubeletpy.base.tasks import run_all
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import span
from kubeletpy.pods.pod import ContainerKind, Pod, field_path
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    KillReason,
    PodRuntimeStatus,
    PodSyncResult,
    StartError,
    SyncAction,
    SyncResult,
)
from kubeletpy.remote.errors import CRIError, NotFound
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.container_files import HookLost, kept_hook
from kubeletpy.runtime_manager.act.mutations import Mutations, StopKind, StopSlots
from kubeletpy.runtime_manager.act.stop_container import (
    KILL_CONTAINER_ERROR,
    ContainerStopper,
    StopOrder,
    Victim,
    victim,
)
from kubeletpy.runtime_manager.act.sync_run import StatusDraft, unreadable
from kubeletpy.runtime_manager.names import read_container_annotations
from kubeletpy.runtime_manager.plan import grace as graces
from kubeletpy.runtime_manager.protocol import OnStopped
from kubeletpy.runtime_manager.read.status_source import StatusSource

logger = logging.getLogger(__name__)

KILL_SANDBOX_ERROR = "KillPodSandboxError"


class SandboxStopper(Component):
    """Stops the sandboxes of pods, one by one: StopPodSandbox."""

    runtime: RuntimeService
    mutations: Mutations
    slots: StopSlots

    async def stop(self, uid: str, sandbox_id: str, draft: StatusDraft, reason: str) -> SyncResult:
        """Stop a sandbox of the pod ``uid``; recorded in ``draft``."""
        error = None
        try:
            async with self.slots.stopping(StopKind.SANDBOX):
                with span(TraceCall.STOP_POD_SANDBOX, sandbox_id[:13], milestone=True):
                    await self.mutations.finish(uid, self.runtime.stop_pod_sandbox(sandbox_id))
        except NotFound:
            logger.debug("sandbox no longer exists", extra={"sandbox_id": sandbox_id})
        except CRIError as failure:
            logger.warning(
                "sandbox could not be stopped",
                extra={"sandbox_id": sandbox_id, "error": str(failure)},
            )
            error = StartError(KILL_SANDBOX_ERROR, str(failure))
        if error is None:
            draft.sandbox_stopped(sandbox_id)
        return SyncResult(SyncAction.KILL_POD_SANDBOX, sandbox_id, error, reason)


_STOPPABLE = (ContainerState.RUNNING, ContainerState.CREATED, ContainerState.UNKNOWN)


class Killer(Component):
    """Stops containers and pods."""

    runtime: RuntimeService
    source: StatusSource
    mutations: Mutations
    containers: ContainerStopper
    sandboxes: SandboxStopper
    root_dir: str

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
        """Stop one container of a pod that keeps running. None: it has stopped."""
        found = victim(pod, name, container_id, reason)
        return await self.containers.stop(found, message, override)

    async def kill_pod(
        self,
        pod: Pod | None,
        status: PodRuntimeStatus,
        grace_override: int | None,
        on_stopped: OnStopped | None = None,
    ) -> PodSyncResult:
        """Stop all containers (in parallel, sidecars last) and all sandboxes of a pod.

        May be cancelled and called again with a shorter grace period: the stop then goes on with
        that.

        Args:
            pod: None for a pod that only the runtime has.
            grace_override: seconds, in place of the pod's own grace period.
            on_stopped: called with how the containers ended while the sandboxes are being stopped.
        """
        try:
            status = await self.mutations.current(status, self.source.read_pod_status)
        except CRIError as error:
            return unreadable(error)
        draft = StatusDraft(status)
        results = await self.stop_pod(pod, status, grace_override, draft, on_stopped=on_stopped)
        certain = all(result.error is None for result in results)
        after, read_error = await draft.read_back(self.source, certain=certain)
        if after is not None and not after.ips:
            after = replace(after, ips=status.ips)
        return PodSyncResult(results=tuple(results), sync_error=read_error, status=after)

    async def stop_pod(
        self,
        pod: Pod | None,
        status: PodRuntimeStatus,
        override: int | None,
        draft: StatusDraft,
        reason: str = "",
        *,
        kill_reason: Callable[[str], KillReason | None] = lambda name: None,
        on_stopped: OnStopped | None = None,
    ) -> list[SyncResult]:
        """Stop all that may run of a pod, then its sandboxes; ``draft`` records what was done.

        ``kill_reason``: why a container is stopped, by name; None: its pod is terminated.

        Sandboxes are stopped even when a container could not be: that ends it by force. While the
        sandboxes stop, the outcome of the containers is read and passed to ``on_stopped``.
        """
        targets = [c for c in status.containers if c.state in _STOPPABLE]
        order = StopOrder(pod, {target.name for target in targets})
        results = list(
            await run_all(
                *(
                    self._kill_one(
                        pod,
                        status,
                        target,
                        override=override,
                        order=order,
                        why=reason,
                        kill_reason=kill_reason(target.name),
                    )
                    for target in targets
                )
            )
        )
        for target in targets:
            draft.touch(target.id, target.sandbox_id)
        stopped = bool(targets) and all(result.error is None for result in results)
        report = [self._report_stopped(draft, on_stopped)] if stopped else []
        ends = await run_all(
            *(
                self.sandboxes.stop(status.uid, sandbox.id, draft, reason)
                for sandbox in status.sandboxes
            ),
            *report,
        )
        return results + [end for end in ends if end is not None]

    async def _report_stopped(self, draft: StatusDraft, on_stopped: OnStopped | None) -> None:
        try:
            status = await draft.finished(self.source)
        except CRIError as error:
            logger.debug("exited containers could not be inspected", extra={"error": str(error)})
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
        kill_reason: KillReason | None,
    ) -> SyncResult:
        try:
            if pod is not None and pod.find_container(target.name) is not None:
                # the whole pod stops within its own grace period, not that of a failed probe
                found = replace(victim(pod, target.name, target.id, None), reason=kill_reason)
            else:
                found = await self._victim_without_pod(status, target)
        except NotFound:
            order.ended(target.name)
            return SyncResult(SyncAction.KILL_CONTAINER, target.name, reason=why)
        except CRIError as failure:
            error = StartError(KILL_CONTAINER_ERROR, str(failure))
            return SyncResult(SyncAction.KILL_CONTAINER, target.name, error, why)
        message = f"Stopping container {target.name}"
        failed = await self.containers.stop(found, message, override, order)
        return SyncResult(SyncAction.KILL_CONTAINER, target.name, failed, why)

    async def _victim_without_pod(
        self, status: PodRuntimeStatus, target: ContainerStatus
    ) -> Victim:
        """Take the inputs of a stop from the container's annotations: its spec was removed."""
        answer = await self.runtime.container_status(target.id)
        remembered = read_container_annotations(answer.status.annotations)
        pre_stop = remembered.pre_stop
        if pre_stop is None and remembered.kept_pre_stop:
            pre_stop = await self._kept_hook(status, target, remembered.kept_pre_stop)
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

    async def _kept_hook(
        self, status: PodRuntimeStatus, target: ContainerStatus, name: str
    ) -> api.LifecycleHandler | None:
        """The preStop hook that was too large for an annotation; None when its file is absent."""
        try:
            return await asyncio.to_thread(kept_hook, self.root_dir, status.uid, target.name, name)
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
