"""Since when something is wrong with a pod: the first time, not that of the latest try. Pure."""

from __future__ import annotations

from kubeletpy.api.times import parse_time
from kubeletpy.explain.containers import containers, exits
from kubeletpy.explain.facts import PodFacts
from kubeletpy.explain.model import Wait, WaitKind
from kubeletpy.podworkers.records import Stage, WorkerRecord

_NOT_TRIED = (WaitKind.PROBE, WaitKind.READINESS_GATE, WaitKind.INIT_CONTAINER)
"""Waits in which no try of ours fails: the pod is not Ready yet, or no longer."""
_OWN = (WaitKind.INIT_CONTAINER, WaitKind.IMAGE_PULL)
"""Waits that begin at a moment of their own, however long the pod has not been Ready by then."""


def wrong_since(facts: PodFacts, wait: Wait | None) -> float | None:
    """Unix seconds; None when that is unknown, or said to be in the future.

    Taken from what outlasts the agent: what it has noted about failures, and the conditions and
    times in the API.

    Args:
        facts: of a pod that is not as it should be.
        wait: what it waits for first.
    """
    found = _wrong_since(facts, wait)
    return None if found is None or found > facts.now else found


def _wrong_since(facts: PodFacts, wait: Wait | None) -> float | None:
    record, pod = facts.record, facts.pod
    if record is not None and record.stage is Stage.TERMINATING:
        asked = (_asked_to_end(facts), record.terminating_at)
        return min((each for each in asked if each is not None), default=None)
    if wait is not None and wait.kind is WaitKind.API_WRITE:
        return wait.since
    if wait is not None and wait.kind is WaitKind.RUNTIME and wait.since is not None:
        return wait.since  # whatever was wrong with the pod before
    if record is not None and wait is not None and _held_up(record, wait):
        held = (record.terminated_at, wait.since)
        return max((each for each in held if each is not None), default=None)
    if facts.phase in ("Failed", "Succeeded"):
        return _ended(facts)
    tried = wait is None or wait.kind not in _NOT_TRIED
    if tried and facts.wrong_since is not None:
        return facts.wrong_since
    if wait is not None and wait.since is not None and not _restarted(facts, wait.subject):
        if wait.kind in _OWN:
            return wait.since
        if wait.kind is WaitKind.PROBE:  # it may have been Ready for long
            return max(wait.since, _condition(facts) or wait.since)
    known = (wait.since if wait is not None else None, _condition(facts))
    if since := [each for each in known if each is not None]:
        return min(since)
    if pod is not None and not facts.ready:
        return _time(facts.status.get("startTime")) or _time(pod.metadata.get("creationTimestamp"))
    return None


def _held_up(record: WorkerRecord, wait: Wait) -> bool:
    """Whether all has stopped, and something keeps it from being gone."""
    return record.stage is Stage.TERMINATED or wait.kind is WaitKind.FINALIZER


def _ended(facts: PodFacts) -> float | None:
    """When a pod ended, or the agent decided that it had to."""
    finished = [one.finished_at for one in exits(facts) if one.finished_at]
    began = _time(facts.status.get("startTime"))
    match facts.status.get("reason"):
        case "DeadlineExceeded" if began is not None and facts.pod is not None:
            limit = facts.pod.spec.get("activeDeadlineSeconds")
            if limit is not None:
                return began + limit
        case "Evicted":
            decided = [one.at for one in facts.history if one.decision.ends_pod]
            if decided:
                return decided[0]
    return max(finished, default=None) or _condition(facts) or began


def _restarted(facts: PodFacts, name: str) -> bool:
    """Whether a container's latest start says nothing about its first."""
    return any(view.name == name and view.restarts for view in containers(facts))


def _asked_to_end(facts: PodFacts) -> float | None:
    """The moment of the deletion: the API has the one at which the grace period is over."""
    about = facts.pod.metadata if facts.pod is not None else {}
    deadline = _time(about.get("deletionTimestamp"))
    if deadline is None:
        return None
    return deadline - (about.get("deletionGracePeriodSeconds") or 0)


def _condition(facts: PodFacts) -> float | None:
    for condition in facts.status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            return _time(condition.get("lastTransitionTime"))
    return None


def _time(text: str | None) -> float | None:
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None
