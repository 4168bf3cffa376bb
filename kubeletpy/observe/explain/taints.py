"""The taints of the node that a pod was refused or deleted for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeletpy.observe.explain.facts import NodeTaint
from kubeletpy.pods.disruption import DISRUPTION_TARGET
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission.taints import tolerates, untolerated

REASON = "TaintToleration"
"""The reason for a pod that does not tolerate the node's taints of effect NoExecute."""
BY_TAINT_MANAGER = "DeletionByTaintManager"
"""The reason of the condition that whoever deletes pods for taints sets before."""
EFFECT = "NoExecute"
MAX_TAINTS = 5


def refused_for(
    pod: Pod, status: Mapping[str, Any], node: Mapping[str, Any] | None
) -> tuple[NodeTaint, ...]:
    """Those that the node still has; none for a pod that was not refused for taints."""
    if status.get("reason") != REASON:
        return ()
    return _shown(untolerated(pod, _taints(node), EFFECT))


def deleted_for(pod: Pod, node: Mapping[str, Any] | None) -> tuple[NodeTaint, ...] | None:
    """Those that the node still has; None: the pod was not deleted for taints, as far as is known.

    Without the condition (the cluster's taint manager may be without it) a pod that is deleted
    while the node has a taint that it never tolerates is taken for one.
    """
    if not pod.being_deleted:
        return None
    taints = _taints(node)
    if never := untolerated(pod, taints, EFFECT):
        return _shown(never)
    if not any(_is_taint_managers(each) for each in pod.status.get("conditions") or ()):
        return None
    passing = pod.spec.get("tolerations") or ()
    limited = [each for each in passing if each.get("tolerationSeconds") is not None]
    bounded = Pod({**pod.object, "spec": {**pod.spec, "tolerations": limited}})
    return _shown(
        each for each in taints if each.get("effect") == EFFECT and tolerates(bounded, each)
    )


def _is_taint_managers(condition: Mapping[str, Any]) -> bool:
    return (
        condition.get("type") == DISRUPTION_TARGET
        and condition.get("status") == "True"
        and condition.get("reason") == BY_TAINT_MANAGER
    )


def _taints(node: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = ((node or {}).get("spec") or {}).get("taints") or []
    return found


def _shown(taints: Iterable[Mapping[str, Any]]) -> tuple[NodeTaint, ...]:
    return tuple(
        NodeTaint(str(each.get("key") or ""), str(each.get("value") or ""), str(each["effect"]))
        for each in list(taints)[:MAX_TAINTS]
    )
