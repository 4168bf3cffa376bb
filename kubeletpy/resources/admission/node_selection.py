"""Whether a pod's nodeSelector and required node affinity match a node.

Pure. Source: docs/reference/behaviour.md, l; API conventions for node selectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod, matches


def selects(pod: Pod, node: api.Node) -> bool:
    """Whether the node matches what the pod requires."""
    labels = node["metadata"].get("labels") or {}
    for key, value in (pod.spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return False
    affinity: Mapping[str, Any] = (pod.spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return matches(required, labels, node["metadata"].get("name", ""))
