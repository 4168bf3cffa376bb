"""A static pod's mirror in the API; what goes wrong there never stops the pod."""

from __future__ import annotations

from typing import Protocol

from kubeletpy.metrics.trace.model import Step
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.protocol import SyncOutcome
from kubeletpy.podworkers.sync_step import PodSync, SyncStep


class MirrorKeeper(Protocol):
    """Maintains the API's mirrors of static pods."""

    def reconcile(self, pod: Pod, mirror: Pod | None) -> None:
        """Have the mirror made, replaced or left. Never blocks: the pod needs no API to start."""
        ...


class MirrorPod(SyncStep):
    """Has the mirror created or replaced."""

    name = Step.MIRROR

    def __init__(self, mirrors: MirrorKeeper) -> None:
        self._mirrors = mirrors

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """For static pods only."""
        if sync.pod.is_static:
            self._mirrors.reconcile(sync.pod, sync.mirror)
        return None
