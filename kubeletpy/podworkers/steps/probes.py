"""Probe what runs."""

from __future__ import annotations

from kubeletpy.metrics.trace.model import Step
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.protocol import SyncOutcome
from kubeletpy.podworkers.sync_step import PodSync, SyncStep
from kubeletpy.probes.probe_manager import KubeProbeManager


class Probes(SyncStep):
    """Starts and stops the probes of a pod."""

    name = Step.PROBES

    def __init__(self, probes: KubeProbeManager) -> None:
        self._probes = probes

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Start them; those already running go on."""
        self._probes.add_pod(sync.pod)
        return None

    async def release(self, pod: Pod) -> SyncOutcome | None:
        """Stop them."""
        self._probes.remove_pod(pod.uid)
        return None
