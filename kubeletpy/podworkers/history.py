"""Notes about each pod for people: troubles, decisions, last syncs and start errors. Pure.

It answers "why is my pod not running?". All of it is bounded, and decides nothing: it only
notes what others decided.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Any

from kubeletpy.base.structs import Component, Struct, replace
from kubeletpy.pods.runtime_status import (
    Decision,
    KillReason,
    PodSyncResult,
    StartError,
    SyncAction,
)
from kubeletpy.podworkers.records import Stage, SyncOutcome, WorkerRecord

MAX_TROUBLED_PODS = 500
OVER_S = 600.0
"""Seconds without a failure after which a row of failures is over: twice the longest backoff, as
for the backoffs themselves.

Source: docs/reference/behaviour.md, d."""


class Troubles:
    """Since when the syncs of pods fail, and when they were refused or their end was requested.

    Times are Unix seconds, by uid; kept over restarts of the agent. Beyond the bound the pods whose
    last failure is oldest are dropped first.
    """

    def __init__(self) -> None:
        self._rows: dict[str, tuple[float, float]] = {}
        self._ends: dict[str, float] = {}

    def failed(self, uid: str, now: float) -> None:
        """A sync has failed, or was held back by a backoff."""
        first, last = self._rows.pop(uid, (now, now))
        self._rows[uid] = (first if 0 <= now - last <= OVER_S else now, now)
        while len(self._rows) > MAX_TROUBLED_PODS:
            del self._rows[next(iter(self._rows))]

    def since(self, uid: str, now: float) -> float | None:
        """The first failure of the row; None: the latest is long ago, or there was none."""
        first, last = self._rows.get(uid, (now, float("-inf")))
        return first if now - last <= OVER_S else None

    def ends(self, uid: str, at: float) -> None:
        """The pod was refused, or its end requested, at ``at``; only the first time counts."""
        self._ends.setdefault(uid, at)
        while len(self._ends) > MAX_TROUBLED_PODS:
            del self._ends[next(iter(self._ends))]

    def no_end(self, uid: str) -> None:
        """The pod is synced as one that should run, or no source has it any more."""
        self._ends.pop(uid, None)

    def ended_at(self, uid: str) -> float | None:
        """Unix seconds at which the pod was first refused or its end requested; None: unknown."""
        return self._ends.get(uid)

    def removed(self, uid: str) -> None:
        """The worker is done with the pod: it fails no more."""
        self._rows.pop(uid, None)

    def begun(self) -> dict[str, dict[str, float]]:
        """The notes whose change is worth a write: the beginning of each row, and the ends."""
        return {"failing": {uid: row[0] for uid, row in self._rows.items()}, "ends": {**self._ends}}

    def as_json(self) -> dict[str, dict[str, Any]]:
        """To be kept over a restart of the agent; empty when there is nothing."""
        rows = {uid: list(row) for uid, row in self._rows.items()}
        return {k: v for k, v in (("failing", rows), ("ends", {**self._ends})) if v}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Add the notes of an earlier agent; newer notes of this agent win."""
        failing, ends = (_mapping(kept.get(each)) for each in ("failing", "ends"))
        earlier = {u: float(at) for u, at in ends.items() if isinstance(at, int | float)}
        self._ends = dict(list({**self._ends, **earlier}.items())[-MAX_TROUBLED_PODS:])
        rows: dict[str, tuple[float, float]] = {}
        for uid, row in failing.items():
            match row:
                case [int() | float() as first, int() | float() as last]:
                    rows[uid] = (float(first), float(last))
        for uid, (first, last) in self._rows.items():
            before = rows.pop(uid, (first, first))
            rows[uid] = (before[0] if first - before[1] <= OVER_S else first, last)
        self._rows = dict(list(rows.items())[-MAX_TROUBLED_PODS:])


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


REPEATS = 6
"""How many of the newest entries are checked for the same decision."""


class HistoryEntry(Struct, frozen=True):
    """One decision. Times are Unix seconds."""

    at: float
    decision: Decision
    count: int = 1
    last_at: float = 0.0
    """When it last repeated; 0: never."""


_PROBES = (KillReason.LIVENESS_PROBE, KillReason.STARTUP_PROBE)


PER_POD, MAX_PODS = 50, 500
"""Decisions that are kept of a pod, and pods."""


