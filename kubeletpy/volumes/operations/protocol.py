"""Who carries volume operations out, and what surrounds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.attach.attached import Attached
from kubeletpy.volumes.claims.model import VolumeSpec, Waits
from kubeletpy.volumes.operation import OperationFailed
from kubeletpy.volumes.operations.model import Operation, PodDemand, Volume
from kubeletpy.volumes.operations.outcome import Done
from kubeletpy.volumes.plugin import VolumePlugin


class CarryOut(Protocol):
    """Does one operation. Raises OperationFailed."""

    async def __call__(
        self,
        operation: Operation,
        plugin: VolumePlugin,
        pod: Pod | None,
        alone: bool,
        attached: Attached | None,
    ) -> Done: ...


class Listener(Protocol):
    """Is notified of what became of operations: events, metrics."""

    def ended(
        self, operation: Operation, pod: Pod | None, seconds: float, failed: OperationFailed | None
    ) -> None:
        """An operation ended."""
        ...

    def counted(self, demands: Sequence[PodDemand], actual: Mapping[str, Volume]) -> None:
        """What is wanted and what is there has changed."""
        ...


class Surroundings(Protocol):
    """What operations ask of the node."""

    def attachment(self, spec: VolumeSpec) -> Attached | Waits:
        """Whether a volume is attached."""
        ...

    def blocked(self, spec: VolumeSpec) -> Waits | None:
        """What keeps a volume from this node (table sf, 2)."""
        ...

    def in_use(self) -> frozenset[str] | None:
        """What the API shows as in use by this node; None: it has not shown the node yet."""
        ...
