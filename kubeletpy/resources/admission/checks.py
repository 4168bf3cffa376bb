"""The rules of admission, each by itself, and the values that they take and return. Pure.

They cover resources, host ports, node affinity, sysctls, taints, and preemption for critical pods.
Amounts are whole numbers: cpu in millicores, all else in units, rounded up. Source:
docs/reference/behaviour.md, l, j4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.api.names import UTS, namespace_of, normalize, shared_namespaces
from kubeletpy.base.api.quantity import milli_value, value, whole
from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.errors import Cause
from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.events.reasons import OUT_OF, AdmissionReason
from kubeletpy.pods.pod import Pod, is_sidecar, matches, with_disruption
from kubeletpy.pods.resources import (
    HUGEPAGES_PREFIX,
    Amounts,
    QoSClass,
    is_critical,
    pod_requests,
    qos_class,
    requests_in_force,
)

UNEXPECTED = AdmissionReason.UNEXPECTED_ADMISSION_ERROR


class Rejection(Struct, frozen=True):
    """Why a pod is rejected: the reason for its status and event, and a human-readable message."""

    reason: AdmissionReason
    message: str
    cause: Cause | None = None
    """Why, as data, where advice depends on it; the status has the text alone."""


class Shortage(Struct, frozen=True):
    """A resource that the node has too little of. cpu in millicores, others in units."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        """How much other pods would have to free."""
        return self.requested - (self.capacity - self.used)

    def rejection(self) -> Rejection:
        """The rejection of a pod that does not fit."""
        return Rejection(
            AdmissionReason(f"{OUT_OF}{self.resource}"),
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}",
        )


# The possible verdicts.


class Admitted(Struct, frozen=True):
    """The pod may run."""


class Refused(Struct, frozen=True):
    """The pod may not run here."""

    rejection: Rejection


class AskForNode(Struct, frozen=True):
    """The cached node does not match the pod's affinity: fetch the newest one first.

    ``rejection`` applies if it can't be fetched.
    """

    rejection: Rejection


class Preempt(Struct, frozen=True):
    """A critical pod fits once others are preempted."""

    shortages: tuple[Shortage, ...]


Verdict = Admitted | Refused | AskForNode | Preempt


def predicate(name: AdmissionReason, text: str) -> Rejection:
    """The rejection by one of the scheduler's rules."""
    return Rejection(name, f"Predicate {name} failed: {text}")


# Inputs of admission about the node besides its object: constant unless noted.


class NodeState(Struct, frozen=True):
    """The node's settings and capabilities."""

    allowed_unsafe_sysctls: Sequence[str] = ()
    kernel_version: str = ""
    """The release in ``uname -r``; empty: unknown, then only sysctls safe on every kernel are
    safe."""
    apparmor: bool = True
    """Whether the kernel enforces AppArmor profiles."""
    pod_level_resources: bool = True
    """The feature gate PodLevelResources."""
    declared_features: Sequence[str] | None = None
    """The features that the node declares; None: it declares none, and pods are not checked."""
    version: KubernetesVersion = NEWEST
    """The one whose features a pod may need."""
    pressures: Sequence[str] = ()
    """Pressure conditions that hold now: MemoryPressure, DiskPressure, PIDPressure."""
    in_runtime: Collection[str] = ()
    """Uids of pods that have anything in the runtime; known while there is pressure."""
    lacks_rights: Callable[[Pod], Rejection | None] = lambda pod: None
    """Why this agent, in a user namespace, can't run a pod; None: it can."""


# Resources: whether the node has enough left.

Needs = Mapping[str, int]
NeedsOf = Callable[[Pod], Needs]
PODS = "pods"
NOTHING: Mapping[str, int] = {}
_FIRST = ("cpu", "memory", "ephemeral-storage")


def pod_needs(pod: Pod) -> Needs:
    """The resources of a node that a pod and its claims take while it runs.

    Raises ValueError for an invalid quantity.
    """
    return needs_of_requests(pod_requests(pod, with_claims=True))


def needs_in_force(pod: Pod) -> Needs:
    """The resources that a pod already on the node takes.

    Raises ValueError for an invalid quantity.
    """
    return needs_of_requests(requests_in_force(pod))


def needs_of_requests(requests: Amounts) -> Needs:
    """Requests in whole units, cpu in millicores."""
    return {
        name: whole(amount * 1000 if name == "cpu" else amount) for name, amount in requests.items()
    }


