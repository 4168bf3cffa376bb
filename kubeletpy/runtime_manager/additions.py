"""What containers get besides what their spec says: the joint for who adds to their config.

Variables and mounts come in here, and so does what a pod has been given of the node: a provider is
an object in the list that the composition root hands to the runtime manager, and what it adds is
data. Must never import who provides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kubeletpy.api import types as api
from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.granted import NOWHERE, Device, Placement
from kubeletpy.pods.mount import Mount
from kubeletpy.pods.pod import Pod


@dataclass(frozen=True, slots=True)
class ContainerAdditions:
    """What has been added to one container that is about to be made."""

    environment: EnvironmentInputs
    """What its variables are made of."""
    mounts: Sequence[Mount] = ()
    groups: Sequence[int] = ()
    """Supplemental groups."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """For the runtime."""
    envs: Sequence[tuple[str, str]] = ()
    """Variables of devices. They come first in the runtime's list, so that of two with one name
    the container's own is in force."""
    devices: Sequence[Device] = ()
    cdi_devices: Sequence[str] = ()
    """Devices that the runtime knows by name: ``vendor.com/class=name``."""
    placement: Placement = NOWHERE
    """Which CPUs and which memory are its own."""


class ContainerProvider(Protocol):
    """Adds what it has for a container."""

    async def provide(
        self,
        pod: Pod,
        container: api.Container,
        pod_ips: tuple[str, ...],
        given: ContainerAdditions,
    ) -> ContainerAdditions:
        """What those before it have given, with its own.

        Raises:
            ContainerConfigError: the container can't be made; the message is for its owner.
        """
        ...
