"""The volume manager as the pod workers see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kubeletpy.pods.mount import Mount
from kubeletpy.pods.pod import Pod


class VolumeError(Exception):
    """A pod's volumes could not be set up; the message names the volume and what to do.

    Attributes:
        reported: the pod has events that say so already.
    """

    def __init__(self, message: str, *, reported: bool = False) -> None:
        super().__init__(message)
        self.reported = reported


class VolumeManager(Protocol):
    """Sets up what is mounted into a pod, and takes it down."""

    async def set_up(self, pod: Pod) -> Mapping[str, Sequence[Mount]]:
        """Make all volumes the pod uses, and say what to mount where: container name -> mounts.

        Idempotent: called before every sync. Raises VolumeError.
        """
        ...

    async def tear_down(self, pod_uid: str) -> None:
        """Take down all volumes of a pod whose containers are gone. Idempotent.

        Raises VolumeError.
        """
        ...

    def release_orphan(self, pod_uid: str) -> None:
        """Take down what a pod that nobody knows any more has left on disk. Blocks.

        Raises OSError.
        """
        ...
