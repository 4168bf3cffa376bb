"""Explains pods from the API alone: those without a node, or whose node can't explain them. Pure.

A node can't explain a pod if it is the kubelet's, or does not answer. Works on the JSON that
kubectl returns, and returns text, or JSON of the shapes that the agent's socket returns. All
external text is on one line and without control characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.observe.explain.texts import api_time, clock_time, one_line, restarts, since
from kubeletpy.observe.explain.verdict import CauseCode
from kubeletpy.pods.pod import TERMINAL_PHASES, MalformedPod, Pod
from kubeletpy.resources.admission.checks import holders, host_ports
from kubeletpy.status.store import CONTAINER_LISTS

# Hints for a pod that fits on no node, by the reasons in the scheduler's message. The reasons are
# constants of kube-scheduler's plugins; the scheduler of `kubeletpy up` has the same.

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
        (
            r'resourceclaim "([^"]{1,253})" is not allocated',
            "join a cluster, whose kube-scheduler allocates devices, or write status.allocation of "
            "ResourceClaim {found}",
        ),
    )
)


def next_step(pod: View, message: str, others: Iterable[View] = ()) -> str:
    """Return the hint for making the pod fit, on one line.

    Args:
        pod: the object.
        message: of the scheduler.
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
    """Return whether a pod requests ports of its node."""
    read = _read(pod)
    return read is not None and any(True for _ in host_ports(read))


def port_holders(pod: View, others: Iterable[View]) -> Iterator[str]:
    """Yield the pods with a requested host port: ``port 80/TCP: namespace/name on node n1``."""
    desired = _read(pod)
    for other in others if desired is not None else ():
        node = (other.get("spec") or {}).get("nodeName")
        ended = (other.get("status") or {}).get("phase") in TERMINAL_PHASES
        holder = None if ended or not node else _read(other)
        if desired is None or holder is None or holder.uid == desired.uid:
            continue
        for (_, protocol, number), _ in holders(desired, [holder]):
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


# The explanation as text.

MAX_EVENTS = 6


def explain(
    pod: View,
    events: Sequence[View],
    node_error: str = "",
    *,
    now: float,
    others: Sequence[View] = (),
) -> str:
    """Return the text of the explanation, the answer first.

    Args:
        pod: the object.
        events: of the pod, in any order.
        node_error: why its node explains nothing; may be empty.
        now: Unix seconds.
        others: pods of the cluster, to name those that have its host ports.
    """
    metadata = pod.get("metadata") or {}
    name = one_line(f"{metadata.get('namespace')}/{metadata.get('name')}")
    lines = [f"{name}: {verdict(pod)}"]
    if node_error:
        lines += ["", f"  {one_line(node_error)}; this is what the API has:"]
    if not_placed := unscheduled(pod, others):
        lines += ["", *not_placed.lines(now)]
    if details := list(_details(pod)):
        lines += ["", *(f"  {one_line(detail)}" for detail in details)]
    if warnings := list(_warnings(events, now)):
        lines += ["", "Warnings", *warnings]
    return "\n".join(lines) + "\n"


def verdict(pod: View) -> str:
    """Return the best reason in the status for why a pod is not running and ready."""
    status, metadata = pod.get("status") or {}, pod.get("metadata") or {}
    phase = status.get("phase") or "Pending"
    if metadata.get("deletionTimestamp"):
        held = ", ".join(metadata.get("finalizers") or ())
        return one_line(
            "being deleted" + (f"; it waits for its finalizers: {held}" if held else "")
        )
    if phase in TERMINAL_PHASES:
        return one_line(_joined(phase, status.get("reason"), status.get("message")))
    if not (pod.get("spec") or {}).get("nodeName"):
        condition = condition_of(status, "PodScheduled")
        why = _joined(condition.get("reason"), condition.get("message"))
        return one_line(f"not scheduled: {why or 'no scheduler has processed it yet'}")
    waits = next(_waiting(status), "")
    if waits:
        return one_line(waits)
    ready = condition_of(status, "Ready")
    if ready.get("status") == "True":
        return "running and ready"
    why = _joined(ready.get("reason"), ready.get("message"))
    return one_line(f"{phase}, not Ready" + (f": {why}" if why else ""))


