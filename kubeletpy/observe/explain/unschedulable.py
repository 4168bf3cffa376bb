"""The next step for a pod that fits on no node, by the reasons in the scheduler's message. Pure.

The reasons are constants of kube-scheduler's plugins; the scheduler of `kubeletpy up` has the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.observe.explain.texts import one_line
from kubeletpy.pods.pod import TERMINAL_PHASES, MalformedPod, Pod
from kubeletpy.resources.admission.host_ports import holders, host_ports

View = Mapping[str, Any]
MAX_HOLDERS = 10
MAX_HINT = 1000
FREE_PORTS = "didn't have free ports"
OTHERWISE = (
    "change what the message names: the pod's requests, nodeSelector, affinity or tolerations, or "
    "a node"
)
_DESCRIBE = "kubectl describe pvc -n {namespace} {claims}"
_STEPS = tuple(
    (re.compile(pattern), step)
    for pattern, step in (
        (FREE_PORTS, "use another hostPort, or end the pod that has it{holders}"),
        (
            r'persistentvolumeclaim "([^"]{1,253})" not found',
            "create PersistentVolumeClaim {found} in namespace {namespace}",
        ),
        (
            r'persistentvolumeclaim "([^"]{1,253})" is being deleted',
            "use another claim in a new pod: {found} is being deleted",
        ),
        (
            r'persistentvolumeclaim "([^"]{1,253})" bound to non-existent',
            "use another claim in a new pod: the PersistentVolume of {found} was deleted",
        ),
        ("unbound immediate PersistentVolumeClaims", f"see why they are not bound: {_DESCRIBE}"),
        (
            "didn't find available persistent volumes to bind",
            "create a PersistentVolume that fits the claim, or name a StorageClass that makes one: "
            f"{_DESCRIBE}",
        ),
        (
            "volume node affinity conflict",
            "use a node that can reach the PersistentVolume: kubectl describe pv",
        ),
        ("ReadWriteOncePod access mode", "end the pod that uses the ReadWriteOncePod claim"),
        (
            r"untolerated taint(?:\(s\))? \{([^}]{1,500})\}",
            "give the pod a toleration for the taint {{{found}}}, or remove the taint from the "
            "node",
        ),
        (r"Insufficient ([\w./-]{0,252}\w)", "request less {found}, or end other pods that use it"),
        ("Too many pods", "end other pods: a node has as many as its maxPods"),
        (
            "node affinity/selector",
            "change the pod's nodeSelector or node affinity{selector}, or the labels of a node: "
            "kubectl get nodes --show-labels",
        ),
        ("pod anti-affinity|pod affinity|topology spread", "change the pod's affinity or spread"),
        ("were unschedulable", "make a node schedulable: kubectl uncordon NODE"),
        ("were not ready", "see why the node is not ready: kubectl describe node"),
        ("no nodes available", "start an agent that registers a node"),
        (r'resourceclaim "([^"]{1,253})" not found', "create ResourceClaim {found}"),
    )
)


def next_step(pod: View, message: str, others: Iterable[View] = ()) -> str:
    """One line on what makes the pod fit.

    Args:
        pod: the object.
        message: the scheduler's.
        others: pods of the cluster, to name those that have the requested host ports.
    """
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    selector = ",".join(f"{key}={value}" for key, value in (spec.get("nodeSelector") or {}).items())
    names = {
        "namespace": metadata.get("namespace"),
        "claims": " ".join(_claims(pod)),
        "selector": f" ({selector})" if selector else "",
        "holders": "",
    }
    if FREE_PORTS in message and (found := list(islice(port_holders(pod, others), MAX_HOLDERS))):
        names["holders"] = f": {'; '.join(dict.fromkeys(found))}"
    steps = (
        step.format(found=match[1] if pattern.groups else "", **names)
        for pattern, step in _STEPS
        for match in pattern.finditer(message)
    )
    return one_line("; ".join(dict.fromkeys(steps)) or OTHERWISE, MAX_HINT)


def wants_host_ports(pod: View) -> bool:
    """Whether a pod requests ports of its node."""
    read = _read(pod)
    return read is not None and any(True for _ in host_ports(read))


def port_holders(pod: View, others: Iterable[View]) -> Iterator[str]:
    """The pods that have a requested host port: ``port 80/TCP: namespace/name on node n1``."""
    wanted = _read(pod)
    for other in others if wanted is not None else ():
        node = (other.get("spec") or {}).get("nodeName")
        ended = (other.get("status") or {}).get("phase") in TERMINAL_PHASES
        holder = None if ended or not node else _read(other)
        if wanted is None or holder is None or holder.uid == wanted.uid:
            continue
        for (_, protocol, number), _ in holders(wanted, [holder]):
            yield f"port {number}/{protocol}: {holder.key} on node {node}"


def _read(pod: View) -> Pod | None:
    try:
        return Pod(cast("api.Pod", pod))
    except MalformedPod:
        return None


def _claims(pod: View) -> Iterator[str]:
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield str(claim.get("claimName"))
        elif volume.get("ephemeral") is not None:
            yield f"{(pod.get('metadata') or {}).get('name')}-{volume.get('name')}"
