"""Explains a pod from the API alone, where its node can't explain it. Pure.

The node is the kubelet's, or does not answer, or there is none yet. Works on the JSON that kubectl
returns; all external text is on one line and without control characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy.observe.explain.codes import CauseCode
from kubeletpy.observe.explain.moments import api_time, clock_time, since
from kubeletpy.observe.explain.texts import one_line, restarts
from kubeletpy.observe.explain.unschedulable import next_step
from kubeletpy.pods.pod import TERMINAL_PHASES
from kubeletpy.status.store import CONTAINER_LISTS

View = Mapping[str, Any]
MAX_EVENTS = 6


def explain(
    pod: View,
    events: Sequence[View],
    node_says: str = "",
    *,
    now: float,
    others: Sequence[View] = (),
) -> str:
    """The lines of the explanation, the answer first.

    Args:
        pod: the object.
        events: of the pod, in any order.
        node_says: why its node explains nothing.
        now: Unix seconds.
        others: see :func:`unscheduled`.
    """
    metadata = pod.get("metadata") or {}
    name = one_line(f"{metadata.get('namespace')}/{metadata.get('name')}")
    lines = [f"{name}: {verdict(pod)}"]
    if node_says:
        lines += ["", f"  {one_line(node_says)}; this is what the API has:"]
    if not_placed := unscheduled(pod, others):
        lines += ["", *not_placed.lines(now)]
    if details := list(_details(pod)):
        lines += ["", *(f"  {one_line(detail)}" for detail in details)]
    if warnings := list(_warnings(events, now)):
        lines += ["", "Warnings", *warnings]
    return "\n".join(lines) + "\n"


def verdict(pod: View) -> str:
    """The best reason in the status for why a pod is not running and ready."""
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
        first_seen: Unix seconds; None: the API does not show it.
    """

    verdict: str
    cause: str
    first_seen: float | None
    waits: str
    hint: str

    def lines(self, now: float) -> Iterator[str]:
        """For the text; ``now`` in Unix seconds."""
        if self.first_seen is not None:
            yield f"  Since      {since(self.first_seen, now)}"
        yield f"  To do      {self.hint}"
        yield f"  Waits for  {self.waits}"


def unscheduled(pod: View, others: Iterable[View] = ()) -> Unscheduled | None:
    """Return None if a node has it, or if it has ended.

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
    for each in sorted(warnings, key=last_seen, reverse=True)[:MAX_EVENTS]:
        at = api_time(last_seen(each))
        parts = ("" if at is None else clock_time(at, now), each.get("reason"), each.get("message"))
        yield "  " + "  ".join(one_line(str(part)) for part in parts)


def last_seen(event: View) -> str:
    """The newest of an event's times, as it is in the object; empty: it has none."""
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
    """The condition of a status of that type; empty: it has none."""
    conditions = status.get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def _joined(*parts: str | None) -> str:
    return ": ".join(part for part in parts if part)