class Unscheduled(Struct, frozen=True):
    """A pod that no node has: since when, what it waits for, and what to do about it.

    Attributes:
        first_seen: Unix seconds; None if the API does not show it.
    """

    verdict: str
    cause: str
    first_seen: float | None
    waits: str
    hint: str

    def lines(self, now: float) -> Iterator[str]:
        """Yield the lines of a text; ``now`` in Unix seconds."""
        if self.first_seen is not None:
            yield f"  Since      {since(self.first_seen, now)}"
        yield f"  To do      {self.hint}"
        yield f"  Waits for  {self.waits}"


def unscheduled(pod: View, others: Iterable[View] = ()) -> Unscheduled | None:
    """Return why no node has a pod; None if one has it, or if it has ended.

    ``others``: pods of the cluster, to name those that have its host ports.
    """
    metadata, spec, status = (pod.get(each) or {} for each in ("metadata", "spec", "status"))
    if spec.get("nodeName") or metadata.get("deletionTimestamp") or status.get("phase") == "Failed":
        return None
    condition = condition_of(status, "PodScheduled")
    begun = condition.get("lastTransitionTime") or metadata.get("creationTimestamp")
    scheduler = one_line(spec.get("schedulerName") or "default-scheduler")
    waits = f"scheduler {scheduler}: it tries again when nodes or pods change"
    hint = next_step(pod, str(condition.get("message") or ""), others)
    if not condition:
        waits, hint = f"scheduler {scheduler}", "see whether that scheduler runs, and its log"
    elif condition.get("reason") == "SchedulingGated":
        gates = [str(each.get("name")) for each in spec.get("schedulingGates") or ()]
        waits = one_line(f"its scheduling gates: {', '.join(gates)}")
        hint = "check the controller that has to remove them"
    first = api_time(str(begun)) if begun else None
    return Unscheduled(verdict(pod), CauseCode.UNSCHEDULABLE, first, waits, hint)


def _waiting(status: View) -> Iterator[str]:
    for each in _containers(status):
        waits = (each.get("state") or {}).get("waiting")
        if waits:
            text = _joined(waits.get("reason"), waits.get("message"))
            yield f"container {each.get('name')} waits: {text or 'no reason is given'}"


def _details(pod: View) -> Iterator[str]:
    status = pod.get("status") or {}
    if node := (pod.get("spec") or {}).get("nodeName"):
        yield f"on node {node}"
    for each in _containers(status):
        states = (each.get("lastState") or {}, each.get("state") or {})
        ended = states[0].get("terminated") or states[1].get("terminated")
        if ended and (ended.get("exitCode") or each.get("restartCount")):
            text = _joined(ended.get("reason"), ended.get("message"))
            yield (
                f"container {each.get('name')} ended with exit code {ended.get('exitCode')}, "
                f"{restarts(int(each.get('restartCount') or 0))} so far: {text}"
            )
    for condition in status.get("conditions") or ():
        if condition.get("status") == "False" and condition.get("message"):
            yield f"{condition.get('type')} is False: {condition['message']}"


def _warnings(events: Sequence[View], now: float) -> Iterator[str]:
    warnings = [each for each in events if each.get("type") == "Warning"]
    warnings.sort(key=last_seen, reverse=True)
    for each in warnings[:MAX_EVENTS]:
        at = api_time(last_seen(each))
        parts = ("" if at is None else clock_time(at, now), each.get("reason"), each.get("message"))
        yield "  " + "  ".join(one_line(str(part)) for part in parts)
    ours = (each.get("reason") for each in warnings)
    if known := next((each for each in ours if each in _REASONS), None):
        yield f"  {known} in the documentation: reference/errors.md#{known.lower()}"


def last_seen(event: View) -> str:
    """Return the newest of an event's times as the object has it, or "" if it has none."""
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    return next((str(time) for time in times if time), "")


def _containers(status: View) -> Iterator[View]:
    for field in CONTAINER_LISTS:
        yield from status.get(field) or ()


