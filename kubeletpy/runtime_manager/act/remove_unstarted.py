"""Remove containers that an earlier attempt created but never started.

Must never remove a running one.
"""

from __future__ import annotations

import logging

from kubeletpy.kubeapi.events.recorder import EventRecorder
from kubeletpy.pods.runtime_status import ContainerState
from kubeletpy.remote.errors import CRIError, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.run_pod_sandbox import NotWanted
from kubeletpy.runtime_manager.act.start_context import CREATE_ERROR, fail
from kubeletpy.runtime_manager.act.sync_run import SyncRun
from kubeletpy.runtime_manager.plan.actions import StartContainer
from kubeletpy.runtime_manager.read.own_starts import OwnStarts

logger = logging.getLogger(__name__)


async def remove_unstarted(
    run: SyncRun,
    action: StartContainer,
    runtime: RuntimeService,
    recorder: EventRecorder,
    own_starts: OwnStarts,
    *,
    but: str,
) -> int:
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
    kept = {r.id: r.attempt for r in run.status.containers if r.name == action.name}
    for record in run.status.containers:
        if record.name != action.name or record.state is not ContainerState.CREATED:
            continue
        if record.id == but:
            continue
        found: cri.ContainerStatus | None = None
        try:
            found = (await runtime.container_status(record.id)).status
            if found.state != cri.CONTAINER_CREATED and not own_starts.is_abandoned(found):
                # it is running by now: to remove it would kill it
                run.draft.touch(record.id, record.sandbox_id)
                raise NotWanted
            await runtime.remove_container(record.id)
        except NotFound:
            logger.debug("container no longer exists", extra={"container_id": record.id})
        except CRIError as error:
            if found is None or found.state == cri.CONTAINER_CREATED:
                fail(
                    recorder,
                    run,
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
        run.draft.removed(record.id)
    return max(kept.values(), default=-1) + 1
