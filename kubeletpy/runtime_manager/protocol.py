"""The runtime manager as seen by the pod workers, the PLEG and housekeeping."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.pod import NOWHERE, DeviceNode, Mount, Placement, Pod, PodLimits, PullSecret
from kubeletpy.pods.resources import VolumeSizeError
from kubeletpy.pods.runtime_status import (
    Decision,
    PodRuntimeStatus,
    PodSyncResult,
    ProbeResults,
    RuntimeHealth,
    RuntimePodSummary,
)


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


class RuntimeManager(Protocol):
    """Makes the runtime run what a pod requests, and reads back what runs."""

    async def sync_pod(self, request: SyncPodRequest) -> PodSyncResult:
        """Compute the plan and carry it out. Never raises for what a pod can cause."""
        ...

    async def kill_pod(
        self,
        pod: Pod | None,
        status: PodRuntimeStatus,
        grace_override: int | None,
        on_stopped: Callable[[PodRuntimeStatus], None] | None = None,
    ) -> PodSyncResult:
        """Stop all containers (in parallel, sidecars last) and all sandboxes of a pod.

        ``pod`` is None for a pod that only the runtime has. ``grace_override``, in seconds,
        replaces the pod's own grace period. ``on_stopped`` is called with how the containers ended
        while the sandboxes are being stopped.
        """
        ...

    async def get_pod_status(self, uid: str, name: str, namespace: str) -> PodRuntimeStatus:
        """Read all that the runtime has of a pod. Raises remote.errors.CRIError."""
        ...

    async def list_pods(self) -> list[RuntimePodSummary]:
        """Every pod the runtime has, dead ones included. Raises remote.errors.CRIError."""
        ...

    async def delete_container(self, container_id: str) -> None:
        """Remove one dead container with its log link. Raises remote.errors.CRIError."""
        ...

    async def has_containers(self, uid: str) -> bool:
        """Whether the runtime has any container of a pod, dead or alive. Raises CRIError."""
        ...

    async def collect_garbage(
        self,
        *,
        all_sources_ready: bool,
        removable: Callable[[str], bool],
        reported: Callable[[str], bool] = lambda uid: True,
    ) -> int:
        """Remove dead containers and sandboxes beyond what is kept; returns how many containers.

        ``removable(pod_uid)`` states whether everything of that pod may go (docs: GC and eviction),
        ``reported(pod_uid)`` whether the API has how its containers ended.
        """
        ...

    async def health(self) -> RuntimeHealth:
        """Query the runtime's health. Never raises."""
        ...

    @property
    def runtime_name(self) -> str:
        """The runtime's name, as container ids carry it: ``containerd``, ``cri-o``."""
        ...


# Where lifecycle hooks plug in: the interface of the runtime manager, and nothing behind it.
#
# Must never run a hook itself.


class HookFailed(Exception):
    """A hook failed; the text is the container's message and holds no secret."""


class LifecycleHooks(Protocol):
    """Runs the hooks of a container's ``lifecycle``."""

    async def post_start(self, pod: Pod, container: api.Container, container_id: str) -> None:
        """After the start; the rest of the sync waits. Raises HookFailed: the container goes."""
        ...

    async def pre_stop(
        self,
        pod: Pod | None,
        container_name: str,
        container_id: str,
        handler: api.LifecycleHandler,
    ) -> None:
        """Before the stop, within the grace period; the caller cancels it when that is over.

        ``pod`` is None when only the runtime has it. Raises HookFailed: it is reported, and the
        stop goes on.
        """
        ...


# The runtime manager's interfaces to pods' cgroups and to the records of what is in effect.
#
# A resize in place changes the limits of each container, which the runtime sets, and those of the
# pod as a whole, which the agent sets itself. Must never depend on how that is done.

ResizeVolume = Callable[[Pod, str, int], Awaitable[None]]
"""Gives a mounted volume in memory, by name, a size in bytes. Raises VolumeSizeError."""


class PodCgroupLimits(Protocol):
    """Reads and writes the limits of pods' cgroups. All methods raise PodLimitsError."""

    def requested(self, pod: Pod) -> PodLimits | None:
        """The limits that the pod's spec requests; None: pods don't have their own cgroups."""
        ...

    def current(self, pod: Pod) -> PodLimits:
        """The limits that the pod's cgroup has now; every field is set."""
        ...

    def memory_usage(self, pod: Pod) -> int:
        """Bytes that the pod uses now, including page cache."""
        ...

    async def write(self, pod: Pod, limits: PodLimits) -> None:
        """Set the given limits; lowering memory may take the kernel a while."""
        ...


