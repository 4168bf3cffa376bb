"""Reports pods that should be gone by now: an event names what holds them up.

Every room retries what it must by itself and reports its own failures; this looks at the whole
and covers what no room counts as its failure: a call that hangs, a finalizer, an API that refuses.
Must never touch a pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubeletpy.events.reasons import Reason
from kubeletpy.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.explain.words import duration
from kubeletpy.podworkers.records import Stage, WorkerRecord

if TYPE_CHECKING:
    from kubeletpy.explain.facts import PodFacts

SLACK_S = 10.0
"""Seconds beyond its grace period, and again for each later stage, that a pod may take."""
AGAIN_S = 300.0
"""Seconds until the same thing is reported again."""
LOOK_S = 5.0


def held_up_by(facts: PodFacts) -> tuple[str, str] | None:
    """What holds a pod up that should be gone by now, and why; None when nothing does, or not yet.

    The first part stays the same while the same thing holds the pod up.
    """
    record = facts.record
    if record is None or not record.termination_requested:
        return None
    due = _due(record)
    if due is None or facts.now < due + SLACK_S:
        return None
    if record.finished and not (facts.pod is not None and facts.pod.being_deleted):
        return None
    from kubeletpy.explain.waits import waits  # most agents never see such a pod

    found = waits(facts)
    if found:
        return f"{found[0].kind} {found[0].subject}".rstrip(), found[0].why
    if record.finished:
        return "API", "it has been asked to remove the pod"
    return "worker", f"it goes on, with a grace period of {record.grace or 1}s"


def _due(record: WorkerRecord) -> float | None:
    """Unix seconds at which the stage of its end should be over."""
    if record.stage is Stage.TERMINATING:
        return (record.terminating_at or 0.0) + (record.grace or 0)
    return record.terminated_at


class StuckPods:
    """Looks at the pods that are ending, every few seconds; there are few of them."""

    def __init__(
        self,
        ending: Callable[[], list[str]],
        facts: Callable[[str], PodFacts],
        recorder: EventRecorder,
    ) -> None:
        """``ending()`` gives the uids of pods whose end was asked for and that are not gone."""
        self._ending = ending
        self._facts = facts
        self._recorder = recorder
        self._reported: dict[str, tuple[str, float]] = {}
        """uid -> what was reported, and when (Unix seconds)."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Report each pod that is held up, unless that is known."""
        ending = self._ending()
        self._reported = {uid: self._reported[uid] for uid in ending if uid in self._reported}
        for uid in ending:
            facts = self._facts(uid)
            found = held_up_by(facts)
            if found is None or facts.pod is None:
                continue
            what, why = found
            reported, at = self._reported.get(uid, ("", 0.0))
            if what == reported and facts.now - at < AGAIN_S:
                continue
            self._reported[uid] = (what, facts.now)
            since = facts.now - (facts.record.terminating_at or facts.now if facts.record else 0)
            message = f"Still terminating after {duration(since)}: {what}: {why}"
            self._recorder.event(
                pod_reference(facts.pod), WARNING, Reason.STILL_TERMINATING, message[:1024]
            )
