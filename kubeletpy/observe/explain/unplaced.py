"""Pods that no node has, and events of others, for lists and pages. Pure.

Works on objects of the API; returns JSON of the shapes that the agent's socket returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubeletpy.observe.explain import from_api
from kubeletpy.observe.explain.moments import api_time
from kubeletpy.observe.explain.texts import one_line

JSON = dict[str, Any]
View = Mapping[str, Any]
STATE = "not scheduled"
FAILED_SCHEDULING = "FailedScheduling"
OURS = "kubelet"
"""Component of the events that a node's agent writes."""


def lines(pods: Sequence[View], events: Iterable[View]) -> list[JSON]:
    """A line for each pod that waits for a scheduler, as in a list of the node's pods.

    ``events``: of any pods; the newest FailedScheduling is used where a pod's status has no reason.
    """
    newest = _failures(events)
    return [
        _line(pod, waiting, newest)
        for pod in pods
        if (waiting := from_api.unscheduled(pod)) is not None
    ]


def _line(pod: View, waiting: from_api.Unscheduled, newest: Mapping[str, View]) -> JSON:
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
    """All about one such pod, as about a pod of the node; None: it waits for no scheduler.

    ``others``: pods of the cluster, to name those that have its host ports.
    """
    waiting = from_api.unscheduled(pod, others)
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


def of_others(events: Iterable[View]) -> list[JSON]:
    """The events of schedulers and controllers, as the agent returns its own: the oldest first."""
    found = [_event(each) for each in events if _component(each) != OURS]
    return sorted(found, key=lambda one: float(one["at"]))


def _verdict(pod: View, verdict: str, failure: View | None) -> str:
    said = from_api.condition_of(pod.get("status") or {}, "PodScheduled").get("message")
    if failure is not None and not said:
        verdict = f"not scheduled: {failure.get('reason')}: {failure.get('message')}"
    return one_line(f"node: none; {verdict}")


def _failures(events: Iterable[View]) -> dict[str, View]:
    """UID of a pod -> its newest FailedScheduling event."""
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
    """Unix seconds; 0: the event has no readable time."""
    return api_time(from_api.last_seen(event)) or 0.0
