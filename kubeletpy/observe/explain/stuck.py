"""Reports pods that should have ended by now, and keeps on disk since when pods are in trouble.

Each package retries its own operations and reports its own failures. The event of this module names
what no package counts as a failure: a hanging call, a finalizer, an API that refuses. Must never
touch a pod.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubeletpy.base.host.state_file import StateFile, read_state
from kubeletpy.base.structs import Component
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.podworkers.history import Troubles
from kubeletpy.podworkers.records import Stage

if TYPE_CHECKING:
    from kubeletpy.observe.explain.facts import PodFacts


log = logging.getLogger(__name__)

SLACK_S = 10.0
"""Seconds that a pod may take beyond its grace period, and again for each later stage."""
REPEAT_S = 300.0
"""Seconds before the same thing is reported again."""
CHECK_S = 5.0


def held_up_by(facts: PodFacts) -> tuple[str, str] | None:
    """Return the obstacle of a pod that should have ended by now, and its reason, or None.

    The first part stays the same as long as the same thing holds the pod up.
    """
    record = facts.record
    if record is None or not record.termination_requested:
        return None
    due = record.terminated_at
    if record.stage is Stage.TERMINATING:
        due = (record.terminating_at or 0.0) + (record.grace or 0)
    if due is None or facts.now < due + SLACK_S:
        return None
    if record.finished and not (facts.pod is not None and facts.pod.being_deleted):
        return None
    from kubeletpy.observe.explain.model import WaitKind  # imported on the first check
    from kubeletpy.observe.explain.waits import waits

    found = waits(facts)
    if found:
        first = found[0]  # readers of an event need not be allowed to read the hook's command
        why = first.call if first.kind is WaitKind.HOOK and first.call else first.why
        return f"{first.kind} {first.subject}".rstrip(), why
    if record.finished:
        return "API", "the removal of the pod was requested"
    return "worker", f"it goes on, with a grace period of {record.grace or 1}s"


class StuckPods(Component):
    """Checks terminating pods every few seconds; there are few of them."""

    ending: Callable[[], list[str]]
    """The uids of pods that should have ended."""
    facts: Callable[[str], PodFacts]
    recorder: EventRecorder

    def __post_init__(self) -> None:
        self._reported: dict[str, tuple[str, float]] = {}
        """uid -> what was reported, and when (Unix seconds)."""

    async def run(self) -> None:
        """Check until canceled. A lack of file descriptors does not end it."""
        failed = ""
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                self.report_stuck()
                failed = ""
            except OSError as error:  # the first check imports its modules
                if str(error) != failed:
                    failed = str(error)
                    log.warning("terminating pods could not be checked", extra={"error": failed})

    def report_stuck(self) -> None:
        """Report each pod that is held up, unless already reported."""
        ending = self.ending()
        self._reported = {uid: self._reported[uid] for uid in ending if uid in self._reported}
        for uid in ending:
            facts = self.facts(uid)
            found = held_up_by(facts)
            if found is None or facts.pod is None:
                continue
            from kubeletpy.observe.explain.texts import duration
            from kubeletpy.observe.explain.waits import requested_to_end

            what, why = found
            reported, at = self._reported.get(uid, ("", 0.0))
            if what == reported and facts.now - at < REPEAT_S:
                continue
            self._reported[uid] = (what, facts.now)
            since = facts.now - (requested_to_end(facts) or facts.now)
            message = f"Still terminating after {duration(since)}: {what}: {why}"
            self.recorder.event(
                pod_reference(facts.pod), WARNING, Reason.STILL_TERMINATING, message[:1024]
            )


FILE_NAME = "explain-troubles.json"
WRITE_CHECK_S = 30.0
"""Seconds between checks whether there is anything to write."""
CHECKS_PER_REFRESH = 8
"""A row that goes on is written each time after so many checks, before it counts as over."""
MAX_BYTES = 2**20


class KeptTroubles(Component):
    """Keeps since when pods have been failing or ending, for a restarted agent.

    The file is small: uids and times. If it can't be read or written, the agent begins anew;
    nothing is decided by it.
    """

    path: Path
    troubles: Troubles

    def __post_init__(self) -> None:
        self._written: dict[str, dict[str, float]] = {}
        self._checks = 0
        self._file = StateFile(
            self.path,
            self._capture,
            "after a restart the agent will have lost since when pods have been failing",
        )

    async def start(self) -> None:
        """Read the file that an earlier agent wrote."""
        self.troubles.restore(await asyncio.to_thread(_read, self.path))
        self._written = self.troubles.begun()

    async def run(self) -> None:
        """Write changes until canceled."""
        while True:
            await asyncio.sleep(WRITE_CHECK_S)
            await self.save()

    async def save(self) -> None:
        """Write the file if a row has begun or ended; one that goes on is written now and then."""
        begun = self.troubles.begun()
        self._checks += 1
        goes_on = bool(begun["failing"]) and self._checks % CHECKS_PER_REFRESH == 0
        if begun == self._written and not goes_on:
            return
        self._written = begun
        self._file.note_change()
        await self._file.store()

    def _capture(self) -> Callable[[], str]:
        rows = self.troubles.as_json()
        return lambda: json.dumps(rows)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_state(path, MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
