"""Composes the explanation of a pod from the facts about it. Pure: the facts carry the time."""

from __future__ import annotations

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.structs import replace
from kubeletpy.metrics.trace.model import PodTrace
from kubeletpy.observe.explain.advice import advice
from kubeletpy.observe.explain.containers import containers, exits, probes
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.hints import FINAL, hint
from kubeletpy.observe.explain.model import (
    Decided,
    PodExplanation,
    PodLine,
    Role,
    Timeline,
    WorkerState,
    WorkerView,
    timeline,
)
from kubeletpy.observe.explain.texts import cause
from kubeletpy.observe.explain.verdict import CauseCode, cause_code, subject, verdict
from kubeletpy.observe.explain.waits import (
    actions,
    requested_to_end,
    stopped_at,
    waits,
    wrong_since,
)
from kubeletpy.podworkers.history import HistoryEntry
from kubeletpy.podworkers.records import Stage, WorkerRecord

_STATES = {
    Stage.SYNC: WorkerState.SYNCING,
    Stage.TERMINATING: WorkerState.TERMINATING,
    Stage.TERMINATED: WorkerState.TERMINATED,
    Stage.FINISHED: WorkerState.FINISHED,
}


def explain(facts: PodFacts) -> PodExplanation:
    """Return everything about one pod."""
    sentence, healthy = verdict(facts)
    waiting = waits(facts)
    first = next(iter(waiting), None)
    code = cause_code(facts, healthy=healthy)
    return PodExplanation(
        at=facts.now,
        namespace=facts.namespace,
        name=facts.name,
        uid=facts.uid,
        static=facts.static,
        verdict=sentence,
        healthy=healthy,
        cause=code,
        first_seen=None if healthy else wrong_since(facts, first),
        hint="" if healthy else advice(facts, first) or hint(facts, code, subject(facts, first)),
        final=code in FINAL,
        phase=facts.phase,
        ready=facts.ready,
        pod_ips=tuple(ip for each in facts.status.get("podIPs") or () if (ip := each.get("ip"))),
        worker=_worker(facts),
        waits=waiting,
        actions=actions(facts),
        containers=containers(facts),
        held=facts.held,
        probes=probes(facts),
        decisions=tuple(_decided(one) for one in facts.history if not one.decision.failed),
        errors=tuple(_decided(one) for one in facts.history if one.decision.failed),
        exits=exits(facts),
    )


def line(facts: PodFacts) -> PodLine:
    """Return one pod as a line of a list."""
    sentence, healthy = verdict(facts)
    state = _worker(facts).state
    since = None if healthy else wrong_since(facts, next(iter(waits(facts)), None))
    code = cause_code(facts, healthy=healthy)
    return PodLine(facts.namespace, facts.name, facts.uid, state, healthy, sentence, code, since)


def explain_timeline(facts: PodFacts, trace: PodTrace, seen: str, now: float) -> Timeline:
    """Return the timeline of a pod, with its verdict and waits.

    Args:
        facts: of the pod.
        trace: the spans of its steps and calls.
        seen: when the pod was first seen, as the API writes it; may be empty.
        now: event-loop seconds.
    """
    kinds = {view.name: view.kind for view in containers(facts)}
    found = timeline(
        trace,
        facts.wall_offset,
        parse_time(seen) if seen else None,
        now,
        [one for one in exits(facts) if kinds.get(one.container) is Role.INIT],
        has_sandbox=facts.runtime is not None and bool(facts.runtime.sandboxes),
    )
    return replace(found, verdict=verdict(facts)[0], waits=waits(facts), at=facts.now)


def _worker(facts: PodFacts) -> WorkerView:
    record, last = facts.record, facts.last_sync
    error = "" if facts.outcome is None else cause(facts.outcome.error)
    if record is None:
        return WorkerView(WorkerState.NONE, None, "", None, None, last.at if last else None, error)
    waits_for_name = record.stage is Stage.SYNC and record.started_at is None
    return WorkerView(
        state=WorkerState.WAITING if waits_for_name else _STATES[record.stage],
        since=_since(facts, record),
        stage="" if record.running is None else record.running.value,
        grace=record.grace,
        next_sync_at=facts.next_sync_at,
        last_sync_at=last.at if last else None,
        last_error=error,
    )


def _since(facts: PodFacts, record: WorkerRecord) -> float | None:
    """When the pod's state began: for a pod being synced, when this agent began to sync it."""
    match record.stage:
        case Stage.SYNC:
            return record.started_at or record.first_seen_at
        case Stage.TERMINATING:
            return requested_to_end(facts)
        case _:
            return stopped_at(facts)


def _decided(entry: HistoryEntry) -> Decided:
    """Return a decision as sent; a start has no count, since the status counts restarts."""
    return Decided(
        entry.at,
        cause(entry.decision.what),
        cause(entry.decision.why),
        1 if entry.decision.starts else entry.count,
        entry.last_at or None,
    )


def explain_removed(facts: PodFacts) -> PodExplanation:
    """Return the explanation of a removed pod from its last facts.

    A pod that was healthy until its end was requested has no other cause.
    """
    found, record = explain(facts), facts.record
    if record is None or not record.termination_requested:
        return found
    found = replace(found, final=True)
    ordinary = (CauseCode.RUNNING, CauseCode.SUCCEEDED, CauseCode.ENDING, CauseCode.TAINT)
    if found.cause not in ordinary:
        return found
    code = CauseCode.REMOVED if facts.deleted_for is None else CauseCode.TAINT
    since = found.first_seen or record.terminating_at
    return replace(found, cause=code, first_seen=since, hint=hint(facts, code, ""))
