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

logger = logging.getLogger(__name__)


async def remove_unstarted(
    runtime: RuntimeService,
    recorder: EventRecorder,
    context: PodContext,
    action: StartContainer,
    *,
    but: str = "",
) -> None:
    """Remove what an earlier attempt created but never started; not the one with the id ``but``.

    The runtime may still be starting it, on behalf of an agent that is dead now: it then refuses
    the removal, and two containers of one name never run.

    Raises:
        StartFailed: the runtime does not remove it.
        NotWanted: it is running by now.
    """
    for record in context.status.containers:
        if record.name != action.name or record.state is not ContainerState.CREATED:
            continue
        if record.id == but:
            continue
        try:
            await _still_unstarted(runtime, context, record)
            await runtime.remove_container(record.id)
        except NotFound:
            logger.debug("container no longer exists", extra={"container_id": record.id})
        except CRIError as error:
            fail(recorder, context, action, CREATE_ERROR, error.details or str(error.code))
        context.draft.removed(record.id)


async def _still_unstarted(
    runtime: RuntimeService, context: PodContext, record: ContainerStatus
) -> None:
    """Raise NotWanted if a container is running by now: removing it would kill it."""
    answer = await runtime.container_status(record.id)
    if answer.status.state != cri.CONTAINER_CREATED:
        context.draft.touch(record.id, record.sandbox_id)
        raise NotWanted