def is_extended(name: str) -> bool:
    """Whether a resource is the cluster owner's own (``vendor.example/gpu``)."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and not (domain == "kubernetes.io" or domain.endswith(".kubernetes.io"))


def no_fewer(allocatable: Mapping[str, str], held: Mapping[str, int]) -> Mapping[str, str]:
    """Allocatable, raised to what is in use: pods may still hold devices that are now missing."""
    more = {name: n for name, n in held.items() if value(allocatable.get(name, "0")) < n}
    return {**allocatable, **{name: str(n) for name, n in more.items()}} if more else allocatable


def shortages(
    pod: Pod, others: Sequence[Pod], allocatable: Mapping[str, str], needs_of: NeedsOf = pod_needs
) -> list[Shortage]:
    """The node's shortages for running the pod beside the others; ``pods`` first.

    Extended resources that the node does not have are not checked here, and neither is what the
    pod's own ResourceClaim provides. Raises ValueError for an invalid quantity.
    """
    found = []
    allowed = value(allocatable.get(PODS, "0"))
    if len(others) + 1 > allowed:
        found.append(Shortage(PODS, 1, len(others), allowed))
    requested = {**needs_of(pod), **_beside_claim(pod)}
    needs = {name: amount for name, amount in requested.items() if amount > 0}
    if not needs:
        return found
    of_others = [needs_of(other) for other in others]
    for name in (*_FIRST, *sorted(name for name in needs if name not in _FIRST)):
        if name not in needs or not _counts(name, allocatable):
            continue
        text = allocatable.get(name, "0")
        capacity = milli_value(text) if name == "cpu" else value(text)
        used = sum(each.get(name, 0) for each in of_others)
        if needs[name] > capacity - used:
            found.append(Shortage(name, needs[name], used, capacity))
    return found


def _beside_claim(pod: Pod) -> Needs:
    """The share that the node's devices must provide of resources partly provided by a claim.

    The scheduler makes the claim, and records which containers get which resource from it.
    """
    status = pod.status.get("extendedResourceClaimStatus") or {}
    mappings = status.get("requestMappings") or ()
    provided = {(each.get("containerName"), each.get("resourceName") or "") for each in mappings}
    if not provided:
        return NOTHING
    spec: dict[str, Any] = {**pod.spec}
    for kind in ("containers", "initContainers"):
        spec[kind] = [_without(each, provided) for each in spec.get(kind) or ()]
    left = pod_needs(Pod(cast("api.Pod", {**pod.object, "spec": spec})))
    return {name: left.get(name, 0) for _, name in provided}


def _without(container: Mapping[str, Any], provided: Set[tuple[str | None, str]]) -> JSON:
    resources = container.get("resources") or {}
    requests = {
        name: text
        for name, text in (resources.get("requests") or {}).items()
        if (container["name"], name) not in provided
    }
    return {**container, "resources": {**resources, "requests": requests}}


def _counts(name: str, allocatable: Mapping[str, str]) -> bool:
    if is_extended(name):
        return name in allocatable
    return name in _FIRST or name.startswith(HUGEPAGES_PREFIX) or "/" in name


# Host ports: whether two pods request the same one.

EVERYWHERE = ("", "0.0.0.0")
"""Addresses that stand for all addresses of the node."""
HostPort = tuple[str, str, int]
"""Address ("" for all), protocol, port."""


def host_ports(pod: Pod) -> Iterator[HostPort]:
    """The host ports that a pod's long-running containers request."""
    sidecars = (container for container in pod.init_containers if is_sidecar(container))
    for container in (*pod.containers, *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or 0
            if number > 0:
                address = port.get("hostIP") or ""
                where = "" if address in EVERYWHERE else address
                yield where, port.get("protocol") or "TCP", number


def holders(pod: Pod, others: Iterable[Pod]) -> Iterator[tuple[HostPort, Pod]]:
    """The requested host ports that other pods have, each with the pod that has it."""
    requested = list(host_ports(pod))
    for other in others if requested else ():
        for have in host_ports(other):
            for port in requested:
                if have[1:] == port[1:] and (not have[0] or not port[0] or have[0] == port[0]):
                    yield port, other


def clash(pod: Pod, others: Iterable[Pod]) -> bool:
    """Whether one of the other pods has a port that the pod requests."""
    return any(True for _ in holders(pod, others))


# Node affinity.


def selects(pod: Pod, node: api.Node) -> bool:
    """Whether the node matches the pod's nodeSelector and required node affinity."""
    labels = node["metadata"].get("labels") or {}
    for key, label in (pod.spec.get("nodeSelector") or {}).items():
        if labels.get(key) != label:
            return False
    affinity: Mapping[str, Any] = (pod.spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return matches(required, labels, node["metadata"].get("name", ""))


# Sysctls: a pod may set those that are namespaced and don't affect other pods.

_SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced": "",
    "net.ipv4.ip_local_port_range": "",
    "net.ipv4.tcp_syncookies": "",
    "net.ipv4.ping_group_range": "",
    "net.ipv4.ip_unprivileged_port_start": "",
    "net.ipv4.ip_local_reserved_ports": "3.16",
    "net.ipv4.tcp_keepalive_time": "4.5",
    "net.ipv4.tcp_keepalive_intvl": "4.5",
    "net.ipv4.tcp_keepalive_probes": "4.5",
    "net.ipv4.tcp_fin_timeout": "4.6",
    "net.ipv4.tcp_rmem": "4.15",
    "net.ipv4.tcp_wmem": "4.15",
    "net.ipv4.tcp_slow_start_after_idle": "4.15",
    "net.ipv4.tcp_notsent_lowat": "4.6",
}
"""Safe sysctl -> the first kernel on which it is namespaced; empty: every kernel."""


def safe_sysctls(kernel_version: str) -> Iterator[str]:
    """The sysctls that are safe on a kernel (``6.1.0-13-amd64``; empty: unknown)."""
    running = _kernel_version(kernel_version)
    for name, since in _SAFE_SYSCTLS.items():
        if running >= _kernel_version(since):
            yield name


def forbidden_sysctl(pod: Pod, unsafe: Iterable[str], kernel_version: str) -> Rejection | None:
    """Return the rejection for a pod's sysctls, or None.

    ``unsafe`` is allowedUnsafeSysctls, already validated.
    """
    context = pod.spec.get("securityContext") or {}
    sysctls = context.get("sysctls") or ()
    allowed = {*safe_sysctls(kernel_version), *map(normalize, unsafe)}
    prefixes = tuple(name.removesuffix("*") for name in allowed if name.endswith("*"))
    for sysctl in sysctls:
        name = normalize(sysctl.get("name") or "")
        problem = _sysctl_problem(pod, name, name in allowed or name.startswith(prefixes))
        if problem:
            return Rejection(AdmissionReason.SYSCTL_FORBIDDEN, f"forbidden sysctl: {problem}")
    return None


def _sysctl_problem(pod: Pod, name: str, allowed: bool) -> str:
    namespace = namespace_of(name, pattern=True)
    if not allowed or namespace is None:
        return f'"{name}" not allowlisted'
    # the kubelet does not require a UTS namespace here
    if namespace in shared_namespaces(pod.spec) - {UTS}:
        return f'"{name}" not allowed with host {namespace} enabled'
    return ""


def _kernel_version(text: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else ()


# Taints.


def untolerated(
    pod: Pod, taints: Iterable[Mapping[str, Any]], effect: str
) -> list[Mapping[str, Any]]:
    """The taints with this effect that the pod does not tolerate."""
    return [each for each in taints if each.get("effect") == effect and not tolerates(pod, each)]


def tolerates(pod: Pod, taint: Mapping[str, Any]) -> bool:
    """Whether one of the pod's tolerations matches a taint; for how long does not matter."""
    return bool(tolerations_of(pod, taint))


def tolerations_of(pod: Pod, taint: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The pod's tolerations that match a taint."""
    tolerations: Iterable[Mapping[str, Any]] = pod.spec.get("tolerations") or ()
    return [each for each in tolerations if _matches_taint(each, taint)]


def _matches_taint(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    for name in ("effect", "key"):
        desired = toleration.get(name)
        if desired and desired != taint.get(name):
            return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return (toleration.get("value") or "") == (taint.get("value") or "")
        case _:
            return False


# Preemption of other pods for a critical one that does not fit.

PREEMPTED_REASON = "Preempting"
PREEMPTED_MESSAGE = "Preempted in order to admit critical pod"
_CONDITION_MESSAGE = "Pod was preempted by Kubelet to accommodate a critical pod."
_FAILED_TO_RECOVER = (
    "Unexpected error while attempting to recover from admission failure: "
    "preemption: error finding a set of pods to preempt"
)


class NoVictims(Exception):
    """No set of pods would make room; the message states what is missing."""


def victims(
    pod: Pod, others: Iterable[Pod], shortages: Sequence[Shortage], needs_of: NeedsOf = pod_needs
) -> list[Pod]:
    """The pods to kill to make a critical pod fit.

    These are as few as possible, of the lowest QoS classes, and among equals those that request
    least.

    Raises:
        NoVictims: there is no such set.
        ValueError: a request is not a quantity.
    """
    missing = {shortage.resource: shortage.missing for shortage in shortages}
    classes: dict[QoSClass, list[Pod]] = {quality: [] for quality in QoSClass}
    for other in others:
        if may_be_preempted(other, pod):
            classes[qos_class(other)].append(other)
    best_effort = classes[QoSClass.BEST_EFFORT]
    burstable = classes[QoSClass.BURSTABLE]
    # a higher class loses a pod only if all pods of the lower ones together are not enough
    from_guaranteed = _nearest(
        classes[QoSClass.GUARANTEED], _less(missing, [*best_effort, *burstable], needs_of), needs_of
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
        return Rejection(UNEXPECTED, f"{_FAILED_TO_RECOVER}: {error}")


def may_be_preempted(other: Pod, pod: Pod) -> bool:
    """Whether ``other`` may be killed for ``pod``: it is not critical, or of lower priority."""
    if is_critical(pod) and not is_critical(other):
        return True
    ours, theirs = pod.spec.get("priority"), other.spec.get("priority")
    return ours is not None and theirs is not None and ours > theirs


def preempted(status: api.PodStatus, now: float, generation: int = 0) -> api.PodStatus:
    """A killed pod's status, with the reason. ``now`` in Unix seconds."""
    conditions = with_disruption(status, _CONDITION_MESSAGE, now, generation)
    return {
        **status,
        "phase": "Failed",
        "reason": PREEMPTED_REASON,
        "message": PREEMPTED_MESSAGE,
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
            raise NoVictims(
                f"no set of running pods found to reclaim resources: {_missing_text(rest)}"
            )

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


def _missing_text(missing: Mapping[str, int]) -> str:
    return "[" + "".join(f"(res: {name}, q: {n}), " for name, n in missing.items()) + "]"
