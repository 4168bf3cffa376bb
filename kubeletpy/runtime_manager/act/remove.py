"""Remove dead containers and sandboxes with the files that belong to them.

Must never remove what runs.
"""

from __future__ import annotations

import contextlib
import logging

from kubeletpy.pods.runtime_status import ContainerState
from kubeletpy.remote.errors import CRIError, FailedPrecondition, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.container_files import remove_logs, remove_termination_file
from kubeletpy.runtime_manager.act.mutations import Mutations
from kubeletpy.runtime_manager.act.sync_run import SyncRun
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.names.labels import read_labels
from kubeletpy.runtime_manager.names.log_paths import UnsafeName, log_link
from kubeletpy.runtime_manager.plan.gc_selection import SHOWN

logger = logging.getLogger(__name__)

_ENDED = (ContainerState.EXITED, ContainerState.UNKNOWN)


class Remover:
    """Removes records of dead containers and sandboxes."""

    def __init__(
        self,
        runtime: RuntimeService,
        mutations: Mutations,
        settings: RuntimeSettings,
        root_dir: str,
    ) -> None:
        self._runtime = runtime
        self._mutations = mutations
        self._settings = settings
        self._root_dir = root_dir

    async def container(self, container_id: str, *, keep_logs: bool = False) -> None:
        """Remove a dead container with its log, its links and its termination file.

        Raises:
            CRIError: it could not be removed; FailedPrecondition when it is running.
        """
        try:
            status = (await self._runtime.container_status(container_id)).status
        except NotFound:
            return
        if status.state == cri.CONTAINER_RUNNING:
            raise FailedPrecondition(
                "RemoveContainer", "the container is running", target=container_id
            )
        owner = read_labels(status.labels)
        with contextlib.suppress(NotFound):
            await self._mutations.finish(
                owner.pod_uid, self._runtime.remove_container(container_id)
            )
        for mount in status.mounts:
            remove_termination_file(
                self._root_dir, owner.pod_uid, owner.container_name, mount.host_path
            )
        if keep_logs:
            return
        try:
            link = log_link(
                self._settings.container_logs_dir,
                owner.pod_name,
                owner.pod_namespace,
                owner.container_name,
                status.id,
            )
        except UnsafeName:
            link = ""
        remove_logs(self._settings.pod_logs_dir, status.log_path, link)

    async def sandbox(self, sandbox_id: str, pod_uid: str) -> None:
        """Stop a sandbox, which frees its network, and remove it.

        Raises:
            CRIError: it could not be stopped or removed.
        """
        with contextlib.suppress(NotFound):
            await self._mutations.finish(pod_uid, self._stop_and_remove(sandbox_id))

    async def ended_init_containers(self, run: SyncRun, *, keep: int) -> None:
        """Keep only the newest ``keep`` ended records of each init container.

        Until the API has how they ended, what a status can show of each stays; in a new sandbox
        they do not count as runs of that sandbox (:mod:`.init_containers`). So does what was still
        running when this sync began: nobody has seen yet how it ended.
        """
        if not run.request.reported():
            keep = max(keep, SHOWN)
        for container in run.pod.init_containers:
            ended = [
                record
                for record in run.status.containers
                if record.name == container["name"]
                and (
                    record.state in _ENDED
                    or (not keep and record.state is not ContainerState.RUNNING)
                )
            ]
            for number, record in enumerate(ended[keep:], keep):
                # without a record, the next start derives its attempt from the newest log
                await self._quietly(run, record.id, keep_logs=number == 0)

    async def _quietly(self, run: SyncRun, container_id: str, *, keep_logs: bool) -> None:
        """Remove a record that is merely in the way; garbage collection tries again."""
        try:
            await self.container(container_id, keep_logs=keep_logs)
        except CRIError as error:
            logger.info(
                "container record not removed",
                extra={"pod": run.pod.key, "container_id": container_id, "error": str(error)},
            )
        else:
            run.draft.removed(container_id)

    async def _stop_and_remove(self, sandbox_id: str) -> None:
        await self._runtime.stop_pod_sandbox(sandbox_id)
        await self._runtime.remove_pod_sandbox(sandbox_id)
