"""Log messages about the priority of a static pod. Pure.

Source: docs/reference/behaviour.md, s.
"""

from __future__ import annotations

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import NODE_CRITICAL_CLASS

NODE_CRITICAL = 2_000_001_000
_MIRROR = "the API server may refuse the mirror pod"
_REMEDY = f"set priorityClassName {NODE_CRITICAL_CLASS} and priority {NODE_CRITICAL}, or neither"


def priority_warning(pod: Pod) -> str:
    """Why the priority in a static pod's manifest is of no use; empty when it is of use or absent.

    Nothing resolves the class of a static pod, and a pod that is not node-critical counts as
    evictable in the API though the node never evicts it.
    """
    priority, name = pod.spec.get("priority"), pod.spec.get("priorityClassName") or ""
    if priority is None and not name:
        return ""
    if priority is None:
        why = f"priorityClassName without priority has no effect on this node, and {_MIRROR}"
    elif not name:
        why = f"priority without priorityClassName: {_MIRROR} unless it is the default priority"
    elif (priority, name) != (NODE_CRITICAL, NODE_CRITICAL_CLASS):
        why = "the API shows a pod that can be preempted or evicted, but the node never evicts it"
    else:
        return ""
    return f"{why}; {_REMEDY}"