class DecisionHistory:
    """Pod uid -> ring of decisions; the least recently seen pods go first.

    Bounded twice: entries per pod, and pods. A decision that repeats is counted, not kept again.

    Attributes:
        troubles: since when syncs fail, or containers end that should not.
    """

    def __init__(self) -> None:
        self._pods: OrderedDict[str, deque[HistoryEntry]] = OrderedDict()
        self.troubles = Troubles()

    def add(self, uid: str, decisions: Iterable[Decision], now: float) -> None:
        """Keep decisions made at ``now`` (Unix seconds).

        A decision that is among the last few is only counted: repeats at every sync fill no ring.
        """
        for decision in decisions:
            # it is made because a container has ended, or had to be
            if decision.restarts or decision.kill_reason in _PROBES:
                self.troubles.failed(uid, now)
            ring = self._pods.get(uid)
            if ring is None:
                ring = self._pods[uid] = deque(maxlen=PER_POD)
                while len(self._pods) > MAX_PODS:
                    self._pods.popitem(last=False)
            self._pods.move_to_end(uid)
            for index in range(len(ring) - 1, max(-1, len(ring) - 1 - REPEATS), -1):
                if ring[index].decision == decision:
                    known = ring[index]
                    ring[index] = replace(known, count=known.count + 1, last_at=now)
                    break
            else:
                ring.append(HistoryEntry(now, decision))

    def decisions(self, uid: str) -> tuple[HistoryEntry, ...]:
        """The kept decisions of a pod, oldest first."""
        return tuple(self._pods.get(uid, ()))

    def add_once(self, uid: str, decision: Decision, now: float) -> None:
        """Keep a decision, unless the pod has it already."""
        if all(entry.decision != decision for entry in self._pods.get(uid, ())):
            self.add(uid, (decision,), now)


class LastSync(Struct, frozen=True):
    """How a worker's sync ended."""

    stage: Stage
    outcome: SyncOutcome | None
    """None: it was cut short."""
    at: float
    """Unix seconds."""


def why_terminating(record: WorkerRecord, grace: int) -> Decision:
    """The decision to terminate a pod, with its reason."""
    pod = record.pod
    if pod is None:
        why = "no source has this pod any more: only the runtime has it"
    elif record.evicted:
        why = "the node ends it, by eviction, preemption or shutdown: its status names the cause"
    elif pod.being_deleted:
        why = "it was deleted in the API"
    elif record.deleted:
        why = "it is in no source of pods any more"
    elif pod.is_terminal_in_api:
        why = "the API shows that it has ended"
    elif pod.spec.get("activeDeadlineSeconds") is not None:
        why = "it has run to its end, or for its activeDeadlineSeconds"
    else:
        why = "it has run to its end"
    return Decision(f"terminate the pod within {grace} s", why, ends_pod=True)


CRASH_LOOP = "CrashLoopBackOff"
MAX_REASONS = 1000
_STARTS = (SyncAction.START_CONTAINER, SyncAction.INIT_CONTAINER)


class ReasonCache(Component):
    """Why containers could not be started, by pod uid and container name: their waiting reasons.

    A start that worked removes the reason. Beyond the bound the least recently used pods go first.
    """

    max_pods: int = MAX_REASONS

    def __post_init__(self) -> None:
        self._pods: OrderedDict[str, dict[str, StartError]] = OrderedDict()

    def update(self, uid: str, result: PodSyncResult) -> None:
        """Note what a runtime sync reports: failures replace, successes remove."""
        before = self._pods.get(uid, {})
        errors = dict(before)
        for step in result.results:
            if step.action in _STARTS and step.error is None:
                errors.pop(step.target, None)
        for name, error in result.start_errors.items():
            errors[name] = _with_previous(error, before.get(name))
        if not errors:
            self._pods.pop(uid, None)
            return
        self._pods[uid] = errors
        self._pods.move_to_end(uid)
        while len(self._pods) > self.max_pods:
            self._pods.popitem(last=False)

    def get(self, uid: str) -> Mapping[str, StartError]:
        """Container name -> start error of one pod."""
        return self._pods.get(uid, {})

    def forget(self, uid: str) -> None:
        """Drop all reasons of a pod."""
        self._pods.pop(uid, None)


def _with_previous(error: StartError, before: StartError | None) -> StartError:
    """A start held back by the failure of an earlier one keeps reporting how that one failed."""
    if error.code != CRASH_LOOP or before is None:
        return error
    previous = before.previous if before.code == CRASH_LOOP else before
    if previous is None:
        return error
    message = f"{error.message}: {previous.code}: {previous.message}"
    return replace(error, message=message, previous=previous)
