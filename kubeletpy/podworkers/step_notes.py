"""What is noted of steps for people: decisions, how the last step ended, figures.

Must never decide anything.
"""

from __future__ import annotations

import asyncio
import logging

from kubeletpy.pods.decision import Decision
from kubeletpy.podworkers.history import DecisionHistory, LastStep, why_terminating
from kubeletpy.podworkers.metrics import WorkerMetrics
from kubeletpy.podworkers.protocol import SyncOutcome, UpdateType
from kubeletpy.podworkers.records import RunStep, Stage, WorkerRecord

log = logging.getLogger(__name__)


class StepNotes:
    """The notes of all pods; ``now`` is Unix seconds."""

    def __init__(self, history: DecisionHistory, metrics: WorkerMetrics) -> None:
        self.history = history
        self.last: dict[str, LastStep] = {}
        """How the last step of each pod ended."""
        self._metrics = metrics

    def begins(self, step: RunStep, record: WorkerRecord, now: float) -> None:
        """A step begins: how long its pod has waited, and why the pod ends, if it does."""
        if step.work.pod is not None and step.uid not in self.last:
            self._metrics.pod_taken_on(len(step.work.pod.containers))
        if step.work.type is UpdateType.CREATE and step.work.received_at:
            self._metrics.worker_started(_since(step))
        if step.stage is Stage.TERMINATING:
            self.history.add_once(step.uid, why_terminating(record, step.grace), now)

    def ended(self, step: RunStep, outcome: SyncOutcome | None, now: float) -> None:
        """A step has ended; without an outcome it was cut short."""
        self.last[step.uid] = LastStep(step.stage, outcome, now)
        if outcome is None:
            return
        decisions = list(outcome.decisions)
        if outcome.error and not outcome.waiting:
            decisions.append(Decision(f"{step.stage} failed", outcome.error, failed=True))
            log.debug("step failed", extra={"uid": step.uid, "error": outcome.error})
        self.history.add(step.uid, decisions, now)
        if step.work.received_at:
            finished = step.stage is Stage.TERMINATED and not outcome.error
            operation = "terminated" if finished else step.work.type.value
            self._metrics.step_done(operation, _since(step))

    def gone(self, uid: str) -> None:
        """The worker is done with a pod; its decisions stay for a while."""
        self.last.pop(uid, None)


def _since(step: RunStep) -> float:
    return asyncio.get_running_loop().time() - step.work.received_at
