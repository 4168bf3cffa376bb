"""Remove containers that an earlier attempt created but never started.

Must never remove a running one.
"""

from __future__ import annotations

import logging

from kubeletpy.events.recorder import EventRecorder
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus
from kubeletpy.remote.errors import CRIError, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.run_pod_sandbox import NotWanted
from kubeletpy.runtime_manager.act.start_context import CREATE_ERROR, PodContext, fail
from kubeletpy.runtime_manager.plan.actions import StartContainer
from kubeletpy.runtime_manager.read.own_starts import OwnStarts

logger = logging.getLogger(__name__)


class RemoveUnstarted:
    """Removes what never ran of one container."""

    def __init__(
        self, runtime: RuntimeService, recorder: EventRecorder, own_starts: OwnStarts
    ) -> None:
        self._runtime = runtime
        self._recorder = recorder
        self._own_starts = own_starts

    async def remove(self, context: PodContext, action: StartContainer, *, but: str = "") -> int:
        """Remove what an earlier attempt created but never started; not the one with the id
        ``but``.

        The runtime may still be starting it, on behalf of an agent that is dead now: it then
        refuses the removal, and two containers of one name never run. containerd 1.6 may also
        refuse to remove one whose start was canceled, because it leaves the task behind: that one
        holds its name, and stays until containerd restarts.

        Returns:
            The number after the attempts whose names are taken.

        Raises:
            StartFailed: the runtime does not remove it.
            NotWanted: it is running by now.
        """
        kept = {r.id: r.attempt for r in context.status.containers if r.name == action.name}
        for record in context.status.containers:
            if record.name != action.name or record.state is not ContainerState.CREATED:
                continue
            if record.id == but:
                continue
            found: cri.ContainerStatus | None = None
            try:
                found = await self._still_unstarted(context, record)
                await self._runtime.remove_container(record.id)
            except NotFound:
                logger.debug("container no longer exists", extra={"container_id": record.id})
            except CRIError as error:
                if found is None or found.state == cri.CONTAINER_CREATED:
                    fail(
                        self._recorder,
                        context,
                        action,
                        CREATE_ERROR,
                        error.details or str(error.code),
                    )
                logger.warning(
                    "the runtime does not remove a container whose start was canceled "
                    "(containerd 1.6 does not until it restarts); the next one gets another name",
                    extra={"container_id": record.id, "error": str(error)},
                )
                continue
            del kept[record.id]
            context.draft.removed(record.id)
        return max(kept.values(), default=-1) + 1

    async def _still_unstarted(
        self, context: PodContext, record: ContainerStatus
    ) -> cri.ContainerStatus:
        """Raise NotWanted if a container is running by now: removing it would kill it."""
        status = (await self._runtime.container_status(record.id)).status
        if status.state != cri.CONTAINER_CREATED and not self._own_starts.is_abandoned(status):
            context.draft.touch(record.id, record.sandbox_id)
            raise NotWanted
        return status
