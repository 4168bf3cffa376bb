"""The prober as seen by the pod workers and the status. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kubeletpy.api import types as api
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.probe_results import ProbeResults
from kubeletpy.probes.report import ProbeReport


class ProbeManager(Protocol):
    """Runs the probes of running pods and keeps their settled results."""

    def add_pod(self, pod: Pod) -> None:
        """Start probing a pod's containers; known ones go on."""
        ...

    def status_stored(self, pod: Pod, status: api.PodStatus) -> None:
        """A pod's status was recomputed: what its probes wait for may have happened."""
        ...

    def stop_liveness_and_startup(self, pod: Pod) -> None:
        """The pod is terminating: stop these probes of its regular containers."""
        ...

    def remove_pod(self, pod_uid: str) -> None:
        """Stop all probes of a pod and forget their results."""
        ...

    def forget_except(self, uids: Iterable[str]) -> None:
        """Remove all pods except these."""
        ...

    def results(self, pod: Pod) -> ProbeResults:
        """The settled results for the containers of a pod."""
        ...

    def reports(self, pod_uid: str) -> tuple[ProbeReport, ...]:
        """The last finding of each probe of a pod, for explain."""
        ...
