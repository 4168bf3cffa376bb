"""What the runtime manager asks of pods' cgroups and of the records of what is in effect.

A pod's resources are changed in place in two spots: the limits of each container, which the runtime
sets, and the limits of the pod as a whole, which the agent sets itself. Must never know how.
"""

from __future__ import annotations

from typing import Protocol

from kubeletpy.api import types as api
from kubeletpy.pods.limits import PodLimits
from kubeletpy.pods.pod import Pod


class PodCgroupLimits(Protocol):
    """Reads and writes the limits of pods' cgroups. All methods raise PodLimitsError."""

    def wanted(self, pod: Pod) -> PodLimits | None:
        """The limits that the pod's spec asks for; None: pods have no cgroups of their own."""
        ...

    def current(self, pod: Pod) -> PodLimits:
        """The limits that the pod's cgroup has now; every field is set."""
        ...

    def memory_usage(self, pod: Pod) -> int:
        """Bytes that the pod uses now, page cache included."""
        ...

    async def write(self, pod: Pod, limits: PodLimits) -> None:
        """Set those limits that are given; to lower memory may take the kernel a while."""
        ...


class NoPodCgroupLimits:
    """Where pods have no cgroups of their own (cgroupsPerQOS false)."""

    def wanted(self, pod: Pod) -> PodLimits | None:
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
    """Which resources containers were last given, by pod uid and container name.

    To be kept across restarts of the agent: requests of memory can be seen nowhere else.
    """

    def get(self, uid: str, container: str) -> api.ResourceRequirements | None:
        """What a container was last given; None: not known."""
        ...

    def set(self, uid: str, container: str, resources: api.ResourceRequirements) -> None:
        """A container is given these; limits that it has only from its pod are among them."""
        ...

    def get_pod_level(self, uid: str) -> api.ResourceRequirements | None:
        """What a pod as a whole was last given; None: not known, or never anything."""
        ...

    def set_pod_level(self, uid: str, resources: api.ResourceRequirements) -> None:
        """A pod as a whole is given these."""
        ...

    def remove(self, uid: str) -> None:
        """A pod is gone."""
        ...


class ActuatedInMemory:
    """ActuatedResources that end with the agent."""

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
