"""The prober of an agent that does not probe yet.

It has no results, so a container with a readiness or startup probe is never reported ready or
started: nobody has looked. Said once per pod in an event, so that the reason can be found.
"""

from __future__ import annotations

from kubeletpy.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.pods.pod import Pod
from kubeletpy.runtime_manager.protocol import ProbeResults

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


class AbsentProbes:
    """:class:`~kubeletpy.probes.protocol.ProbeManager` that never has a result."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._told: set[str] = set()

    def add_pod(self, pod: Pod) -> None:
        """Tell once that the pod's probes are not run."""
        if pod.uid in self._told:
            return
        self._told.add(pod.uid)
        found = [
            f"{kind} of {container['name']}"
            for _, container in pod.all_containers()
            for kind in PROBES
            if kind in container
        ]
        if found:
            self._recorder.event(
                pod_reference(pod),
                WARNING,
                "ProbeNotSupported",
                f"This version of kubeletpy does not run probes: {', '.join(found)}; a container "
                "with a startup or readiness probe is not reported ready",
            )

    def stop_liveness_and_startup(self, pod: Pod) -> None:
        """Nothing runs."""

    def remove_pod(self, pod_uid: str) -> None:
        """Forget that the pod was told."""
        self._told.discard(pod_uid)

    def results(self, pod: Pod) -> ProbeResults:
        """No results."""
        return ProbeResults()
