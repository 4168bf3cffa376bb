"""The data of the pod workers' state machine: records, incoming events, outgoing effects.

Pure.

Plain immutable data; the rules are in :mod:`kubeletpy.podworkers.state_machine`. Must never hold a
task, a future or a clock: a log of events replays to the same records and effects.

The life of a worker; each stage repeats its sync until one succeeds::

      no record <-----------------------------------------------------------.
          |                                                                 |
          | first message                                                   |
          v                                                                 |
    .-- SYNC <-. sync ended: again after the sync period or the backoff     |
    |     '----'                                                            |
    |     | KILL; deleted; terminal in the API; no longer desired;          |
    |     | the sync found that the pod has ended by itself                 |
    |     v                                                                 |
    |   TERMINATING   containers are killed; a shorter grace interrupts     |
    |     |     |                                                           |
    |     |     | nothing runs any more; the API never knew the pod         |
    |     |     '---------------------------------------------------------->|
    |     | nothing runs any more                                           |
    |     v                                                                 |
    |   TERMINATED    volumes, cgroups and claims are released              |
    |     |                                                                 |
    |     | the sync succeeded                                              |
    |     v                                     no longer desired, or       |
    '-> FINISHED      the record stays          requested again             |
          |                                                                 |
          '-----------------------------------------------------------------'

From SYNC straight to FINISHED: a static pod that was still waiting for its name. A pod that ended
under an earlier run of the agent begins in TERMINATED.
"""

from __future__ import annotations

from enum import StrEnum

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.protocol import PodUpdate, StatusOverride, SyncOutcome, UpdateType
from kubeletpy.resources.admission.verdict import Rejection


class Stage(StrEnum):
    """Where a pod's worker is; values are the ``lifecycle`` label of kubelet_working_pods."""

    SYNC = "sync"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FINISHED = "finished"


class Work(Struct, frozen=True):
    """The input of the next sync."""

    type: UpdateType
    pod: Pod | None
    mirror: Pod | None = None
    runtime_pod: PodRuntimeStatus | None = None
    """Set only while there is no ``pod``."""
    received_at: float = 0.0


class WorkerRecord(Struct, frozen=True):
    """All that is known about one pod's worker. Times are Unix seconds, None for not yet."""

    uid: str
    full_name: str
    pending: Work | None = None
    """The only slot for messages: the newest wins."""
    active: Work | None = None
    """The input of the last sync."""
    running: Stage | None = None
    """The sync in flight."""
    first_seen_at: float = 0.0
    started_at: float | None = None
    terminating_at: float | None = None
    terminated_at: float | None = None
    grace: int | None = None
    """Seconds; only ever shrinks."""
    status_override: StatusOverride | None = None
    deleted: bool = False
    evicted: bool = False
    finished: bool = False
    restart_requested: bool = False
    """The pod was requested again while it was ending (a reused uid)."""
    observed_runtime: bool = False

    @property
    def stage(self) -> Stage:
        """Where the worker is, judging by what has happened so far."""
        if self.finished:
            return Stage.FINISHED
        if self.terminated_at is not None:
            return Stage.TERMINATED
        return Stage.SYNC if self.terminating_at is None else Stage.TERMINATING

    @property
    def termination_requested(self) -> bool:
        """Whether the pod is to end or has ended."""
        return self.terminating_at is not None

    @property
    def pod(self) -> Pod | None:
        """The newest pod object of the worker; None for a pod that only the runtime has."""
        for work in (self.pending, self.active):
            if work is not None and work.pod is not None:
                return work.pod
        return None


class WorkerSummary(Struct, frozen=True):
    """A worker's facts for housekeeping metrics."""

    stage: Stage
    orphan: bool
    has_config: bool
    static: bool


class UpdateArrived(Struct, frozen=True):
    """A message has arrived. ``runtime_quiet``: nothing of the pod runs, by the cache."""

    update: PodUpdate
    now: float
    runtime_quiet: bool = False


class SyncEnded(Struct, frozen=True):
    """A sync is over. ``outcome`` is None when it was cut short.

    ``jitter`` in [0, 0.5] stretches the wait until the next sync.
    """

    uid: str
    outcome: SyncOutcome | None
    now: float
    jitter: float = 0.0


class TimerFired(Struct, frozen=True):
    """A pod is due for its next sync."""

    uid: str
    now: float


class DesiredPods(Struct, frozen=True):
    """The orphan pass: these are the uids of all pods in the configuration."""

    uids: frozenset[str]
    now: float


class StatusOutdated(Struct, frozen=True):
    """Something that a pod's status is made of has changed, nothing else: show it at once.

    ``pod`` and ``mirror`` are the newest, as the configuration has them.
    """

    pod: Pod
    mirror: Pod | None


class PodRejected(Struct, frozen=True):
    """The node refuses to run a pod; there is no sync for it."""

    pod: Pod
    rejection: Rejection


Event = UpdateArrived | SyncEnded | TimerFired | DesiredPods | StatusOutdated | PodRejected


def event_uid(event: Event) -> str:
    """The uid of the pod that an event is about; "" for all pods."""
    if isinstance(event, UpdateArrived):
        named = event.update.pod or event.update.runtime_pod
        return "" if named is None else named.uid
    if isinstance(event, StatusOutdated | PodRejected):
        return event.pod.uid
    return "" if isinstance(event, DesiredPods) else event.uid


class RunSync(Struct, frozen=True):
    """Carry out one sync; SyncEnded must follow."""

    uid: str
    stage: Stage
    work: Work
    grace: int = 1
    status_override: StatusOverride | None = None


class Interrupt(Struct, frozen=True):
    """Cut short what the sync in flight is waiting for: the pod is to end, or to end sooner."""

    uid: str


class WakeAfter(Struct, frozen=True):
    """Send TimerFired after ``delay`` seconds, unless a sync runs earlier."""

    uid: str
    delay: float


class Terminated(Struct, frozen=True):
    """Nothing of the pod runs any more."""

    uid: str


class Finished(Struct, frozen=True):
    """The worker has done all it has to do; its record stays."""

    uid: str


class Forgotten(Struct, frozen=True):
    """The record was removed."""

    uid: str


class RefreshStatus(Struct, frozen=True):
    """Compose the pod's status again, now, whether or not a sync runs."""

    pod: Pod
    mirror: Pod | None
    status_override: StatusOverride | None = None


class ShowRejection(Struct, frozen=True):
    """Give the pod the status of a refused one."""

    pod: Pod
    rejection: Rejection


Effect = (
    RunSync
    | Interrupt
    | WakeAfter
    | Terminated
    | Finished
    | Forgotten
    | RefreshStatus
    | ShowRejection
)
