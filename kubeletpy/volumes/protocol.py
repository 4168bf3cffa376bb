"""The interface of the volume manager that the pod workers call. Pure.

Apart from its implementation (:mod:`kubeletpy.volumes.node.node_volumes`): a pod worker, and a test
of one, load no other volume code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kubeletpy.base.host.errors import Cause, CausedError
from kubeletpy.pods.pod import Mount, Pod


class VolumeError(CausedError):
    """A pod's volumes could not be set up; the message names the volume and what to do.

    Attributes:
        reported: events of the pod already report it.
        node_is_full: the node can't attach the pod's volumes: the pod must be rejected.
        cause: that of the first volume that has one.
    """

    def __init__(
        self,
        message: str,
        *,
        reported: bool = False,
        node_is_full: bool = False,
        cause: Cause | None = None,
    ) -> None:
        super().__init__(message, cause)
        self.reported = reported
        self.node_is_full = node_is_full


class VolumeManager(Protocol):
    """Sets up what is mounted into a pod, and tears it down."""

    async def set_up(self, pod: Pod) -> Mapping[str, Sequence[Mount]]:
        """Set up all volumes that the pod uses; returns container name -> mounts.

        Idempotent: called before every sync. Raises VolumeError.
        """
        ...

    async def refresh(self, pod: Pod) -> None:
        """Update the files that a terminating pod's containers have; sets up no other volume.

        Raises VolumeError: some could not be updated.
        """
        ...

    async def tear_down(self, pod_uid: str) -> None:
        """Tear down all volumes of a pod whose containers have exited. Idempotent.

        Raises VolumeError.
        """
        ...

    def release_orphan(self, pod_uid: str) -> None:
        """Tear down what an unknown pod has left on disk. Blocks.

        Raises OSError.
        """
        ...
