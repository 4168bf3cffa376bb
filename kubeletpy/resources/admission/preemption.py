"""Which pods are preempted for a critical one that does not fit.

Pure. It selects as few as possible, lower QoS first, and among equals those that request least.
Source: docs/reference/behaviour.md, l.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod, with_disruption
from kubeletpy.pods.resources import QoSClass, is_critical, qos_class
from kubeletpy.resources.admission.fit import PODS, Needs, NeedsOf, pod_needs
from kubeletpy.resources.admission.verdict import UNEXPECTED, Rejection, Shortage

REASON = "Preempting"
MESSAGE = "Preempted in order to admit critical pod"
CONDITION_MESSAGE = "Pod was preempted by Kubelet to accommodate a critical pod."


FAILED_TO_RECOVER = (
    "Unexpected error while attempting to recover from admission failure: "
    "preemption: error finding a set of pods to preempt"
)


class NoVictims(Exception):
    """No set of pods would make room; the message states what is missing."""


def victims(
    pod: Pod, others: Iterable[Pod], shortages: Sequence[Shortage], needs_of: NeedsOf = pod_needs
) -> list[Pod]:
    """The pods to kill to make a critical pod fit.

    Raises:
        NoVictims: there is no such set.
        ValueError: a request is not a quantity.
    """
    missing = {shortage.resource: shortage.missing for shortage in shortages}
    classes: dict[QoSClass, list[Pod]] = {quality: [] for quality in QoSClass}
    for other in others:
        if yields(other, pod):
            classes[qos_class(other)].append(other)
    best_effort = classes[QoSClass.BEST_EFFORT]
    burstable = classes[QoSClass.BURSTABLE]
    # a higher class loses a pod only if all pods of the lower ones together are not enough
    from_guaranteed = _nearest(
        classes[QoSClass.GUARANTEED],
        _less(missing, [*best_effort, *burstable], needs_of),
        needs_of,
    )
    from_burstable = _nearest(
        burstable, _less(missing, [*best_effort, *from_guaranteed], needs_of), needs_of
    )
    from_best_effort = _nearest(
        best_effort, _less(missing, [*from_burstable, *from_guaranteed], needs_of), needs_of
    )
    return [*from_best_effort, *from_burstable, *from_guaranteed]


def victims_or_refusal(
    pod: Pod, others: Iterable[Pod], shortages: Sequence[Shortage], needs_of: NeedsOf = pod_needs
) -> list[Pod] | Rejection:
    """The pods to kill to make a critical pod fit, or why it is rejected.

    Raises ValueError: a request is not a quantity.
    """
    try:
        return victims(pod, others, shortages, needs_of)
    except NoVictims as error:
        return Rejection(UNEXPECTED, f"{FAILED_TO_RECOVER}: {error}")


def yields(other: Pod, pod: Pod) -> bool:
    """Whether ``other`` may be killed for ``pod``: it is not critical, or of lower priority."""
    if is_critical(pod) and not is_critical(other):
        return True
    ours, theirs = pod.spec.get("priority"), other.spec.get("priority")
    return ours is not None and theirs is not None and ours > theirs


def preempted(status: api.PodStatus, now: float, generation: int = 0) -> api.PodStatus:
    """A killed pod's status, with the reason. ``now`` in Unix seconds."""
    conditions = with_disruption(status, CONDITION_MESSAGE, now, generation)
    return {
        **status,
        "phase": "Failed",
        "reason": REASON,
        "message": MESSAGE,
        "conditions": conditions,
    }


def _amount(pod_needs: Needs, resource: str) -> int:
    return 1 if resource == PODS else pod_needs.get(resource, 0)


def _less(missing: Mapping[str, int], pods: Iterable[Pod], needs_of: NeedsOf) -> dict[str, int]:
    """The resources that are still missing once these pods have ended."""
    rest = dict(missing)
    for pod in pods:
        needs = needs_of(pod)
        for resource in rest:
            rest[resource] -= _amount(needs, resource)
    return {resource: amount for resource, amount in rest.items() if amount > 0}


def _nearest(pods: Iterable[Pod], missing: Mapping[str, int], needs_of: NeedsOf) -> list[Pod]:
    """Pods that together free what is missing: each time the one that leaves the least missing."""
    left, rest, chosen = list(pods), dict(missing), list[Pod]()
    while rest:
        if not left:
            raise NoVictims(f"no set of running pods found to reclaim resources: {_text(rest)}")

        def cost(pod: Pod, rest: Mapping[str, int] = rest) -> tuple[float, int, int]:
            needs = needs_of(pod)
            distance = sum(
                (max(0, amount - _amount(needs, resource)) / amount) ** 2
                for resource, amount in rest.items()
            )
            return distance, needs.get("memory", 0), needs.get("cpu", 0)

        best = min(left, key=cost)
        left.remove(best)
        chosen.append(best)
        rest = _less(rest, [best], needs_of)
    return chosen


def _text(missing: Mapping[str, int]) -> str:
    return "[" + "".join(f"(res: {name}, q: {n}), " for name, n in missing.items()) + "]"
