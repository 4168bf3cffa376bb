"""The newest status kept for one pod, and what the API has of it.

Must never write anything: :mod:`.writer` does.
"""

from __future__ import annotations

import asyncio

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import TERMINAL_PHASES, Pod
from kubeletpy.status import store
from kubeletpy.status.patch import may_wait, status_patch
from kubeletpy.status.write_problem import WriteProblem


class StatusEntry(Struct):
    """The newest status of a pod, and what the API has of it."""

    pod: Pod
    status: api.PodStatus
    in_api: api.PodStatus
    """The status in the API: from the watch, or from the response to our last write."""
    api_uid: str
    version: int = 1
    sent: int = 0
    finished: bool = False
    containers_may_run: bool = True
    changed_at: float = 0.0
    stale_since: float | None = None
    """Unix seconds of the first change that the API does not have yet."""
    writer: asyncio.Task[None] | None = None
    refused: bool = False
    """The last write failed: logged once, not at every retry."""
    problem: WriteProblem | None = None
    answered: int = 0
    """Consecutive refusals; a server that does not answer is not counted."""
    newer: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each change, for a writer that waits for the next one."""

    def changed(self, now: float) -> None:
        """There is a newer status than the one that was sent. ``now``: Unix seconds."""
        if self.stale_since is None:
            self.stale_since = now
        self.version += 1
        self.newer.set()

    @property
    def unsent(self) -> bool:
        """Whether the API does not have the newest status yet."""
        return self.version != self.sent

    @property
    def may_delete(self) -> bool:
        """Whether everything about a deleted pod is reported, so that its object may be deleted."""
        return (
            self.finished
            and self.pod.being_deleted
            and not self.pod.is_static
            and self.status.get("phase") in TERMINAL_PHASES
            and not self.unsent
        )

    @property
    def may_wait(self) -> bool:
        """Whether the newest status may be written together with the next one."""
        if self.finished and self.pod.being_deleted:
            return False
        shown = self._shown()
        # few statuses may wait: only those are compared in full before they are sent
        return (
            may_wait(self.in_api, shown)
            and status_patch(self.api_uid, self.in_api, shown) is not None
        )

    def patch(self) -> dict[str, object] | None:
        """The patch that brings the API up to the newest status; None when it has it."""
        return status_patch(self.api_uid, self.in_api, self._shown())

    def _shown(self) -> api.PodStatus:
        return store.merge_for_api(
            self.in_api, self.status, containers_may_run=self.containers_may_run
        )
