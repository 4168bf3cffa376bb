"""Collects the resources that a pod is known to have, for the decisions of one sync.

The limits of a pod's own cgroup are read when the agent first finds the pod running: a previous
agent may have died during a resize. They are read again after a resize that failed. Must never
change a limit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod, PodLimitsError
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.plan.resizable import effective_resources
from kubeletpy.runtime_manager.plan.resize import InEffect, ResizePlan
from kubeletpy.runtime_manager.plan.resize_steps import difference
from kubeletpy.runtime_manager.pod_limits import (
    ActuatedResources,
    PodCgroupLimits,
    actuated_containers,
)

logger = logging.getLogger(__name__)


def record_given(records: ActuatedResources, pod: Pod, container: api.Container) -> None:
    """Record what a container is about to be created with.

    Before it is created: an agent that dies then, and comes back, does not treat it as still to be
    resized. Raises ValueError.
    """
    given = effective_resources(pod, container)
    if given or records.get(pod.uid, container["name"]) is not None:
        records.set(pod.uid, container["name"], given)


class ResourcesInEffect:
    """Reads the records, and remembers whose cgroups are known to be right."""

    def __init__(
        self, records: ActuatedResources, limits: PodCgroupLimits, settings: RuntimeSettings
    ) -> None:
        self._records = records
        self._limits = limits
        self._settings = settings
        self._right: set[str] = set()
        """uids of pods whose cgroup has the limits it should have, according to the records."""

    def pod_in_effect(self, pod: Pod, status: PodRuntimeStatus) -> InEffect:
        """The resources in effect for a pod."""
        recorded = self.recorded(pod)
        if recorded.pod_level is None and pod.spec.get("resources") and not status.empty:
            # it is not known what they were: lost, or it had none until now
            self._right.discard(pod.uid)
        return replace(recorded, pod_limits_differ=self._difference(pod, status))

    def recorded(self, pod: Pod) -> InEffect:
        """The resources in effect according to the records alone."""
        return InEffect(
            containers=actuated_containers(self._records, pod),
            pod_level=self._records.get_pod_level(pod.uid),
            volumes=self._records.volumes(pod.uid),
            settings=self._settings,
        )

    def note(self, pod: Pod, plan: ResizePlan) -> None:
        """Record what a plan found to be in effect without a record."""
        for name, resources in plan.adopted:
            self._records.set(pod.uid, name, resources)
        for name, size in plan.volumes.adopted:
            self._records.set_volume(pod.uid, name, size)
        if plan.empty and plan.pod_level is not None:
            self._records.set_pod_level(pod.uid, plan.pod_level)

    def resized(self, uid: str, worked: bool) -> None:
        """A resize was carried out: only if all of it worked the pod's limits need no check."""
        (self._right.add if worked else self._right.discard)(uid)

    def forget_except(self, uids: Iterable[str]) -> None:
        """Drop what is remembered about pods that the runtime no longer has."""
        self._right.intersection_update(uids)

    def _difference(self, pod: Pod, status: PodRuntimeStatus) -> str:
        if pod.uid in self._right:
            return ""
        if status.empty:  # its cgroup has just been created
            self._right.add(pod.uid)
            return ""
        if not status.running_containers:
            return ""
        try:
            wanted = self._limits.requested(pod)
            differs = "" if wanted is None else difference(self._limits.current(pod), wanted)
        except PodLimitsError as error:
            logger.info("limits not known", extra={"pod": pod.key, "why": str(error)})
            differs = ""
        if not differs:
            self._right.add(pod.uid)
        return differs
