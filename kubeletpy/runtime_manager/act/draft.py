"""The pod's status as it changes under our own hands during one sync or kill.

Avoids relisting: the agent's own changes are recorded, and only containers that it changed are
queried, once, at the end. Must never change the runtime.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.structs import replace
from kubeletpy.pods.runtime_status import ContainerStatus, PodRuntimeStatus, SandboxStatus
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.read.status_reader import (
    PodIdentity,
    ReadContainer,
    pod_status_from_cri,
)
from kubeletpy.runtime_manager.read.status_source import StatusSource


class StatusDraft:
    """A working copy of a PodRuntimeStatus."""

    def __init__(self, status: PodRuntimeStatus) -> None:
        self._status = status
        self._sandboxes = {sandbox.id: sandbox for sandbox in status.sandboxes}
        self._containers = {container.id: container for container in status.containers}
        self._touched: dict[str, str] = {}
        self._ended: dict[str, ReadContainer] = {}
        """Touched containers that were seen to have ended: they are not queried again."""
        self.changed = False
        """Whether a change was requested of the runtime."""

    def sandbox_ready(self, sandbox: SandboxStatus) -> None:
        """A sandbox was made."""
        self.changed = True
        self._sandboxes[sandbox.id] = sandbox

    def sandbox_stopped(self, sandbox_id: str) -> None:
        """A sandbox was stopped."""
        self.changed = True
        if sandbox_id in self._sandboxes:
            self._sandboxes[sandbox_id] = replace(self._sandboxes[sandbox_id], ready=False)

    def touch(self, container_id: str, sandbox_id: str) -> None:
        """A container was created, started or stopped: its state must be queried."""
        self.changed = True
        self._touched[container_id] = sandbox_id
        self._ended.pop(container_id, None)

    def removed(self, container_id: str) -> None:
        """A container's record was removed."""
        self.changed = True
        self._touched.pop(container_id, None)
        self._ended.pop(container_id, None)
        self._containers.pop(container_id, None)

    def now(self, observed_at: int) -> PodRuntimeStatus:
        """The status as recorded, without a call to the runtime."""
        return self._build(self._containers.values(), observed_at)

    async def finished(self, source: StatusSource) -> PodRuntimeStatus:
        """The status after everything done so far.

        Raises:
            CRIError: a touched container could not be queried.
        """
        observed_at = source.now()
        unread = [pair for pair in self._touched.items() if pair[0] not in self._ended]
        read = [*self._ended.values(), *await source.read_containers(unread)]
        ended = [one for one in read if one.status.state == cri.CONTAINER_EXITED]
        self._ended = {one.status.id: one for one in ended}
        untouched = [c for c in self._containers.values() if c.id not in self._touched]
        return self._build([*untouched, *read], observed_at)

    def _build(
        self, containers: Iterable[ReadContainer | ContainerStatus], observed_at: int
    ) -> PodRuntimeStatus:
        status = self._status
        identity = PodIdentity(status.uid, status.name, status.namespace, status.labels)
        return pod_status_from_cri(identity, self._sandboxes.values(), containers, observed_at)
