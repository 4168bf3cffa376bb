"""Since when a pod is as it is: the first time, not that of the latest try. Pure.

Each moment comes from a record that outlasts the agent, if there is one. Such records are the times
in the API and in the runtime, and the agent's own on disk (:mod:`kubeletpy.observe.explain.kept`).
"""

from __future__ import annotations

from kubeletpy.observe.explain.containers import containers, exits, find_view
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.model import Role, Wait, WaitKind
from kubeletpy.observe.explain.moments import api_time
from kubeletpy.pods.pod import TERMINAL_PHASES
from kubeletpy.podworkers.records import Stage
from kubeletpy.status.conditions import find

_NOT_TRIED = (WaitKind.PROBE, WaitKind.READINESS_GATE, WaitKind.INIT_CONTAINER)
"""Waits in which no try of ours fails: the pod is not Ready yet, or no longer."""
_OWN = (WaitKind.INIT_CONTAINER, WaitKind.IMAGE_PULL)
"""Waits that begin at a moment of their own, however long the pod has not been Ready by then."""


def wrong_since(facts: PodFacts, wait: Wait | None) -> float | None:
    """Unix seconds; None when that is unknown, or reported to be in the future.

    Taken from what outlasts the agent: what it has noted about failures, and the conditions and
    times in the API.

    Args:
        facts: of a pod that is not as it should be.
        wait: what it waits for first.
    """
    found = _wrong_since(facts, wait)
    return None if found is None or found > facts.now else found


def ready_since(facts: PodFacts) -> float | None:
    """When a pod that is Ready became so; None: it is not Ready, or that is unknown.

    The API's condition outlasts the agent; without its time, when the last container started.
    """
    if not facts.ready:
        return None
    begun = [one.since for one in containers(facts) if one.kind is Role.CONTAINER and one.since]
    return _ready_changed(facts) or max(begun, default=None)


def not_ready_since(facts: PodFacts) -> float | None:
    """When the pod ceased to be Ready; None: it is Ready, or that is unknown."""
    return None if facts.ready else _ready_changed(facts)


def asked_to_end(facts: PodFacts) -> float | None:
    """When a pod's end was first requested: deleted, evicted, over its deadline; or None."""
    record = facts.record
    ends = [_deleted_at(facts), facts.ended_at, record.terminating_at if record else None]
    if facts.status.get("reason") == "DeadlineExceeded":
        ends.append(_deadline(facts))
    past = [each for each in ends if each is not None and each <= facts.now]
    return min(past, default=None)


def stopped_at(facts: PodFacts) -> float | None:
    """When all containers of an ending pod had stopped and its end had been requested.

    An agent that found the pod ending observes that anew: the last exit is older than its own time.
    """
    record, asked = facts.record, asked_to_end(facts)
    if record is None or record.terminated_at is None:
        return None
    if asked is None or asked >= record.first_seen_at:
        return record.terminated_at
    finished = [one.finished_at for one in exits(facts) if one.finished_at]
    return min(max([asked, *finished]), record.terminated_at)


def from_first_failure(facts: PodFacts, since: float | None) -> float | None:
    """When a wait began: one that an earlier agent had as well, with the row's first failure."""
    record, first = facts.record, facts.wrong_since
    if since is None or first is None or record is None or first >= record.first_seen_at:
        return since
    return min(first, since)


def _wrong_since(facts: PodFacts, wait: Wait | None) -> float | None:
    record, pod = facts.record, facts.pod
    if record is not None and record.stage is Stage.TERMINATING:
        return asked_to_end(facts)
    if wait is not None and wait.kind is WaitKind.API_WRITE:
        return wait.since
    if wait is not None and wait.kind is WaitKind.RUNTIME and wait.since is not None:
        return wait.since  # whatever was wrong with the pod before
    if (
        record is not None
        and wait is not None
        and (record.stage is Stage.TERMINATED or wait.kind is WaitKind.FINALIZER)
    ):  # all has stopped, and something prevents its removal
        held = (stopped_at(facts), wait.since)
        return max((each for each in held if each is not None), default=None)
    if facts.phase in TERMINAL_PHASES:
        return _ended(facts)
    if wait is None and facts.ready and facts.spared is not None:
        return facts.spared.since + facts.wall_offset
    tried = wait is None or wait.kind not in _NOT_TRIED
    if tried and facts.wrong_since is not None:
        return facts.wrong_since
    unready = not_ready_since(facts)
    view = find_view(facts, wait.subject) if wait is not None else None
    restarted = view is not None and view.restarts  # its latest start does not show its first
    if wait is not None and wait.since is not None and not restarted:
        if wait.kind in _OWN:
            return wait.since
        if wait.kind is WaitKind.PROBE:  # it may have been Ready for long
            return max(wait.since, unready or wait.since)
    begun = (wait.since if wait is not None else None, unready)
    if since := [each for each in begun if each is not None]:
        return min(since)
    if pod is not None and not facts.ready:
        made = api_time(pod.metadata.get("creationTimestamp"))
        return api_time(facts.status.get("startTime")) or made
    return None


def _ended(facts: PodFacts) -> float | None:
    """When a pod ended, or the agent decided that it had to."""
    if facts.status.get("reason") == "DeadlineExceeded" and (over := _deadline(facts)) is not None:
        return over
    if facts.ended_at is not None:  # refused or evicted, perhaps by an earlier agent
        return facts.ended_at
    if facts.status.get("reason") == "Evicted":
        decided = [one.at for one in facts.history if one.decision.ends_pod]
        if decided:
            return decided[0]
    finished = [one.finished_at for one in exits(facts) if one.finished_at]
    began = api_time(facts.status.get("startTime"))
    return max(finished, default=None) or not_ready_since(facts) or began


def _deleted_at(facts: PodFacts) -> float | None:
    """The moment of the deletion: the API has the one at which the grace period is over."""
    about = facts.pod.metadata if facts.pod is not None else {}
    deadline = api_time(about.get("deletionTimestamp"))
    if deadline is None:
        return None
    return deadline - (about.get("deletionGracePeriodSeconds") or 0)


def _deadline(facts: PodFacts) -> float | None:
    """When activeDeadlineSeconds was over."""
    began = api_time(facts.status.get("startTime"))
    limit = facts.pod.spec.get("activeDeadlineSeconds") if facts.pod is not None else None
    return None if began is None or limit is None else began + limit


def _ready_changed(facts: PodFacts) -> float | None:
    found = find(facts.status.get("conditions"), "Ready")
    return None if found is None else api_time(found.get("lastTransitionTime"))
