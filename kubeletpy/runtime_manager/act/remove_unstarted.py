"""Remove containers that an earlier try has made and never started.

Must never remove one that runs.
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
    runtime: RuntimeService, recorder: EventRecorder, context: PodContext, action: StartContainer
) -> None:
    """Remove what an earlier try made and never started.

    The runtime may still be starting it, asked by an agent that is dead now: it refuses the
    removal then, and two containers of one name never run.

    Raises:
        StartFailed: the runtime does not remove it.
        NotWanted: it runs by now.
    """
    for record in context.status.containers:
        if record.name != action.name or record.state is not ContainerState.CREATED:
            continue
        try:
            await _still_unstarted(runtime, context, record)
            await runtime.remove_container(record.id)
        except NotFound:
            logger.debug("container was gone already", extra={"container_id": record.id})
        except CRIError as error:
            fail(recorder, context, action, CREATE_ERROR, error.details or str(error.code))
        context.draft.removed(record.id)


async def _still_unstarted(
    runtime: RuntimeService, context: PodContext, record: ContainerStatus
) -> None:
    """Raise NotWanted if a container runs by now: to remove it would kill it."""
    answer = await runtime.container_status(record.id)
    if answer.status.state != cri.CONTAINER_CREATED:
        context.draft.touch(record.id, record.sandbox_id)
        raise NotWanted