class NoPodCgroupLimits:
    """Where pods don't have their own cgroups (cgroupsPerQOS false)."""

    def requested(self, pod: Pod) -> PodLimits | None:
        """None: only containers are limited."""
        return None

    def current(self, pod: Pod) -> PodLimits:
        """Nothing is limited."""
        return PodLimits()

    def memory_usage(self, pod: Pod) -> int:
        """Nothing is counted."""
        return 0

    async def write(self, pod: Pod, limits: PodLimits) -> None:
        """Nothing can be set."""


async def resize_no_volume(pod: Pod, volume: str, size: int) -> None:
    """Where no volume can be resized."""
    raise VolumeSizeError("the sizes of volumes can't be changed here")


class ActuatedResources(Protocol):
    """The resources that containers and volumes were last given, by pod uid and name.

    To be kept across restarts of the agent: memory requests can be read nowhere else.
    """

    def get(self, uid: str, container: str) -> api.ResourceRequirements | None:
        """The resources that a container was last given; None: not known."""
        ...

    def set(self, uid: str, container: str, resources: api.ResourceRequirements) -> None:
        """A container is given these; they include limits that it only has through its pod."""
        ...

    def get_pod_level(self, uid: str) -> api.ResourceRequirements | None:
        """The resources that a pod as a whole was last given; None: unknown, or never given any."""
        ...

    def set_pod_level(self, uid: str, resources: api.ResourceRequirements) -> None:
        """A pod as a whole is given these."""
        ...

    def volumes(self, uid: str) -> Mapping[str, str]:
        """The sizes that a pod's volumes in memory were last given, by name."""
        ...

    def set_volume(self, uid: str, volume: str, size: str) -> None:
        """A volume in memory is given this size."""
        ...

    def remove(self, uid: str) -> None:
        """A pod was removed."""
        ...


def actuated_containers(
    records: ActuatedResources, pod: Pod
) -> dict[str, api.ResourceRequirements]:
    """The resources that a pod's containers were last given, by name; known ones only."""
    containers = (*pod.init_containers, *pod.containers)
    found = {each["name"]: records.get(pod.uid, each["name"]) for each in containers}
    return {name: supplied for name, supplied in found.items() if supplied is not None}


class ActuatedInMemory:
    """ActuatedResources that live only as long as the agent."""

    def __init__(self) -> None:
        self._containers: dict[str, dict[str, api.ResourceRequirements]] = {}
        self._pods: dict[str, api.ResourceRequirements] = {}
        self._volumes: dict[str, dict[str, str]] = {}

    def get(self, uid: str, container: str) -> api.ResourceRequirements | None:
        """See ActuatedResources."""
        return self._containers.get(uid, {}).get(container)

    def set(self, uid: str, container: str, resources: api.ResourceRequirements) -> None:
        """See ActuatedResources."""
        self._containers.setdefault(uid, {})[container] = resources

    def get_pod_level(self, uid: str) -> api.ResourceRequirements | None:
        """See ActuatedResources."""
        return self._pods.get(uid)

    def set_pod_level(self, uid: str, resources: api.ResourceRequirements) -> None:
        """See ActuatedResources."""
        self._pods[uid] = resources

    def volumes(self, uid: str) -> Mapping[str, str]:
        """See ActuatedResources."""
        return dict(self._volumes.get(uid, {}))

    def set_volume(self, uid: str, volume: str, size: str) -> None:
        """See ActuatedResources."""
        self._volumes.setdefault(uid, {})[volume] = size

    def remove(self, uid: str) -> None:
        """See ActuatedResources."""
        self._volumes.pop(uid, None)
        self._containers.pop(uid, None)
        self._pods.pop(uid, None)


# The interface to the component that watches new sandboxes. Must never depend on which one.


class SandboxWatch(Protocol):
    """Draws conclusions from sandboxes. Must never raise."""

    async def made(self, pod: Pod, sandbox_id: str, handler: str) -> None:
        """The runtime has made a sandbox with a handler; "": the runtime's default one."""
        ...

    def refused(self, pod: Pod, handler: str, error: str) -> None:
        """The runtime has made none; ``error`` is its text."""
        ...


# Additions to a container's config besides its spec, and who provides them.
#
# Variables, mounts and the node's resources allocated to a pod are such additions. A provider is
# an object in the list that the composition root hands to the runtime manager, and what it adds
# is data. Must never import a provider.


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
        supplied: ContainerAdditions,
    ) -> ContainerAdditions:
        """The additions of the providers before it, plus its own.

        Raises:
            ContainerConfigError: the container can't be made; the message is for its owner.
        """
        ...
