"""Queries about workers by the rest of the agent (docs/reference/behaviour.md, b9). Pure.

Reads the records and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.podworkers.records import WorkerRecord
from kubeletpy.podworkers.state_machine import WorkerMachine


class WorkerQueries:
    """Queries by the rest of the agent (docs/reference/behaviour.md, b9)."""

    def __init__(self, machine: WorkerMachine) -> None:
        self._machine = machine
        self._records: Mapping[str, WorkerRecord] = machine.records

    def record(self, uid: str) -> WorkerRecord | None:
        """The record of one pod's worker."""
        return self._records.get(uid)

    def all(self) -> Mapping[str, WorkerRecord]:
        """All records, by uid."""
        return self._records

    def could_have_running_containers(self, uid: str) -> bool:
        """Whether containers of the pod may run now or start."""
        record = self._records.get(uid)
        return not self._machine.synced if record is None else record.terminated_at is None

    def should_be_finished(self, uid: str) -> bool:
        """Whether the worker has done all its work."""
        record = self._records.get(uid)
        return self._machine.synced if record is None else record.finished

    def is_termination_requested(self, uid: str) -> bool:
        """Whether the pod is to end, or has ended."""
        record = self._records.get(uid)
        return record is not None and record.termination_requested

    def is_known_terminated(self, uid: str) -> bool:
        """Whether a worker has recorded that everything of the pod has stopped."""
        record = self._records.get(uid)
        return record is not None and record.terminated_at is not None

    def should_content_be_removed(self, uid: str) -> bool:
        """Whether dead containers and logs may go: the pod is deleted or evicted and has ended."""
        record = self._records.get(uid)
        if record is None:
            return self._machine.synced
        return record.terminated_at is not None and (record.evicted or record.deleted)

    def name_holder(self, full_name: str) -> str:
        """The uid that uses the full name of a static pod; empty: none does."""
        return self._machine.names.started(full_name) or ""

    def is_static_terminating(self, full_name: str) -> bool:
        """Whether a static pod of that full name is ending: its mirror is then still needed."""
        record = self._records.get(self._machine.names.started(full_name) or "")
        return record is not None and record.termination_requested and record.terminated_at is None
