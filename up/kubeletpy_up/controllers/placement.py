"""Which node a pod fits on, with reasons. Pure.

Must never bind: that is the scheduler's. Source: the default scheduler's filters (NodeResourcesFit,
NodeAffinity, TaintToleration, NodeUnschedulable), as far as a single node needs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from kubeletpy.base.api.quantity import whole
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import TERMINAL_PHASES, Pod, matches
from kubeletpy.pods.resources import requests_in_force
from kubeletpy_up.kinds.pods import amounts, requests_of

_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_NOT_READY: tuple[JSON, ...] = (
    {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
)
"""Taints that follow from the Ready condition."""


class Placement(Struct, frozen=True):
    """``node`` is where the pod fits, or empty; ``message`` is the reason why it fits nowhere."""

    node: str
    message: str = ""


def pick_node(
    pod: JSON,
    nodes: Sequence[JSON],
    pods: Iterable[JSON],
    more_misfits: Callable[[JSON], Iterable[str]] = lambda _: (),
) -> Placement:
    """Choose the first node, by name, that the pod fits on.

    Args:
        pods: all pods.
        more_misfits: why a node can't have the pod's volumes or devices.
    """
    if not nodes:
        return Placement("", "no nodes available to schedule pods")
    bound = [p for p in pods if (p.get("spec") or {}).get("nodeName")]
    counted: Counter[str] = Counter()
    for node in sorted(nodes, key=lambda n: str(n["metadata"]["name"])):
        name = node["metadata"]["name"]
        here = [p for p in bound if p["spec"]["nodeName"] == name]
        reasons = misfits(pod, node, here) or list(more_misfits(node))
        if not reasons:
            return Placement(name)
        counted.update(reasons)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    return Placement("", f"0/{len(nodes)} nodes are available: {listed}.")


def misfits(pod: JSON, node: JSON, bound: Iterable[JSON]) -> list[str]:
    """Why a pod does not fit on a node; empty if it does. ``bound`` are the node's pods."""
    spec: JSON = pod.get("spec") or {}
    node_spec: JSON = node.get("spec") or {}
    tolerations = spec.get("tolerations") or []
    if node_spec.get("unschedulable") and not _tolerated(
        {"key": _UNSCHEDULABLE, "effect": "NoSchedule"}, tolerations
    ):
        return ["node(s) were unschedulable"]
    # it has no taint yet in the first moment
    if not _ready(node) and not any(_tolerated(taint, tolerations) for taint in _NOT_READY):
        return ["node(s) were not ready"]
    for taint in node_spec.get("taints") or ():
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not _tolerated(
            taint, tolerations
        ):
            return [
                f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"
            ]
    if not _selected(spec, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    return _too_big(pod, node, bound) + _port_conflicts(spec, bound)


def _ready(node: JSON) -> bool:
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            return bool(condition.get("status") == "True")
    return False


def _tolerated(taint: JSON, tolerations: Iterable[JSON]) -> bool:
    """Whether a taint is tolerated."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: JSON, taint: JSON) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint.get("key")):
        return False
    if toleration.get("operator") == "Exists":
        return True
    same = (toleration.get("value") or "") == (taint.get("value") or "")
    return same and bool(toleration.get("key"))


def _selected(spec: JSON, node: JSON) -> bool:
    labels: JSON = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity: JSON = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return not required or matches_node(required, node)


def matches_node(selector: JSON, node: JSON) -> bool:
    """Whether a NodeSelector selects a node."""
    about = node["metadata"]
    return matches(selector, about.get("labels") or {}, about["name"])


def _too_big(pod: JSON, node: JSON, bound: Iterable[JSON]) -> list[str]:
    status: JSON = node.get("status") or {}
    room = amounts(status.get("allocatable") or status.get("capacity"))
    desired = {name: amount for name, amount in sorted(requests_of(pod).items()) if amount}
    used: Counter[str] = Counter()
    for other in bound:
        if (other.get("status") or {}).get("phase") not in TERMINAL_PHASES:
            used["pods"] += 1000
            if desired:  # most pods of tests request nothing
                used.update(_taken(other))
    reasons = []
    if used["pods"] + 1000 > room.get("pods", 0):
        reasons.append("Too many pods")
    for name, amount in desired.items():
        if used[name] + amount > room.get(name, 0):
            reasons.append(f"Insufficient {name}")
    return reasons


def _taken(pod: JSON) -> Mapping[str, int]:
    """The most that a pod requests, was allocated or still has, in thousandths."""
    if not (pod.get("status") or {}).get("containerStatuses"):
        return requests_of(pod)
    found = requests_in_force(Pod(pod))  # type: ignore[arg-type]
    return {name: whole(amount * 1000) for name, amount in found.items()}


def _host_ports(spec: JSON) -> set[tuple[str, str, int]]:
    return {
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for container in spec.get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    }


def _port_conflicts(spec: JSON, bound: Iterable[JSON]) -> list[str]:
    desired = _host_ports(spec)
    if not desired:
        return []
    for other in bound:
        if (other.get("status") or {}).get("phase") in TERMINAL_PHASES:
            continue
        for ip, protocol, port in _host_ports(other.get("spec") or {}):
            for my_ip, my_protocol, my_port in desired:
                same_ip = ip == my_ip or "0.0.0.0" in (ip, my_ip)
                if same_ip and (protocol, port) == (my_protocol, my_port):
                    return ["node(s) didn't have free ports for the requested pod ports"]
    return []
