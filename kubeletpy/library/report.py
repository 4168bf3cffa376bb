"""The report of a namespace for a failed test. Pure: short of a screen, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kubeletpy.base.api.types import JSON
from kubeletpy.status.conditions import is_ready

MAX_PODS = 5
"""Pods that are explained; others have a line each, up to MAX_LINES."""
MAX_LINES = 20
MAX_EVENTS = 20
MAX_WIDTH = 300
"""Characters of a line."""


def namespace_report(
    pods: Sequence[JSON], events: Sequence[JSON], explained: Mapping[str, str]
) -> str:
    """Return the explanations of unhealthy pods, a line for each other pod, and the events.

    Args:
        pods: of the namespace.
        events: of it, in any order; the newest are shown.
        explained: by uid, what their nodes explain about pods.
    """
    lines: list[str] = []
    troubled = [pod for pod in pods if not _is_well(pod)]
    for pod in troubled[:MAX_PODS]:
        text = explained.get(pod["metadata"]["uid"]) or _line(pod)
        lines += [*(line for line in text.splitlines() if line), ""]
    others = [*troubled[MAX_PODS:], *(pod for pod in pods if _is_well(pod))]
    lines += [*map(_line, others[:MAX_LINES]), *_more(others[MAX_LINES:], "pods")]
    events = sorted(events, key=_time)
    if events:
        lines += ["events:", *_more(events[:-MAX_EVENTS], "earlier events")]
        lines += map(_event, events[-MAX_EVENTS:])
    if not pods:
        lines.insert(0, "it has no pods")
    return "\n".join(line if len(line) <= MAX_WIDTH else f"{line[:MAX_WIDTH]}…" for line in lines)


def _is_well(pod: JSON) -> bool:
    status = pod.get("status", {})
    return status.get("phase") == "Succeeded" or is_ready(status)


def _line(pod: JSON) -> str:
    status, node = pod.get("status", {}), pod["spec"].get("nodeName")
    words = [status.get("phase") or "Pending", *([] if node else ["on no node"])]
    words += filter(None, (status.get("reason"), status.get("message")))
    return f"pod {pod['metadata']['name']}: {', '.join(words)}"


def _time(event: JSON) -> str:
    made = event["metadata"].get("creationTimestamp")
    return str(event.get("lastTimestamp") or event.get("eventTime") or made or "")


def _event(event: JSON) -> str:
    about, count = event.get("involvedObject") or event.get("regarding") or {}, event.get("count")
    message = " ".join(str(event.get("message") or event.get("note") or "").split())
    times = f" ({count} times)" if (count or 1) > 1 else ""
    subject = f"{str(about.get('kind', '')).lower()} {about.get('name', '')}"
    return f"  {_time(event)[11:19]} {subject}: {event.get('reason', '')}: {message}{times}"


def _more(left_out: Sequence[JSON], kind: str) -> Iterator[str]:
    if left_out:
        yield f"  ({len(left_out)} more {kind})"
