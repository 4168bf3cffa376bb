"""The data of pod workers: messages, outcomes of syncs; records, events, effects and their checks.

Pure. Immutable data, so that a log of events replays to the same records and effects. The rules are
in :mod:`kubeletpy.podworkers.state_machine`, which checks itself after each event with the last
part of this module.

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

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

from kubeletpy.base.api import types as api
from kubeletpy.base.host.errors import Cause
from kubeletpy.base.structs import Struct
from kubeletpy.metrics.trace.model import Step
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import Decision, PodRuntimeStatus
from kubeletpy.resources.admission.checks import Rejection


class UpdateType(StrEnum):
    """Why a worker is woken (values: the kubelet's ``operation_type``)."""

    CREATE = "create"
    UPDATE = "update"
    SYNC = "sync"
    KILL = "kill"


StatusOverride = Callable[[api.PodStatus], api.PodStatus]
"""Changes the status of a pod being killed (eviction, preemption); pure."""


class KillOptions(Struct, frozen=True):
    """How a pod is to be killed."""

    grace_override: int | None = None
    """Seconds; can only shorten the grace period."""
    evict: bool = False
    status_override: StatusOverride | None = None


class PodUpdate(Struct, frozen=True):
    """One message to a pod's worker. The latest wins; a termination is never lost or undone."""

    type: UpdateType
    pod: Pod | None = None
    """None only with ``runtime_pod``."""
    mirror: Pod | None = None
    runtime_pod: PodRuntimeStatus | None = None
    """A pod that only the runtime has: it can only be killed."""
    kill: KillOptions | None = None
    received_at: float = 0.0
    """Event-loop seconds at which the cause was seen."""


class SyncOutcome(Struct, frozen=True):
    """The outcome of one worker run."""

    terminal: bool = False
    """The pod has run to its end: terminate it."""
    error: str = ""
    retry_at: float | None = None
    """Unix seconds at which a retry makes sense (end of a backoff); None: the worker decides."""
    deadline: float | None = None
    """Unix seconds at which activeDeadlineSeconds ends the pod: it is synced then, too."""
    network_not_ready: bool = False
    step: Step | None = None
    """The step that failed; None without an error."""
    cause: Cause | None = None
    """Why it failed, as data, where advice depends on it."""
    waiting: bool = False
    """The only failures are backoffs that have not ended."""
    decisions: tuple[Decision, ...] = ()
    status_override: StatusOverride | None = None
    """With ``terminal``: for the pod's final status."""


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


class CompleteStatus(Struct, frozen=True):
    """Add to the last status of an ended pod the containers that it lacks."""

    pod: Pod


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
    | CompleteStatus
    | ShowRejection
)


# -- which records and transitions are possible ----------------------------------------------
#
# The record of an event is always checked, all records in tests and simulations. A violation is a
# fault of the state machine.

LAST_EVENTS = 8
"""Events of a pod that are kept."""
_MAX_DETAIL = 120
"""Characters of the detail of a kept event."""
_SET_ONCE = ("full_name", "first_seen_at", "started_at", "terminating_at", "terminated_at")
_NEVER_UNSET = ("deleted", "evicted", "finished", "observed_runtime", "restart_requested")


class ImpossibleTransition(AssertionError):
    """A transition that the rules exclude; the message contains the pod's last events."""

    def __init__(self, uid: str, why: str, events: tuple[str, ...]) -> None:
        super().__init__(f"pod worker {uid}: {why}; last events: {', '.join(events)}")
        self.uid = uid
        self.why = why
        self.events = events


def violation(before: WorkerRecord | None, after: WorkerRecord | None) -> str:
    """The impossible part of a record's change by one event; empty: none."""
    if before is after:
        return ""
    return next(_violations(before, after), "")


def _violations(before: WorkerRecord | None, after: WorkerRecord | None) -> Iterator[str]:
    if after is None:
        if before is not None and before.running in (Stage.SYNC, Stage.TERMINATED):
            yield f"forgotten while a sync of stage {before.running} runs"
        return
    if after.finished and (after.running is not None or after.pending is not None):
        yield "has work after it has finished"
    if after.finished and after.terminated_at is None:
        yield "finished before it has terminated"
    if after.terminated_at is not None and after.terminating_at is None:
        yield "terminated without a request"
    if after.running is not None and after.active is None:
        yield "a sync runs without work"
    if after.running is Stage.TERMINATING and after.terminating_at is None:
        yield "terminates without a request"
    if (after.running is Stage.TERMINATED) != (
        after.running is not None and after.terminated_at is not None
    ):
        yield f"a sync of stage {after.running} runs in stage {after.stage}"
    if after.grace is not None and after.grace < 1:
        yield f"grace period of {after.grace} s"
    if before is None:
        return
    for name in _SET_ONCE:
        old, new = getattr(before, name), getattr(after, name)
        if old is not None and old != new:
            yield f"{name} has changed from {old} to {new}"
    for name in _NEVER_UNSET:
        if getattr(before, name) and not getattr(after, name):
            yield f"{name} was undone"
    if before.grace is not None and (after.grace is None or after.grace > before.grace):
        yield f"the grace period has grown from {before.grace} to {after.grace} s"


def check_all(
    before: Mapping[str, WorkerRecord], after: Mapping[str, WorkerRecord]
) -> tuple[str, str]:
    """The uid of the first impossible record and what is wrong with it; empty: nothing is."""
    for uid in {**before, **after}:
        if why := violation(before.get(uid), after.get(uid)):
            return uid, why
    return "", ""


class EventTrail:
    """The last events of each pod that has a record, as text."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[tuple[float | None, str, str]]] = {}

    def add(self, uid: str, event: Event) -> None:
        """Keep an event; one that only shows a status again is left out."""
        entry: tuple[float | None, str, str]
        match event:
            case StatusOutdated():
                return
            case UpdateArrived():
                entry = (event.now, "update", event.update.type.value)
            case SyncEnded(_, outcome, now):
                entry = (now, "sync ended", "cut short" if outcome is None else outcome.error)
            case PodRejected(_, rejection):
                entry = (None, "rejected", rejection.reason.value)
            case _:
                entry = (event.now, type(event).__name__, "")
        kept = self._kept.get(uid)
        if kept is None:
            kept = self._kept[uid] = deque(maxlen=LAST_EVENTS)
        kept.append(entry)

    def forget(self, uid: str) -> None:
        """The pod has no record any more."""
        self._kept.pop(uid, None)

    def last_events(self, uid: str) -> tuple[str, ...]:
        """The last events of a pod, oldest first."""
        return tuple(
            f"{'' if now is None else f'{now:.3f} '}{kind}{detail and f': {detail[:_MAX_DETAIL]}'}"
            for now, kind, detail in self._kept.get(uid, ())
        )
