"""{root}/pods/{uid} with what kubelet-aware tools expect in it.

Housekeeping removes them, also those of pods that nobody remembers
(:mod:`kubeletpy.podworkers.pod_directories`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.host.errors import machine_fault
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.model import Step
from kubeletpy.podworkers.protocol import SyncOutcome
from kubeletpy.podworkers.sync_step import PodSync, SyncStep


class Directories(SyncStep):
    """Makes a pod's directories."""

    name = Step.DIRECTORIES

    def __init__(self, pods_dir: Path, recorder: EventRecorder) -> None:
        """``pods_dir``: ``{root}/pods``."""
        self._pods_dir = pods_dir
        self._recorder = recorder

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Make the missing ones."""
        uid = sync.pod.uid
        if (self._pods_dir / uid / "plugins").is_dir():
            return None
        try:
            await asyncio.to_thread(_create_directories, self._pods_dir, uid)
        except OSError as error:
            message = f"error making pod data directories: {error}"
            self._recorder.event(pod_reference(sync.pod), WARNING, Reason.FAILED, message)
            return SyncOutcome(error=message, fault=machine_fault(error))
        return None


def _create_directories(pods_dir: Path, uid: str) -> None:
    for path in (pods_dir, pods_dir / uid, pods_dir / uid / "volumes", pods_dir / uid / "plugins"):
        with complete_errors(path):
            path.mkdir(mode=0o750, exist_ok=True)
