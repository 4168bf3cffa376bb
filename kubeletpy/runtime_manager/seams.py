"""What the runtime manager asks of the rest of the agent while it makes sandboxes and containers.

All of it comes in from the composition root; the defaults are those of a node without it. Must
never import what stands behind these.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from kubeletpy.api import types as api
from kubeletpy.pods.config_errors import SandboxConfigError
from kubeletpy.pods.downward import NodeFacts
from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.mount import Mount
from kubeletpy.pods.pod import Pod
from kubeletpy.runtime_manager.config.dns import ResolverConfig
from kubeletpy.runtime_manager.config.namespaces import UserNamespaceRange
from kubeletpy.runtime_manager.hooks import LifecycleHooks, NoHooks
from kubeletpy.runtime_manager.pod_limits import (
    ActuatedInMemory,
    ActuatedResources,
    NoPodCgroupLimits,
    PodCgroupLimits,
)


async def _default_handler_only(pod: Pod) -> str:
    if name := pod.spec.get("runtimeClassName"):
        raise SandboxConfigError(f'RuntimeClass "{name}" not found')
    return ""


async def _own_addresses_only(
    pod: Pod, container: api.Container, pod_ips: tuple[str, ...]
) -> EnvironmentInputs:
    return EnvironmentInputs(facts=NodeFacts(pod_ips=pod_ips))


async def _as_they_are(
    pod: Pod,
    container: api.Container,
    pod_ips: tuple[str, ...],
    environment: EnvironmentInputs,
    mounts: Sequence[Mount],
) -> Sequence[Mount]:
    return mounts


@dataclass(frozen=True, slots=True)
class Seams:
    """The joints."""

    runtime_handler: Callable[[Pod], Awaitable[str]] = _default_handler_only
    """The CRI handler of a pod's RuntimeClass, "" for the default one.

    Raises SandboxConfigError: there is no such class.
    """
    cgroup_parent: Callable[[Pod], str] = lambda pod: ""
    """The pod's cgroup as the runtime's driver names it."""
    user_namespace: Callable[[Pod], UserNamespaceRange | None] = lambda pod: None
    """The ids that a pod with hostUsers false is mapped to; None: there are none for it.

    Raises an error that is both a SandboxConfigError and a ContainerConfigError.
    """
    environment: Callable[[Pod, api.Container, tuple[str, ...]], Awaitable[EnvironmentInputs]] = (
        _own_addresses_only
    )
    """What a container's variables are made of, given the pod's addresses.

    Raises ContainerConfigError: an object could not be read.
    """
    mounts: Callable[
        [Pod, api.Container, tuple[str, ...], EnvironmentInputs, Sequence[Mount]],
        Awaitable[Sequence[Mount]],
    ] = _as_they_are
    """Completes what is mounted into a container that is about to start: parts of volumes, files
    that depend on the pod's addresses.

    Raises ContainerConfigError: a mount cannot be had.
    """
    host_dns: Callable[[], ResolverConfig | None] = ResolverConfig
    """The host's resolver configuration; None when the agent is to use none."""
    hooks: LifecycleHooks = field(default_factory=NoHooks)
    actuated: ActuatedResources = field(default_factory=ActuatedInMemory)
    """Which resources containers and pods were last given."""
    pod_limits: PodCgroupLimits = field(default_factory=NoPodCgroupLimits)
