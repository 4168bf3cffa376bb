"""The cgroups of whole pods, as the kernel keeps them: they outlive the agents that write them."""

from __future__ import annotations

import asyncio

from msgspec import structs

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod, PodLimits, PodLimitsError
from kubeletpy.resources.cgroups.values import PodCgroupSettings, pod_resources
from tests.sim.client import Step
from tests.sim.history import History


class PodGroups:
    """Limits of the pods' groups, by uid."""

    def __init__(self, history: History) -> None:
        self.limits: dict[str, PodLimits] = {}
        self.refusal = ""
        """The kernel's error for new limits; empty: it takes them."""
        self._history = history

    def make(self, pod: Pod) -> str:
        """Make a group with the pod's limits; returns the sandbox's cgroup parent (empty)."""
        self.limits.setdefault(pod.uid, requested_limits(pod))
        return ""

    async def write(self, uid: str, limits: PodLimits) -> None:
        """Set the limits that are not None."""
        await asyncio.sleep(0.001)
        if self.refusal:
            raise PodLimitsError(self.refusal)
        supplied = {name: it for name, it in structs.asdict(limits).items() if it is not None}
        self.limits[uid] = replace(self.limits[uid], **supplied)
        self._history.note("kernel", f"pod {uid[:8]} has {supplied}")


class GroupsOfOneLife:
    """The kernel as one life of the agent reaches it: kubeletpy's PodGroups."""

    def __init__(self, groups: PodGroups, step: Step) -> None:
        self._groups = groups
        self._step = step

    def parent(self, pod: Pod) -> str:
        """The cgroup parent of the pod's sandbox."""
        return self._groups.make(pod)

    def requested(self, pod: Pod) -> PodLimits | None:
        """The limits that the pod requests."""
        return requested_limits(pod)

    def current(self, pod: Pod) -> PodLimits:
        """The limits of the pod's group."""
        return self._groups.limits[pod.uid]

    def memory_usage(self, pod: Pod) -> int:
        """Memory in use by the pod: next to nothing."""
        return 1 << 20

    async def write(self, pod: Pod, limits: PodLimits) -> None:
        """Set the limits that are not None."""
        self._step("call", "write cgroup")
        await self._groups.write(pod.uid, limits)
        self._step("answer", "write cgroup")


def requested_limits(pod: Pod) -> PodLimits:
    """The limits of a pod's group, by the rules for real ones."""
    found = pod_resources(pod, PodCgroupSettings())
    return PodLimits(found.shares, found.quota_us, found.period_us, found.memory or None)
