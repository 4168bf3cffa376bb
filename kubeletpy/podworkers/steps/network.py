"""The network gate: no sandbox while the runtime has no network, except for host-network pods."""

from __future__ import annotations

from collections.abc import Callable

from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.model import Step
from kubeletpy.podworkers.protocol import SyncOutcome
from kubeletpy.podworkers.sync_step import PodSync, SyncStep


class NetworkGate(SyncStep):
    """Ends the sync of a pod that would need the network."""

    name = Step.NETWORK

    def __init__(self, network_error: Callable[[], str], recorder: EventRecorder) -> None:
        """``network_error``: why pods can't have a network now; empty when they can."""
        self._network_error = network_error
        self._recorder = recorder

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Check the network."""
        error = self._network_error()
        if not error or sync.pod.host_network:
            return None
        message = f"network is not ready: {error}"
        self._recorder.event(pod_reference(sync.pod), WARNING, Reason.NETWORK_NOT_READY, message)
        return SyncOutcome(error=message, network_not_ready=True)
