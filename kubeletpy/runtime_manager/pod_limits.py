"""The runtime manager's interfaces to pods' cgroups and to the records of what is in effect.

A resize in place changes the limits of each container, which the runtime sets, and those of the pod
as a whole, which the agent sets itself. Must never depend on how that is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod, PodLimits
from kubeletpy.pods.resources import VolumeSizeError

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
    return {name: given for name, given in found.items() if given is not None}


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