def condition_of(status: View, kind: str) -> View:
    """Return the condition of that type in a status; it is empty if there is none."""
    conditions = status.get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def _joined(*parts: str | None) -> str:
    return ": ".join(part for part in parts if part)


# Pods without a node as JSON, in lists and pages of the agent's shapes.

JSON = dict[str, Any]
STATE = "not scheduled"
FAILED_SCHEDULING = "FailedScheduling"
_REASONS = frozenset(map(str, Reason))
OURS = "kubelet"
"""The component of the events that a node's agent writes."""


def lines(pods: Sequence[View], events: Iterable[View]) -> list[JSON]:
    """Return a line for each pod that waits for a scheduler, as in a list of the node's pods.

    ``events``: of any pods; the newest FailedScheduling is used where a pod's status has no reason.
    """
    newest = _failures(events)
    return [
        _line(pod, waiting, newest) for pod in pods if (waiting := unscheduled(pod)) is not None
    ]


def _line(pod: View, waiting: Unscheduled, newest: Mapping[str, View]) -> JSON:
    metadata = pod.get("metadata") or {}
    uid = str(metadata.get("uid") or "")
    return {
        "namespace": str(metadata.get("namespace") or ""),
        "name": str(metadata.get("name") or ""),
        "uid": uid,
        "node": None,
        "state": STATE,
        "healthy": False,
        "verdict": _verdict(pod, waiting.verdict, newest.get(uid)),
        "cause": waiting.cause,
        "first_seen": waiting.first_seen,
    }


def explain_unscheduled(
    pod: View, events: Iterable[View], others: Iterable[View] = ()
) -> JSON | None:
    """Return all about a pod that waits for a scheduler, as about a pod of the node; else None.

    ``others``: pods of the cluster, to name those that have its host ports.
    """
    waiting = unscheduled(pod, others)
    if waiting is None:
        return None
    status = pod.get("status") or {}
    wait = {"kind": "scheduler", "subject": "", "why": waiting.waits, "until": None}
    return {
        **_line(pod, waiting, _failures(events)),
        "hint": waiting.hint,
        "final": False,
        "worker": {"state": STATE, "stage": "", "last_error": ""},
        "phase": str(status.get("phase") or "Pending"),
        "ready": False,
        "pod_ips": [],
        "static": False,
        "waits": [{**wait, "since": waiting.first_seen}],
        **{part: [] for part in ("containers", "probes", "decisions", "errors", "exits")},
    }


def events_of_others(events: Iterable[View]) -> list[JSON]:
    """Return events of schedulers and controllers, oldest first, as the agent returns its own."""
    found = [_event(each) for each in events if _component(each) != OURS]
    return sorted(found, key=lambda one: float(one["at"]))


def _verdict(pod: View, verdict: str, failure: View | None) -> str:
    stated = condition_of(pod.get("status") or {}, "PodScheduled").get("message")
    if failure is not None and not stated:
        verdict = f"not scheduled: {failure.get('reason')}: {failure.get('message')}"
    return one_line(f"node: none; {verdict}")


def _failures(events: Iterable[View]) -> dict[str, View]:
    """Return the uid of each pod -> its newest FailedScheduling event."""
    failures = [each for each in events if each.get("reason") == FAILED_SCHEDULING]
    return {
        str((each.get("involvedObject") or {}).get("uid")): each
        for each in sorted(failures, key=_seen_at)
    }


def _event(event: View) -> JSON:
    series = event.get("series") or {}
    count = series.get("count") or event.get("count") or 1
    return {
        "at": _seen_at(event),
        "type": str(event.get("type") or ""),
        "reason": str(event.get("reason") or ""),
        "message": str(event.get("message") or ""),
        "field_path": str((event.get("involvedObject") or {}).get("fieldPath") or ""),
        "count": count if isinstance(count, int) else 1,
        "source": _component(event),
    }


def _component(event: View) -> str:
    source = event.get("source") or {}
    return str(event.get("reportingComponent") or source.get("component") or "")


def _seen_at(event: View) -> float:
    """Return when an event was last seen, in Unix seconds; 0 without a readable time."""
    return api_time(last_seen(event)) or 0.0
