"""Additions to a container's config besides its spec, and who provides them.

Variables, mounts and the node's resources allocated to a pod are such additions. A provider is an
object in the list that the composition root hands to the runtime manager, and what it adds is data.
Must never import a provider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.pod import NOWHERE, DeviceNode, Mount, Placement, Pod


class ContainerAdditions(Struct, frozen=True):
    """The additions so far to one container that is about to be made."""

    environment: EnvironmentInputs
    """The inputs of its variables."""
    mounts: Sequence[Mount] = ()
    groups: Sequence[int] = ()
    """Supplemental groups."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations for the runtime."""
    envs: Sequence[tuple[str, str]] = ()
    """Variables of devices. They come first in the runtime's list, so that the container's own wins
    over one of the same name."""
    devices: Sequence[DeviceNode] = ()
    cdi_devices: Sequence[str] = ()
    """Devices that the runtime resolves by name: ``vendor.com/class=name``."""
    placement: Placement = NOWHERE
    """The CPUs and the memory that are its own."""


class ContainerProvider(Protocol):
    """Adds its share for a container."""

    async def provide(
        self,
        pod: Pod,
        container: api.Container,
        pod_ips: tuple[str, ...],
        given: ContainerAdditions,
    ) -> ContainerAdditions:
        """The additions of the providers before it, plus its own.

        Raises:
            ContainerConfigError: the container can't be made; the message is for its owner.
        """
        ...
