"""Stop one sandbox of a pod: StopPodSandbox."""

from __future__ import annotations

import logging

from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import span
from kubeletpy.pods.runtime_status import StartError, SyncAction, SyncResult
from kubeletpy.remote.errors import CRIError, NotFound
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.draft import StatusDraft
from kubeletpy.runtime_manager.act.mutations import Mutations
from kubeletpy.runtime_manager.act.slots import StopKind, StopSlots

logger = logging.getLogger(__name__)

KILL_SANDBOX_ERROR = "KillPodSandboxError"


class SandboxStopper:
    """Stops sandboxes."""

    def __init__(self, runtime: RuntimeService, mutations: Mutations, slots: StopSlots) -> None:
        self._runtime = runtime
        self._mutations = mutations
        self._slots = slots

    async def stop(self, uid: str, sandbox_id: str, draft: StatusDraft, reason: str) -> SyncResult:
        """Stop a sandbox of the pod ``uid``; recorded in ``draft``."""
        error = None
        try:
            async with self._slots.place(StopKind.SANDBOX):
                with span(TraceCall.STOP_POD_SANDBOX, sandbox_id[:13], milestone=True):
                    await self._mutations.finish(uid, self._runtime.stop_pod_sandbox(sandbox_id))
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
