"""How a message changes a worker's record. Pure (docs/reference/behaviour.md, b2, b3, b4).

Must never undo a termination or lengthen a grace period.
"""

from __future__ import annotations

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.protocol import KillOptions, PodUpdate, UpdateType
from kubeletpy.podworkers.records import Stage, UpdateArrived, Work, WorkerRecord
from kubeletpy.podworkers.requeue import MIN_GRACE, effective_grace

_NO_OPTIONS = KillOptions()


def new_record(uid: str, full_name: str, event: UpdateArrived) -> WorkerRecord:
    """The record of a pod that has no worker yet."""
    record = WorkerRecord(uid=uid, full_name=full_name, first_seen_at=event.now)
    pod = event.update.pod
    if pod is not None and pod.is_terminal_in_api and event.runtime_quiet:
        # it ended under an earlier run of the agent: only the finishing is left
        return replace(record, terminating_at=event.now, terminated_at=event.now)
    return record


def is_urgent(before: WorkerRecord, record: WorkerRecord) -> bool:
    """Whether to cut the sync in flight short: the pod is to end, or to end sooner."""
    if record.running is Stage.SYNC:
        return record.termination_requested and not before.termination_requested
    shorter = before.grace is not None and record.grace is not None and record.grace < before.grace
    return record.running is Stage.TERMINATING and shorter


def request_termination(record: WorkerRecord, update: PodUpdate, now: float) -> WorkerRecord:
    """The record after a message, which may request the pod's end; ``now`` in Unix seconds.

    A message without a pod does: the pod is not known any more.
    """
    if record.termination_requested:
        return record
    if update.pod is None or update.pod.being_deleted:
        return replace(record, terminating_at=now, deleted=True)
    if update.pod.is_terminal_in_api:
        return replace(record, terminating_at=now)
    if update.type is UpdateType.KILL:
        evicted = update.kill is not None and update.kill.evict
        return replace(record, terminating_at=now, evicted=evicted)
    return record


def merge_kill(record: WorkerRecord, options: KillOptions | None, pod: Pod | None) -> WorkerRecord:
    """The record of an ending pod with the shortest grace period that was requested."""
    options = options or _NO_OPTIONS
    if pod is None:
        asked = MIN_GRACE if options.grace_override is None else options.grace_override
        grace = max(min(asked, record.grace or asked), MIN_GRACE)
    else:
        grace = effective_grace(record.grace, pod, options.grace_override)
    override = options.status_override or record.status_override
    return replace(record, grace=grace, status_override=override)


def next_work(record: WorkerRecord, update: PodUpdate, pod: Pod | None) -> Work:
    """The input of the next sync: the newest message, with the age of the oldest that waits."""
    earliest = update.received_at
    if record.pending is not None and record.pending.received_at:
        earliest = min(earliest, record.pending.received_at) or record.pending.received_at
    mirror = update.mirror
    if mirror is None and update.pod is None and record.pending is not None:
        mirror = record.pending.mirror
    return Work(
        type=update.type,
        pod=pod,
        mirror=mirror,
        runtime_pod=update.runtime_pod if pod is None else None,
        received_at=earliest,
    )
