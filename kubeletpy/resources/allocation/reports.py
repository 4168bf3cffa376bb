"""Reports resizes as conditions, events, metrics and recorded decisions.

It keeps the two conditions of each pod that has one. The caller decides whether a resize is
allocated or done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import (
    NORMAL,
    WARNING,
    EventRecorder,
    EventType,
    pod_reference,
)
from kubeletpy.metrics.pods import ACCEPTED, REVERTED, TERMINATED, ResizeMetrics, priority_bucket
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import Decision, ResizeOutcome
from kubeletpy.resources.allocation import conditions
from kubeletpy.resources.allocation.conditions import (
    COMPLETED,
    DEFERRED,
    FAILED,
    INFEASIBLE,
    NONE,
    STARTED,
    ResizeConditions,
    resize_message,
)

Decided = Callable[[str, Sequence[Decision]], None]

_PENDING = {DEFERRED: Reason.RESIZE_DEFERRED, INFEASIBLE: Reason.RESIZE_INFEASIBLE}


class ResizeReports(Component):
    """Conditions and events that report resizes, by pod uid."""

    recorder: EventRecorder
    clock: Clock
    metrics: ResizeMetrics
    decided: Decided

    def __post_init__(self) -> None:
        self._conditions: dict[str, ResizeConditions] = {}
        self._priorities: dict[str, str] = {}
        """Pod uid -> priority bucket, of pods with a pending resize."""

    def conditions(self, uid: str) -> ResizeConditions:
        """The conditions that hold for a pod."""
        return self._conditions.get(uid, NONE)

    def uids(self) -> list[str]:
        """The pods with a condition."""
        return list(self._conditions)

    def take_over(self, pod: Pod, found: ResizeConditions) -> None:
        """Adopt the conditions that the API shows."""
        self._priorities[pod.uid] = priority_bucket(pod.priority)
        self._set_conditions(pod.uid, found)

    def forget(self, uid: str) -> None:
        """Drop the conditions of a pod that is not resized any more."""
        self._measure(uid, TERMINATED)
        self._set_conditions(uid, NONE)

    def not_pending(self, uid: str) -> None:
        """Drop the pending condition of a pod that again requests what it is allocated."""
        self._measure(uid, REVERTED)
        self._set_conditions(uid, ResizeConditions(None, self.conditions(uid).in_progress))

    def allocated(self, pod: Pod) -> None:
        """Report that the resize ``pod`` requests was allocated; earlier errors are dropped."""
        uid, generation = pod.uid, pod.generation
        self._measure(uid, ACCEPTED)
        began, _ = conditions.in_progress(None, "", "", generation, now=self.clock.now())
        self._set_conditions(uid, ResizeConditions(None, began))
        self._event(pod, NORMAL, Reason.RESIZE_STARTED, resize_message(STARTED, pod, generation))
        self._record_decision(uid, "allocate the resize", f"it fits (generation {generation})")

    def infeasible(self, pod: Pod, message: str) -> None:
        """Report a resize that will never be allocated, and why."""
        self._pending(pod, INFEASIBLE, INFEASIBLE, message)

    def deferred(self, pod: Pod, why: str, message: str) -> None:
        """Report a resize that does not fit now; ``why`` is the reason of admission."""
        self._pending(pod, DEFERRED, why, message)

    def _measure(self, uid: str, resolution: str) -> None:
        """Record how long a resize was deferred, if it was."""
        found = self.conditions(uid)
        since = (found.pending or {}).get("lastTransitionTime")
        if found.deferred and since:
            waited = max(0.0, self.clock.now() - parse_time(since))
            self.metrics.deferred.labels(resolution, self._priorities[uid]).observe(waited)

    def _pending(self, pod: Pod, reason: str, why: str, message: str) -> None:
        uid, generation = pod.uid, pod.generation
        before = self.conditions(uid)
        self._priorities[uid] = priority_bucket(pod.priority)
        made, changes = conditions.pending(
            before.pending, reason, message, generation, now=self.clock.now()
        )
        if not changes and message == ((before.pending or {}).get("message") or ""):
            return
        self._set_conditions(uid, ResizeConditions(made, before.in_progress))
        if changes:
            text = resize_message(f"Pod resize {why}", pod, generation, message)
            self._event(pod, WARNING, _PENDING[reason], text)
            self._record_decision(uid, f"resize {reason.lower()}", f"{why}: {message}")

    def synced(self, pod: Pod, outcome: ResizeOutcome | None) -> bool:
        """A worker reports on a pod as allocated; returns whether the conditions have changed.

        ``outcome`` None: everything that runs has the resources it should have.
        """
        uid, before = pod.uid, self.conditions(pod.uid)
        if outcome is not None and (outcome.error or outcome.in_progress):
            return self._unfinished(pod, outcome)
        if before.in_progress is None and (outcome is None or not outcome.done):
            return False
        generation = (before.in_progress or {}).get("observedGeneration") or pod.generation
        self._set_conditions(uid, ResizeConditions(before.pending, None))
        self._event(
            pod, NORMAL, Reason.RESIZE_COMPLETED, resize_message(COMPLETED, pod, generation)
        )
        return True

    def _unfinished(self, pod: Pod, outcome: ResizeOutcome) -> bool:
        before = self.conditions(pod.uid)
        made, changes = conditions.in_progress(
            before.in_progress,
            conditions.ERROR if outcome.error else "",
            outcome.error,
            pod.generation,
            now=self.clock.now(),
        )
        self._set_conditions(pod.uid, ResizeConditions(before.pending, made))
        if changes and outcome.error:
            generation = made.get("observedGeneration") or 0
            text = resize_message(FAILED, pod, generation, outcome.error)
            self._event(pod, WARNING, Reason.RESIZE_ERROR, text)
        return changes

    def _set_conditions(self, uid: str, found: ResizeConditions) -> None:
        if found == self.conditions(uid):
            return
        if found == NONE:
            del self._conditions[uid]
            self._priorities.pop(uid, None)
        else:
            self._conditions[uid] = found
        reasons = Counter(
            ((each.pending.get("reason") or "").lower(), self._priorities[uid])
            for uid, each in self._conditions.items()
            if each.pending is not None
        )
        doing = sum(each.in_progress is not None for each in self._conditions.values())
        self.metrics.now(reasons, doing)

    def _event(self, pod: Pod, kind: EventType, reason: Reason, message: str) -> None:
        self.recorder.event(pod_reference(pod), kind, reason, message)

    def _record_decision(self, uid: str, what: str, why: str) -> None:
        self.decided(uid, (Decision(what, why),))
