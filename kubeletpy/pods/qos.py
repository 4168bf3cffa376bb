"""The QoS class of a pod: who is killed first when memory runs out, and which cgroup it lives in.

Source: docs/reference/behaviour.md, k1; KEP-2837 for pod-level resources.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any

from kubeletpy.base.api.quantity import parse
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import COMPUTE, pod_level_set

NODE_CRITICAL_CLASS = "system-node-critical"
CRITICAL_PRIORITY = 2_000_000_000


class QoSClass(StrEnum):
    """The API's values of status.qosClass."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


_CLASSES = {member.value: member for member in QoSClass}


def qos_class(pod: Pod) -> QoSClass:
    """The class that the API server has set, else the one the spec implies. Raises ValueError."""
    settled = _CLASSES.get(pod.status.get("qosClass") or "")
    return settled if settled is not None else compute_qos_class(pod)


def compute_qos_class(pod: Pod) -> QoSClass:
    """The class from the spec alone: regular and init containers, or pod-level resources if set.

    Raises:
        ValueError: a request or limit is not a quantity.
    """
    pod_level = pod.spec.get("resources")
    holders: list[Mapping[str, Any]]
    if pod_level is not None and pod_level_set(pod):
        holders = [pod_level]
    else:
        holders = [c.get("resources") or {} for c in (*pod.containers, *pod.init_containers)]
    requests: defaultdict[str, Decimal] = defaultdict(Decimal)
    limits: defaultdict[str, Decimal] = defaultdict(Decimal)
    all_limited = True
    for holder in holders:
        _add_positive(requests, holder.get("requests"))
        limited = _add_positive(limits, holder.get("limits"))
        all_limited = all_limited and limited == len(COMPUTE)
    if not requests and not limits:
        return QoSClass.BEST_EFFORT
    if all_limited and requests == limits:
        return QoSClass.GUARANTEED
    return QoSClass.BURSTABLE


def is_critical(pod: Pod) -> bool:
    """Whether the pod is never evicted: static, mirror, or of system-critical priority."""
    return pod.is_static or pod.is_mirror or pod.priority >= CRITICAL_PRIORITY


def is_node_critical(pod: Pod) -> bool:
    """Whether the node itself depends on the pod: it is the last to be OOM-killed."""
    return is_critical(pod) and pod.spec.get("priorityClassName") == NODE_CRITICAL_CLASS


def _add_positive(total: defaultdict[str, Decimal], amounts: Mapping[str, str] | None) -> int:
    """Add positive cpu and memory amounts to ``total``; returns how many there were."""
    found = 0
    for name in COMPUTE:
        text = (amounts or {}).get(name)
        if text is None:
            continue
        amount = parse(text)
        if amount > 0:
            total[name] += amount
            found += 1
    return found
