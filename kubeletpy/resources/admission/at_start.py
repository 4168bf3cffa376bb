"""Predicts which pods of a node its agent would not admit at its next start. Pure.

A start admits each pod anew, whether or not it runs, in the order of :func:`seniority`. A running
pod that no longer fits ends: its node's labels or taints have changed, or the node offers less. The
kubelet does the same. Source: docs/reference/behaviour.md, l.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission import checks
from kubeletpy.resources.admission.handlers import before_placement, judge


class Refusal(Struct, frozen=True):
    """Why a pod would end: the reason that its status would get, and a message."""

    reason: str
    message: str

    @property
    def text(self) -> str:
        """The reason and the message, as one line."""
        return f"{self.reason}: {self.message}"


def seniority(pod: Pod) -> tuple[bool, str]:
    """The sort key by which pods are admitted: accepted ones first, and of these the oldest."""
    return not pod.status.get("startTime"), pod.metadata.get("creationTimestamp") or ""


def judge_any(
    pod: Pod,
    others: Sequence[Pod],
    node: api.Node | None,
    state: checks.NodeState,
    *,
    node_is_newest: bool,
    needs_of: checks.NeedsOf,
    held: Mapping[str, int],
) -> checks.Verdict:
    """Judge a pod, and refuse it for an invalid quantity, which ``judge`` raises.

    ``needs_of`` is for the others; the pod itself takes what it requests.
    """
    try:
        return judge(
            pod,
            others,
            node,
            state,
            node_is_newest=node_is_newest,
            needs_of=lambda each: checks.pod_needs(pod) if each is pod else needs_of(each),
            held=held,
        )
    except ValueError as error:
        return checks.Refused(checks.Rejection(checks.UNEXPECTED, f"{error}, which is unexpected."))


def refused_at_start(
    pods: Iterable[Pod],
    node: api.Node | None,
    state: checks.NodeState,
    *,
    held: Callable[[str], Mapping[str, int]] = lambda uid: checks.NOTHING,
    needs_of: checks.NeedsOf = checks.needs_in_force,
    place: Callable[[Pod], checks.Rejection | None] = lambda pod: None,
) -> dict[str, Refusal]:
    """Return the pods that would not be admitted, or would be preempted, by uid.

    Args:
        pods: all of the node without mirrors, as they are allocated. Static pods come first: their
            manifests are read before the API answers.
        node: the Node object, with the amounts that the agent would write.
        held: how many devices are in use, by resource, if the pod with this uid has some.
        needs_of: the resources that a pod on the node takes.
        place: assigns a pod its position on the machine, in this order, or refuses it.
    """
    admitted: list[Pod] = []
    waiting: list[Pod] = []
    refused: dict[str, Refusal] = {}

    def verdict(pod: Pod, *, last: bool) -> checks.Verdict:
        return judge_any(
            pod,
            admitted,
            node,
            state,
            node_is_newest=last,
            needs_of=needs_of,
            held=held(pod.uid),
        )

    def settle(pod: Pod, found: checks.Verdict) -> None:
        match found:
            case checks.Admitted():
                admitted.append(pod)
            case checks.Refused(rejection) | checks.AskForNode(rejection):
                refused[pod.uid] = Refusal(rejection.reason, rejection.message)
            case checks.Preempt(shortages):
                chosen = checks.victims_or_refusal(pod, admitted, shortages, needs_of)
                if isinstance(chosen, checks.Rejection):
                    refused[pod.uid] = Refusal(chosen.reason, chosen.message)
                    return
                for victim in chosen:
                    admitted.remove(victim)
                    refused[victim.uid] = Refusal(
                        checks.PREEMPTED_REASON, f"{checks.PREEMPTED_MESSAGE} {pod.key}"
                    )
                admitted.append(pod)

    for pod in sorted(pods, key=lambda each: (not each.is_static, *seniority(each))):
        if pod.is_terminal_in_api:
            continue
        rejection = before_placement(pod, state) or place(pod)
        found = checks.Refused(rejection) if rejection else verdict(pod, last=False)
        if isinstance(found, checks.Preempt | checks.AskForNode):
            waiting.append(pod)  # it is settled once all others are known
        else:
            settle(pod, found)
    for pod in waiting:
        settle(pod, verdict(pod, last=True))
    return refused
