"""The interfaces of volume operations: who carries them out, and who is notified."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.attached import Attached
from kubeletpy.volumes.claims.on_disk import Found
from kubeletpy.volumes.claims.operation import OperationFailed
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.operations.model import Operation, PodDemand, Volume
from kubeletpy.volumes.operations.outcome import OperationDone

CarryOut = Callable[
    [Operation, VolumePlugin, Pod | None, bool, Attached | None], Awaitable[OperationDone]
]
"""Does one operation for a pod (None: removed): whether no other pod has the volume, and its
attachment. Raises OperationFailed."""


class OperationListener(Protocol):
    """Is notified of the results of operations: events, metrics."""

    def ended(
        self, operation: Operation, pod: Pod | None, seconds: float, failed: OperationFailed | None
    ) -> None:
        """An operation ended."""
        ...

    def leftovers_found(self, found: Found) -> None:
        """These are a plugin's volumes left by a previous agent."""
        ...

    def counted(self, demands: Sequence[PodDemand], actual: Mapping[str, Volume]) -> None:
        """The desired or the existing volumes have changed."""
        ...
