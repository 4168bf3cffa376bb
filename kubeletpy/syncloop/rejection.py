"""Pods that this node refuses to run: what is said about them (docs/reference/behaviour.md, a5).

Pure. Whether a pod is refused is decided elsewhere (admission).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kubeletpy.admission.verdict import Rejection
from kubeletpy.api import types as api
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.qos import qos_class

Others = Callable[[], Sequence[Pod]]
"""The other active pods of the node as they are when it is called."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The answer takes a while: await ``settle``; the pod must not be started before."""

    settle: Callable[[Others], Awaitable[Rejection | None]]


Admit = Callable[[Pod, Sequence[Pod]], Rejection | Deferred | None]
"""Judges a pod beside the other active pods of the node; None: it may run."""


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
