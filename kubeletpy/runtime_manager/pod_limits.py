"""What the runtime manager needs from pods' cgroups and from the records of what is in effect.

A pod's resources are changed in place in two spots: the limits of each container, which the runtime
sets, and the limits of the pod as a whole, which the agent sets itself. Must never depend on how
that is done.
"""

from __future__ import annotations

from typing import Protocol

from kubeletpy.api import types as api
from kubeletpy.pods.limits import PodLimits
from kubeletpy.pods.pod import Pod


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


class ActuatedResources(Protocol):
    """The resources that containers were last given, by pod uid and container name.

    To be kept across restarts of the agent: memory requests can be read nowhere else.
    """

    def get(self, uid: str, container: str) -> api.ResourceRequirements | None:
        """What a container was last given; None: not known."""
        ...

    def set(self, uid: str, container: str, resources: api.ResourceRequirements) -> None:
        """A container is given these; they include limits that it only has through its pod."""
        ...

    def get_pod_level(self, uid: str) -> api.ResourceRequirements | None:
        """What a pod as a whole was last given; None: unknown, or never given anything."""
        ...

    def set_pod_level(self, uid: str, resources: api.ResourceRequirements) -> None:
        """A pod as a whole is given these."""
        ...

    def remove(self, uid: str) -> None:
        """A pod was removed."""
        ...


class ActuatedInMemory:
    """ActuatedResources that live only as long as the agent."""

    def __init__(self) -> None:
        self._containers: dict[str, dict[str, api.ResourceRequirements]] = {}
        self._pods: dict[str, api.ResourceRequirements] = {}

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

    def remove(self, uid: str) -> None:
        """See ActuatedResources."""
        self._containers.pop(uid, None)
        self._pods.pop(uid, None)
