"""Notes about syncs for people: decisions, how the last sync ended, figures.

Must never decide anything.
"""

from __future__ import annotations

import asyncio
import logging

from kubeletpy.metrics.pods import PodWorkerMetrics
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.podworkers.history import DecisionHistory, LastSync, why_terminating
from kubeletpy.podworkers.protocol import SyncOutcome, UpdateType
from kubeletpy.podworkers.records import RunSync, Stage, WorkerRecord

log = logging.getLogger(__name__)


class SyncNotes:
    """The notes on all pods; ``now`` is Unix seconds."""

    def __init__(self, history: DecisionHistory, metrics: PodWorkerMetrics) -> None:
        self.history = history
        self.last: dict[str, LastSync] = {}
        """How the last sync of each pod ended."""
        self.troubles = history.troubles
        self._metrics = metrics

    def begins(self, run: RunSync, record: WorkerRecord, now: float) -> None:
        """A sync begins: note how long its pod has waited, and why the pod ends, if it does."""
        if run.work.pod is not None and run.uid not in self.last:
            self._metrics.pod_taken_on(len(run.work.pod.containers))
        if run.work.type is UpdateType.CREATE and run.work.received_at:
            self._metrics.worker_started(_since(run))
        if run.stage is Stage.SYNC:
            self.troubles.no_end(run.uid)
        if run.stage is Stage.TERMINATING:
            if record.evicted or record.status_override is not None:
                # a deletion and a last exit have their times in the API
                self.troubles.ends(run.uid, record.terminating_at or now)
            self.history.add_once(run.uid, why_terminating(record, run.grace), now)

    def ended(self, run: RunSync, outcome: SyncOutcome | None, now: float) -> None:
        """A sync has ended; without an outcome it was cut short."""
        self.last[run.uid] = LastSync(run.stage, outcome, now)
        if outcome is None:
            return
        if outcome.error:
            self.troubles.failed(run.uid, now)
        decisions = list(outcome.decisions)
        if outcome.error and not outcome.waiting:
            decisions.append(Decision(f"{run.stage} failed", outcome.error, failed=True))
            log.debug(
                "sync failed",
                extra={"uid": run.uid, "step": outcome.step, "error": outcome.error},
            )
        self.history.add(run.uid, decisions, now)
        if run.work.received_at:
            finished = run.stage is Stage.TERMINATED and not outcome.error
            operation = "terminated" if finished else run.work.type.value
            self._metrics.sync_done(operation, _since(run))

    def refused(self, uid: str, now: float) -> None:
        """The node refuses a pod."""
        self.troubles.ends(uid, now)

    def gone(self, uid: str) -> None:
        """The worker is done with a pod; its decisions stay for a while."""
        self.last.pop(uid, None)
        self.troubles.gone(uid)

    def forgotten(self, uid: str) -> None:
        """No source has the pod any more."""
        self.troubles.no_end(uid)


def _since(run: RunSync) -> float:
    return asyncio.get_running_loop().time() - run.work.received_at
