"""A step of a pod's sync: the one interface through which every pod capability comes in.

The steps and their order are a list in :mod:`kubeletpy.agent.core`. To add a capability, add a
file to :mod:`kubeletpy.podworkers.steps` and an entry to that list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from kubeletpy.base.structs import Struct, field
from kubeletpy.metrics.trace.model import Step
from kubeletpy.pods.pod import Mount, Pod, PullSecret
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.protocol import SyncOutcome


class PodSync(Struct):
    """One sync of a pod in progress: what its steps hand on to each other."""

    pod: Pod
    mirror: Pod | None
    status: PodRuntimeStatus
    is_terminating: Callable[[], bool]
    """Whether the pod's end was requested meanwhile: nothing more is started then."""
    mounts: Mapping[str, Sequence[Mount]] = field(default_factory=dict)
    """Container name -> what is mounted into it."""
    pull_secrets: Sequence[PullSecret] = ()
    pull_failed: Callable[[], None] | None = None
    """Reports the pull secrets that are missing; called once a pull has failed."""


class SyncStep(ABC):
    """One step. It must be repeatable and keep nothing of a single sync."""

    name: Step

    @abstractmethod
    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Run the step; an outcome ends the sync, with or without an error."""

    async def keep_up(self, pod: Pod) -> None:
        """The pod terminates, its containers still run: update what they read.

        Called now and then, and when something changes. Never raises for what can't be updated.
        """
        return

    async def release(self, pod: Pod) -> SyncOutcome | None:
        """The pod has ended: release what this step got for it; with an outcome it is retried.

        Called in reverse order of the steps. Steps that hold nothing for a pod don't override it.
        """
        return None
