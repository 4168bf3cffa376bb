"""What the verbs of a pod's life ask of pods' cgroups."""

from __future__ import annotations

from typing import Protocol

from kubeletpy.pods.pod import Pod


class PodCgroupKeeper(Protocol):
    """Keeps a cgroup for each pod."""

    def exists(self, pod: Pod) -> bool:
        """Whether the pod's cgroup is there."""
        ...

    def ensure(self, pod: Pod) -> None:
        """Make the pod's cgroup with its limits if it is not there. Raises CgroupError."""
        ...

    async def destroy(self, pod: Pod) -> None:
        """Remove the pod's cgroup, killing what is left in it. Raises CgroupError."""
        ...
