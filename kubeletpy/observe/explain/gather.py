"""Turns the components' facts into an explanation. Pure: the facts carry the time."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubeletpy.base.structs import Struct, replace
from kubeletpy.observe.explain.containers import containers, exits, probes
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.hints import advice, final, hint
from kubeletpy.observe.explain.model import (
    Decided,
    PodExplanation,
    PodLine,
    WorkerState,
    WorkerView,
)
from kubeletpy.observe.explain.texts import cause
from kubeletpy.observe.explain.verdict import cause_code, subject, verdict
from kubeletpy.observe.explain.waits import (
    actions,
    requested_to_end,
    stopped_at,
    waits,
    wrong_since,
)
from kubeletpy.podworkers.history import HistoryEntry
from kubeletpy.podworkers.records import Stage, WorkerRecord

if TYPE_CHECKING:
    from kubeletpy.observe.explain.facts import PodFacts
    from kubeletpy.observe.explain.model import PodExplanation


_STATES = {
    Stage.SYNC: WorkerState.SYNCING,
    Stage.TERMINATING: WorkerState.TERMINATING,
    Stage.TERMINATED: WorkerState.TERMINATED,
    Stage.FINISHED: WorkerState.FINISHED,
}


def explain(facts: PodFacts) -> PodExplanation:
    """Everything about one pod."""
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
        final=final(facts, code),
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
    """One pod in a list."""
    sentence, healthy = verdict(facts)
    state = _worker(facts).state
    since = None if healthy else wrong_since(facts, next(iter(waits(facts)), None))
    code = cause_code(facts, healthy=healthy)
    return PodLine(facts.namespace, facts.name, facts.uid, state, healthy, sentence, code, since)


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
    """When a terminating pod began to end; for others, when this agent began to sync it."""
    match record.stage:
        case Stage.SYNC:
            return record.started_at or record.first_seen_at
        case Stage.TERMINATING:
            return requested_to_end(facts)
        case _:
            return stopped_at(facts)


def _decided(entry: HistoryEntry) -> Decided:
    """A start has no count: the container's restarts are counted in its status alone."""
    return Decided(
        entry.at,
        cause(entry.decision.what),
        cause(entry.decision.why),
        1 if entry.decision.starts else entry.count,
        entry.last_at or None,
    )


# Keeps the last facts about removed pods for an hour, within limits of number and size.

KEPT_S = 3600.0
MAX_PODS = 100
MAX_SIZE = 4 << 20
"""Maximum of all kept pod objects, in characters of JSON. A typical pod has 2,000 to 10,000."""
MAX_POD = MAX_SIZE // 4
"""A larger pod is not kept: a tenant could fill the node's memory with pods that were removed."""


class _RemovedPod(Struct, frozen=True):
    facts: PodFacts
    size: int
    """Characters of the pod's object as JSON."""


class RemovedPods:
    """Namespace and name -> facts at the end; the pods that ended first go first."""

    def __init__(self, facts: Callable[[str], PodFacts]) -> None:
        """``facts`` of a pod now, by uid."""
        self._facts = facts
        self._ended: OrderedDict[tuple[str, str], _RemovedPod] = OrderedDict()

    def finished(self, uid: str) -> None:
        """A worker is done with a pod, or forgets one: remember how it was, the first time."""
        facts = self._facts(uid)
        key = facts.namespace, facts.name
        earlier = self._ended.get(key)
        if facts.pod is None or (earlier is not None and earlier.facts.uid == uid):
            return
        self._ended.pop(key, None)
        size = len(json.dumps(facts.pod.object))  # what counts values takes 40 times as long
        if size > MAX_POD:
            return
        self._ended[key] = _RemovedPod(replace(facts, trace=None), size)
        while (
            len(self._ended) > MAX_PODS
            or sum(each.size for each in self._ended.values()) > MAX_SIZE
        ):
            self._ended.popitem(last=False)

    def find(self, namespace: str, name: str, now: float) -> tuple[PodFacts, float] | None:
        """The facts of then, and how many seconds ago; None: nothing is known any more.

        ``name`` may be a uid. ``now``: Unix seconds.
        """
        by_uid = (each for each in self._ended.values() if each.facts.uid == name)
        found = self._ended.get((namespace, name)) or next(by_uid, None)
        if found is None or now - found.facts.now > KEPT_S:
            return None
        return found.facts, now - found.facts.now


def explain_removed(facts: PodFacts) -> PodExplanation:
    """Explanation of a removed pod from its last facts.

    A pod that was healthy until its end was requested has no other cause.
    """
    from kubeletpy.observe.explain.hints import hint
    from kubeletpy.observe.explain.verdict import CauseCode

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
