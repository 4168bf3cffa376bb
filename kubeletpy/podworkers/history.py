"""The last decisions about each pod, so that "why is my pod not running?" has an answer.

Bounded twice: entries per pod, and pods. A decision that repeats is counted, not kept again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kubeletpy.runtime_manager.results import Decision


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One decision. Times are Unix seconds."""

    at: float
    decision: Decision
    count: int = 1
    last_at: float = 0.0
    """When it was last repeated; 0: never."""


class DecisionHistory:
    """Pod uid -> ring of decisions; the pods heard of longest ago go first."""

    def __init__(self, per_pod: int = 50, max_pods: int = 500) -> None:
        self._per_pod = per_pod
        self._max_pods = max_pods
        self._pods: OrderedDict[str, deque[HistoryEntry]] = OrderedDict()

    def add(self, uid: str, decisions: Iterable[Decision], now: float) -> None:
        """Keep decisions made at ``now`` (Unix seconds)."""
        for decision in decisions:
            ring = self._pods.get(uid)
            if ring is None:
                ring = self._pods[uid] = deque(maxlen=self._per_pod)
                while len(self._pods) > self._max_pods:
                    self._pods.popitem(last=False)
            self._pods.move_to_end(uid)
            if ring and ring[-1].decision == decision:
                ring[-1] = replace(ring[-1], count=ring[-1].count + 1, last_at=now)
            else:
                ring.append(HistoryEntry(now, decision))

    def of(self, uid: str) -> tuple[HistoryEntry, ...]:
        """The decisions kept for a pod, oldest first."""
        return tuple(self._pods.get(uid, ()))
