"""A step of a pod's sync: the one interface that every capability of a pod comes in by.

The steps and their order are a list in :mod:`kubeletpy.agent.build`. To add a capability is to add
a file to :mod:`kubeletpy.podworkers.steps` and an entry to that list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kubeletpy.pods.mount import Mount
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.pull_secret import PullSecret
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.protocol import SyncOutcome
from kubeletpy.trace.names import Step


@dataclass(slots=True)
class PodSync:
    """One sync of a pod under way: what its steps hand on to each other."""

    pod: Pod
    mirror: Pod | None
    status: PodRuntimeStatus
    is_terminating: Callable[[], bool]
    """Whether the pod's end was asked for meanwhile: nothing more is started then."""
    mounts: Mapping[str, Sequence[Mount]] = field(default_factory=dict)
    """Container name -> what is mounted into it."""
    pull_secrets: Sequence[PullSecret] = ()


class SyncStep(ABC):
    """One step. It must be able to run again and again, and keep nothing of a single sync."""

    name: Step

    @abstractmethod
    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Do it; an outcome ends the sync, with an error or without."""

    async def release(self, pod: Pod) -> SyncOutcome | None:
        """The pod has ended: give back what this step got for it; an outcome has it tried again.

        Called last step first. Steps that hold nothing for a pod leave this as it is.
        """
        return None
