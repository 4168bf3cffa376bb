"""Interfaces of the runtime manager: what it offers to others, and what it needs of them.

The pod workers, the PLEG and housekeeping are handed functions of its parts. Cgroups of pods,
records of resources, a watch of sandboxes and additions to containers plug in behind the classes.
Must never import what is behind an interface.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.pod import NOWHERE, DeviceNode, Mount, Placement, Pod, PodLimits, PullSecret
from kubeletpy.pods.resources import VolumeSizeError
from kubeletpy.pods.runtime_status import Decision, PodRuntimeStatus, PodSyncResult, ProbeResults


class SyncPodRequest(Struct, frozen=True):
    """All that one runtime sync bases its decisions on."""

    pod: Pod
    status: PodRuntimeStatus
    probes: ProbeResults = field(default_factory=ProbeResults)
    pull_secrets: Sequence[PullSecret] = ()
    volume_mounts: Mapping[str, Sequence[Mount]] = field(default_factory=dict)
    """Container name -> mounts that the volume manager prepared."""
    api_status: api.PodStatus | None = None
    """The status that the API has or is about to get; None: not known."""
    on_sandbox_ready: Callable[[PodRuntimeStatus], None] | None = None
    """Called once the new sandbox and its IPs are there, before any container starts."""
    on_plan: Callable[[Sequence[Decision]], None] = lambda decisions: None
    """Called with what will be done and why, before it is done; the result has only what is new."""
    is_terminating: Callable[[], bool] = lambda: False
    """Whether termination was requested meanwhile: the sync then starts nothing more."""
    reported: Callable[[], bool] = lambda: True
    """Whether the API has ``status``: records that it still needs are kept until then."""


OnStopped = Callable[[PodRuntimeStatus], None]
"""Called with the pod's status when its containers have ended and its sandboxes are stopping."""
SyncPod = Callable[[SyncPodRequest], Awaitable[PodSyncResult]]
"""Computes the plan of a sync and carries it out (:mod:`.act.executor`)."""
KillPod = Callable[
    [Pod | None, PodRuntimeStatus, int | None, OnStopped | None], Awaitable[PodSyncResult]
]
"""Stops all of a pod, within so many seconds if a number is given (:mod:`.act.kill_pod`)."""
ReadPod = Callable[[str, str, str], Awaitable[PodRuntimeStatus]]
"""Reads all that the runtime has of a pod, by uid, name and namespace. Raises CRIError."""


# Lifecycle hooks


class HookFailed(Exception):
    """A hook failed; the text is the container's message and holds no secret."""


# Resizes in place: limits of pods' cgroups, sizes of volumes, and the records of what is in effect

ResizeVolume = Callable[[Pod, str, int], Awaitable[None]]
"""Gives a mounted volume in memory, by name, a size in bytes. Raises VolumeSizeError."""


class PodCgroupLimits(Protocol):
    """Reads and writes the limits of pods' cgroups. All methods raise PodLimitsError.

    In a resize in place, the runtime sets the limits of each container, and the agent those of the
    pod as a whole.
    """

    def requested(self, pod: Pod) -> PodLimits | None:
        """The limits that the pod's spec requests; None: pods don't have their own cgroups."""

    def current(self, pod: Pod) -> PodLimits:
        """The limits that the pod's cgroup has now; every field is set."""

    def memory_usage(self, pod: Pod) -> int:
        """Bytes that the pod uses now, including page cache."""

    async def write(self, pod: Pod, limits: PodLimits) -> None:
        """Set the given limits; lowering memory may take the kernel a while."""


class NoPodCgroupLimits:
    """PodCgroupLimits for a node whose pods have no cgroups of their own (cgroupsPerQOS false)."""

    def requested(self, pod: Pod) -> PodLimits | None:
        """Return None: only containers are limited."""
        return None

    def current(self, pod: Pod) -> PodLimits:
        """Return no limits, as there is no cgroup."""
        return PodLimits()

    def memory_usage(self, pod: Pod) -> int:
        """Return 0, as there is no cgroup."""
        return 0

    async def write(self, pod: Pod, limits: PodLimits) -> None:
        """Do nothing: there is no cgroup to set limits of."""


async def resize_no_volume(pod: Pod, volume: str, size: int) -> None:
    """Refuse: no volume can be resized here. Raises VolumeSizeError."""
    raise VolumeSizeError("the sizes of volumes can't be changed here")


class ActuatedResources(Protocol):
    """The resources that containers and volumes were last given, by pod uid and name.

    To be kept across restarts of the agent: memory requests can be read nowhere else.
    """

    def get(self, uid: str, container: str) -> api.ResourceRequirements | None:
        """The resources that a container was last given; None: not known."""

    def set(self, uid: str, container: str, resources: api.ResourceRequirements) -> None:
        """A container is given these; they include limits that it only has through its pod."""

    def get_pod_level(self, uid: str) -> api.ResourceRequirements | None:
        """The resources that a pod as a whole was last given; None: unknown, or never given any."""

    def set_pod_level(self, uid: str, resources: api.ResourceRequirements) -> None:
        """A pod as a whole is given these."""

    def volumes(self, uid: str) -> Mapping[str, str]:
        """The sizes that a pod's volumes in memory were last given, by name."""

    def set_volume(self, uid: str, volume: str, size: str) -> None:
        """A volume in memory is given this size."""

    def remove(self, uid: str) -> None:
        """A pod was removed."""


def actuated_containers(
    records: ActuatedResources, pod: Pod
) -> dict[str, api.ResourceRequirements]:
    """The resources that a pod's containers were last given, by name; known ones only."""
    containers = (*pod.init_containers, *pod.containers)
    found = {each["name"]: records.get(pod.uid, each["name"]) for each in containers}
    return {name: supplied for name, supplied in found.items() if supplied is not None}


class SandboxWatch(Protocol):
    """Is notified of the sandboxes that the runtime makes or refuses. Must never raise."""

    async def made(self, pod: Pod, sandbox_id: str, handler: str) -> None:
        """The runtime has made a sandbox with a handler; "": the runtime's default one."""

    def refused(self, pod: Pod, handler: str, error: str) -> None:
        """The runtime has made none; ``error`` is its text."""


# Additions to a container's config besides its spec


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
    """Adds variables, mounts or devices to a container, besides its spec.

    A provider is an object in the list that the composition root passes to the runtime manager.
    """

    async def provide(
        self, pod: Pod, container: api.Container, supplied: ContainerAdditions
    ) -> ContainerAdditions:
        """Return the additions of the providers before it (``supplied``), plus its own.

        Raises:
            ContainerConfigError: the container can't be made; the message is for its owner.
        """
