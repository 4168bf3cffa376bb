"""Pods that this node refuses to run: what is said about them (docs/reference, rejection).

Pure. Whether a pod is refused is decided elsewhere (admission).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kubeletpy.api import types as api
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.qos import qos_class


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a pod is refused: the reason of its status and event, and a sentence for people."""

    reason: str
    message: str


Admit = Callable[[Pod, Sequence[Pod]], Rejection | None]
"""Judges a pod beside the other active pods of the node."""


def admit_all(pod: Pod, others: Sequence[Pod]) -> Rejection | None:
    """Refuses nothing."""
    return None


def rejected_status(pod: Pod, rejection: Rejection) -> api.PodStatus:
    """The status of a refused pod: Failed until somebody deletes it."""
    status: api.PodStatus = {
        "phase": "Failed",
        "reason": rejection.reason,
        "message": f"Pod was rejected: {rejection.message}",
        "qosClass": qos_class(pod).value,
    }
    if pod.generation:
        status["observedGeneration"] = pod.generation
    return status
