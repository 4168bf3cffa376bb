"""The prober as the pod workers and the status see it."""

from __future__ import annotations

from typing import Protocol

from kubeletpy.pods.pod import Pod
from kubeletpy.runtime_manager.protocol import ProbeResults


class ProbeManager(Protocol):
    """Runs the probes of running pods and keeps their settled results."""

    def add_pod(self, pod: Pod) -> None:
        """Start probing a pod's containers; known ones go on."""
        ...

    def stop_liveness_and_startup(self, pod: Pod) -> None:
        """Stop those probes of regular containers: the pod terminates."""
        ...

    def remove_pod(self, pod_uid: str) -> None:
        """Stop all probes of a pod and forget their results."""
        ...

    def results(self, pod: Pod) -> ProbeResults:
        """The settled results for the containers of a pod."""
        ...
