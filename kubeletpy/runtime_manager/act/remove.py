"""Remove dead containers and sandboxes with the files that belong to them.

Must never remove what runs.
"""

from __future__ import annotations

from kubeletpy.remote.errors import Code, CRIError, FailedPrecondition, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.act.container_files import remove_logs, remove_termination_file
from kubeletpy.runtime_manager.act.tools import Tools
from kubeletpy.runtime_manager.names.labels import read_container_labels
from kubeletpy.runtime_manager.names.log_paths import UnsafeName, log_link


class Remover:
    """Removes records."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def container(self, container_id: str, *, keep_logs: bool = False) -> None:
        """Remove a dead container with its log, its links and its termination file.

        Raises:
            CRIError: it could not be removed; FailedPrecondition when it runs.
        """
        try:
            status = (await self._tools.runtime.container_status(container_id)).status
        except NotFound:
            return
        if status.state == cri.CONTAINER_RUNNING:
            raise FailedPrecondition(
                "RemoveContainer", "the container is running", target=container_id
            )
        owner = read_container_labels(status.labels)
        try:
            await self._tools.mutations.finish(
                owner.pod_uid, self._tools.runtime.remove_container(container_id)
            )
        except CRIError as error:
            if error.code is not Code.NOT_FOUND:
                raise
        for mount in status.mounts:
            remove_termination_file(
                self._tools.root_dir, owner.pod_uid, owner.container_name, mount.host_path
            )
        if not keep_logs:
            remove_logs(self._tools.settings.pod_logs_dir, status.log_path, self._links(status))

    async def sandbox(self, sandbox_id: str, pod_uid: str) -> None:
        """Stop a sandbox, which frees its network, and remove it.

        Raises:
            CRIError: it could not be stopped or removed.
        """
        try:
            await self._tools.mutations.finish(pod_uid, self._stop_and_remove(sandbox_id))
        except NotFound:
            return

    async def _stop_and_remove(self, sandbox_id: str) -> None:
        await self._tools.runtime.stop_pod_sandbox(sandbox_id)
        await self._tools.runtime.remove_pod_sandbox(sandbox_id)

    def _links(self, status: cri.ContainerStatus) -> list[str]:
        owner = read_container_labels(status.labels)
        try:
            link = log_link(
                self._tools.settings.container_logs_dir,
                owner.pod_name,
                owner.pod_namespace,
                owner.container_name,
                status.id,
            )
        except UnsafeName:
            return []
        return [link]
