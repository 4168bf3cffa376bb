"""What placement asks of who has a resource to give: devices, CPUs, memory.

The topology manager asks each provider where it could give (``hints``), merges the answers, and has
each book what it gives (``allocate``). What a container then gets reaches the runtime by
:class:`kubeletpy.runtime_manager.additions.ContainerProvider`, which a provider is as well.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from kubeletpy.api import types as api
from kubeletpy.placement.hints import Hint, Hints
from kubeletpy.pods.pod import Pod


class ResourceProvider(Protocol):
    """Has something to give that is in a certain place of the machine.

    ``name`` is what people call it: ``devices``, ``cpu``, ``memory``.
    """

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def hints(self, pod: Pod, container: api.Container | None) -> Hints:
        """Where it could give what a container asks for, by resource; nothing is booked.

        Args:
            pod: as it is allocated.
            container: one of its regular and init containers; None: all that the pod needs at once.
        """
        ...

    async def allocate(self, pod: Pod, container: api.Container, hint: Hint) -> None:
        """Book what a container asks for, near to ``hint``, and have it on the disk in one write.

        Of what a container has already nothing changes: after a restart of the agent all pods are
        admitted again. One container at a time; containers of a pod come in the order in which they
        start, init containers first.

        Raises:
            AllocationRefused: it cannot be given; nothing was booked for this container.
        """
        ...

    def release(self, uids: Collection[str]) -> None:
        """Take back what all other pods hold. Must not block.

        Args:
            uids: the pods that use the node, and those of which it is not known yet.
        """
        ...
