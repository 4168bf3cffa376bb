"""The interface of pods' cgroups to the steps of a pod's life cycle."""

from __future__ import annotations

from typing import Protocol

from kubeletpy.pods.pod import Pod


class PodCgroupKeeper(Protocol):
    """Keeps a cgroup for each pod."""

    def exists(self, pod: Pod) -> bool:
        """Whether the pod's cgroup exists."""
        ...

    async def ensure(self, pod: Pod) -> None:
        """Create the pod's cgroup with its limits if it does not exist. Raises CgroupError."""
        ...

    async def destroy(self, pod: Pod) -> None:
        """Remove the pod's cgroup, killing anything left in it. Raises CgroupError."""
        ...
