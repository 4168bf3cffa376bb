"""The taints of the node that a pod was refused for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeletpy.admission.taints import untolerated
from kubeletpy.explain.facts import Taint
from kubeletpy.pods.pod import Pod

REASON = "TaintToleration"
"""Of a pod that does not tolerate the node's taints of effect NoExecute."""
MAX_TAINTS = 5


def refused_for(
    pod: Pod, status: Mapping[str, Any], node: Mapping[str, Any] | None
) -> tuple[Taint, ...]:
    """Those that the node still has; none for a pod that was not refused for taints."""
    if status.get("reason") != REASON or node is None:
        return ()
    bad = untolerated(pod, (node.get("spec") or {}).get("taints") or (), "NoExecute")
    return tuple(
        Taint(str(each.get("key") or ""), str(each.get("value") or ""), str(each["effect"]))
        for each in bad[:MAX_TAINTS]
    )
