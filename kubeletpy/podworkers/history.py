"""The last decisions about each pod, so that "why is my pod not running?" has an answer. Pure.

Bounded twice: entries per pod, and pods. A decision that repeats is counted, not kept again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable

from kubeletpy.base.structs import Struct, replace
from kubeletpy.pods.runtime_status import Decision, KillReason
from kubeletpy.podworkers.protocol import SyncOutcome
from kubeletpy.podworkers.records import Stage, WorkerRecord
from kubeletpy.podworkers.troubles import Troubles

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


class DecisionHistory:
    """Pod uid -> ring of decisions; the least recently seen pods go first.

    Attributes:
        troubles: since when syncs fail, or containers end that should not.
    """

    def __init__(self, per_pod: int = 50, max_pods: int = 500) -> None:
        self._per_pod = per_pod
        self._max_pods = max_pods
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
                ring = self._pods[uid] = deque(maxlen=self._per_pod)
                while len(self._pods) > self._max_pods:
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
    """Why a pod is terminated, in words."""
    pod = record.pod
    if pod is None:
        why = "no source has this pod any more: only the runtime has it"
    elif record.evicted:
        why = "it was evicted"
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
