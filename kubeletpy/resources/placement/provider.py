"""The interface of placement to a provider of resources: devices, CPUs, memory.

The topology manager queries each provider where it could allocate (``hints``), merges the answers,
and then calls ``book`` of each. All this is one step, so that two pods are never promised the same
resources. Slow work follows in ``settle``: files, and device plugins. The allocated resources reach
the runtime through :class:`kubeletpy.runtime_manager.additions.ContainerProvider`, which a provider
implements as well.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.placement.hints import Hint, Hints


class ResourceProvider(Protocol):
    """Has something to allocate that is in a certain place on the machine.

    ``name`` is what people call it: ``devices``, ``cpu``, ``memory``.
    """

    @property
    def name(self) -> str:
        """The provider's name for people."""
        ...

    def hints(self, pod: Pod, container: api.Container | None) -> Hints:
        """Where it could allocate what a container requests, by resource; books nothing.

        Args:
            pod: as it is allocated.
            container: one of its regular and init containers; None: all that the pod needs at once.
        """
        ...

    def is_requested_by(self, pod: Pod) -> bool:
        """Whether a pod requests anything it provides. Raises ValueError: an invalid quantity."""
        ...

    def book(self, pod: Pod, container: api.Container, hint: Hint) -> bool:
        """Reserve what a container requests, near ``hint``; whether there is anything to settle.

        Existing allocations stay unchanged: after a restart of the agent all pods are admitted
        again. Containers of a pod come in the order in which they start, init containers first.
        Must not block.

        Raises:
            AllocationRefused: it cannot be allocated; nothing was booked for this container.
        """
        ...

    async def settle(self, pod: Pod) -> None:
        """Put all that was booked for a pod on the disk in one write; call device plugins.

        Raises:
            AllocationRefused: that failed; none of it is booked any more.
        """
        ...

    def release(self, uids: Collection[str]) -> None:
        """Take back what all other pods hold. Must not block.

        Args:
            uids: the pods that use the node, and those that may.
        """
        ...
