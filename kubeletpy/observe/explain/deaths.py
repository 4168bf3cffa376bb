"""Why a container ended: the rule or the actor behind it, and the evidence. Pure.

:func:`decide` is the only place that names a cause. Where the facts allow more than one, the kind
is unknown, with the evidence that there is. A number of the kernel (a counter, the signal of a main
process) is preferred to any text, and no name that a process chose decides anything.
"""

from __future__ import annotations

from enum import StrEnum

from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.observe.explain.texts import duration, one_line
from kubeletpy.pods.runtime_status import KillReason, StopNote


class DeathKind(StrEnum):
    """The causes of a container's end; fixed words for programs, kept between releases."""

    EXITED = "exited"
    SIGNAL = "signal"
    FAULT = "fault"
    OOM_CONTAINER = "out-of-memory-container"
    OOM_POD = "out-of-memory-pod"
    OOM_NODE = "out-of-memory-node"
    OOM = "out-of-memory"
    """The limit that was reached is not known."""
    OOM_CHILD = "out-of-memory-child"
    EVICTED = "evicted"
    PREEMPTED = "preempted"
    DEADLINE = "deadline"
    SHUTDOWN = "node-shutdown"
    DELETED = "deleted"
    REMOVED = "removed"
    REFUSED = "refused"
    POD_ENDED = "pod-ended"
    LIVENESS = "liveness-probe"
    STARTUP = "startup-probe"
    DEFINITION = "definition-changed"
    RESIZE = "resize"
    STATE = "unknown-state"
    POST_START = "post-start-hook"
    PRE_STOP = "pre-stop-timeout"
    RESTART_ALL = "restart-all"
    SANDBOX = "sandbox-changed"
    CGROUP = "cgroup-missing"
    NEVER_RAN = "never-ran"
    RUNTIME_LOST = "runtime-lost"
    UNKNOWN = "unknown"


class Actor(StrEnum):
    """The one that ended a container."""

    PROCESS = "process"
    """Its own program."""
    KERNEL = "kernel"
    AGENT = "agent"
    API = "API"
    """A client of the API."""
    MANIFEST = "manifest"
    """A change of a static pod's source."""
    NODE = "node"
    """The machine's shutdown."""
    RUNTIME = "runtime"
    OUTSIDE = "outside"
    """A process outside the container that is not the agent's."""
    UNKNOWN = "unknown"


class DeathCause(Struct, frozen=True):
    """Why a container ended."""

    kind: DeathKind
    actor: Actor
    evidence: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Returns the cause with its evidence as text."""
        what = _TEXTS[self.kind]
        if self.kind is DeathKind.SIGNAL and self.actor is Actor.OUTSIDE:
            what = "killed by a signal from outside the container"
        return what + (f" ({'; '.join(self.evidence)})" if self.evidence else "")

    @property
    def alarming(self) -> bool:
        """Whether neither the agent nor the program itself intended it, and no event reports it."""
        return self.actor in _ALARMING and self.kind is not DeathKind.NEVER_RAN


_ALARMING = (Actor.KERNEL, Actor.OUTSIDE, Actor.RUNTIME, Actor.UNKNOWN)
_TEXTS = {
    DeathKind.EXITED: "ended by itself",
    DeathKind.SIGNAL: "killed by a signal of another process",
    DeathKind.FAULT: "killed by the kernel for a fault of its program",
    DeathKind.OOM_CONTAINER: "killed by the kernel at the memory limit of the container",
    DeathKind.OOM_POD: "killed by the kernel at the memory limit of the pod",
    DeathKind.OOM_NODE: "killed by the kernel because the node was out of memory",
    DeathKind.OOM: "killed by the kernel at a memory limit",
    DeathKind.OOM_CHILD: "ended after the kernel killed one of its processes at a memory limit",
    DeathKind.EVICTED: "stopped by the agent: the pod was evicted",
    DeathKind.PREEMPTED: "stopped by the agent: the pod was preempted",
    DeathKind.DEADLINE: "stopped by the agent at the pod's activeDeadlineSeconds",
    DeathKind.SHUTDOWN: "stopped because the node shut down",
    DeathKind.DELETED: "stopped because the pod was deleted",
    DeathKind.REMOVED: "stopped because no source has the pod any more",
    DeathKind.REFUSED: "stopped by the agent: the node refused the pod",
    DeathKind.POD_ENDED: "stopped by the agent: the pod had ended",
    DeathKind.LIVENESS: "stopped by the agent: the liveness probe failed",
    DeathKind.STARTUP: "stopped by the agent: the startup probe failed",
    DeathKind.DEFINITION: "stopped by the agent: the container's definition changed",
    DeathKind.RESIZE: "stopped by the agent for a resize that requires a restart",
    DeathKind.STATE: "stopped by the agent: the runtime reported no state of the container",
    DeathKind.POST_START: "stopped by the agent: the postStart hook failed",
    DeathKind.PRE_STOP: "stopped by the agent: the preStop hook outlasted the grace period",
    DeathKind.RESTART_ALL: "stopped by the agent: all containers restart",
    DeathKind.SANDBOX: "stopped because the pod's sandbox ended or changed",
    DeathKind.CGROUP: "stopped by the agent: the pod's cgroup was missing",
    DeathKind.NEVER_RAN: "the runtime could not start its program",
    DeathKind.RUNTIME_LOST: "the runtime lost it",
    DeathKind.UNKNOWN: "ended for an unknown cause",
}


class Limit(StrEnum):
    """The owner of the memory limit that was reached."""

    CONTAINER = "container"
    POD = "pod"
    NODE = "node"
    UNKNOWN = ""


_OOM_KINDS = {
    Limit.CONTAINER: DeathKind.OOM_CONTAINER,
    Limit.POD: DeathKind.OOM_POD,
    Limit.NODE: DeathKind.OOM_NODE,
    Limit.UNKNOWN: DeathKind.OOM,
}


class MemoryKill(Struct, frozen=True):
    """A process of the container that the kernel killed for lack of memory, by the kernel's log."""

    process: str
    """The name that it had chosen."""
    pid: int
    limit: Limit
    at: float
    """Unix seconds."""

    @property
    def text(self) -> str:
        """Returns the process for a message."""
        return f"process {one_line(self.process, 64)}, pid {self.pid}"


class PodEnd(Struct, frozen=True):
    """Why a pod was terminated."""

    kind: DeathKind
    actor: Actor
    detail: str = ""


class Ending(Struct, frozen=True):
    """The facts about one container's end. Times are Unix seconds."""

    code: int
    reason: str = ""
    """The runtime's."""
    ran: bool = True
    """Its program was started."""
    at: float = 0.0
    stop: StopNote | None = None
    """The agent was stopping it."""
    stopped_for: float = 0.0
    """Seconds from the beginning of that stop to the end."""
    pod_end: PodEnd | None = None
    own_pids: bool = True
    """Its main process was process 1 of a PID namespace, which ignores what has no handler."""
    signal: int | None = None
    """The signal that ended the main process; 0: none did; None: not known."""
    main_oom: MemoryKill | None = None
    """The main process was killed."""
    other_oom: MemoryKill | None = None
    """The last other process that was killed, or any if the main process is not known."""
    oom_kills: int | None = None
    """Processes killed at its end, by the counter of its cgroup or pod; None: not readable."""
    log_followed: bool = False
    """The kernel's log was followed all the time."""
    sandbox_ready: bool = True
    alive: bool = False
    """Its main process still ran when the runtime reported its end."""


CHILD_S = 5.0
"""Seconds after which the kill of a process no longer explains the end of the main one."""
KILL = 9
_FAULTS = (4, 5, 7, 8, 11, 31)
"""Signals that the kernel forces on a process: SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS."""
_RUNTIME_KILLED = 137
_NEVER_STARTED = ("StartError", "ContainerCannotRun")
_LOST = ("Unknown", "ContainerStatusUnknown")
_OOM_REASON = "OOMKilled"
_STOPS = {
    KillReason.DEFINITION_CHANGED: DeathKind.DEFINITION,
    KillReason.LIVENESS_PROBE: DeathKind.LIVENESS,
    KillReason.STARTUP_PROBE: DeathKind.STARTUP,
    KillReason.UNKNOWN_STATE: DeathKind.STATE,
    KillReason.RESIZE: DeathKind.RESIZE,
    KillReason.SANDBOX_CHANGED: DeathKind.SANDBOX,
    KillReason.POD_ENDED: DeathKind.POD_ENDED,
    KillReason.POST_START_HOOK: DeathKind.POST_START,
    KillReason.RESTART_ALL: DeathKind.RESTART_ALL,
}
_POD_REASONS = {
    "Evicted": (DeathKind.EVICTED, Actor.AGENT),
    "Preempting": (DeathKind.PREEMPTED, Actor.AGENT),
    "DeadlineExceeded": (DeathKind.DEADLINE, Actor.AGENT),
    "Terminated": (DeathKind.SHUTDOWN, Actor.NODE),
}
"""Reasons of a pod's status that the node gives to pods that it ends."""
_REFUSALS = frozenset(map(str, AdmissionReason))


def pod_end(reason: str, message: str, *, deleted: bool, removed: bool, from_api: bool) -> PodEnd:
    """Return why a pod is terminated.

    Args:
        reason: of the pod's status, as the agent has it.
        message: likewise.
        deleted: the API shows a deletion.
        removed: no source has the pod any more.
        from_api: its source was the API, from which a pod goes only by its deletion, although
            nobody may have seen that: by force, or when the agent was late.
    """
    detail = one_line(": ".join(filter(None, (reason, message))), 200)
    if reason in _POD_REASONS:
        return PodEnd(*_POD_REASONS[reason], detail)
    if reason in _REFUSALS or reason.startswith("OutOf"):
        return PodEnd(DeathKind.REFUSED, Actor.AGENT, detail)
    if deleted or (removed and from_api):
        return PodEnd(DeathKind.DELETED, Actor.API)
    if removed:
        return PodEnd(DeathKind.REMOVED, Actor.MANIFEST)
    return PodEnd(DeathKind.POD_ENDED, Actor.AGENT)


def decide(end: Ending) -> DeathCause:
    """Return the cause of a container's end."""
    code = _code(end)
    if not end.ran or end.reason in _NEVER_STARTED:
        return DeathCause(DeathKind.NEVER_RAN, Actor.RUNTIME, (code,))
    if end.reason in _LOST or end.alive or (end.signal and end.code != 128 + end.signal):
        what = "its process still ran" if end.alive else ""
        if not end.alive and end.signal:
            what = f"its process ended by signal {end.signal}"
        return DeathCause(DeathKind.RUNTIME_LOST, Actor.RUNTIME, _texts(code, what))
    killed = end.code == _RUNTIME_KILLED or end.signal == KILL
    if end.main_oom is not None and killed:
        return _oom(end, end.main_oom, code)
    if end.stop is not None:
        return _stopped(end, end.stop, code)
    if end.code != _RUNTIME_KILLED:
        return _ended_alone(end, code)
    if end.signal == 0:
        other = end.other_oom
        if other is not None and end.at - other.at <= CHILD_S:
            kind = DeathKind.OOM_CHILD
            return DeathCause(kind, Actor.KERNEL, _texts(code, other.text, _limit(other)))
        return _ended_alone(end, code)
    if not end.sandbox_ready and not end.own_pids:
        evidence = _texts(code, "its PID namespace ended with the sandbox")
        return DeathCause(DeathKind.SANDBOX, Actor.KERNEL, evidence)
    # SIGKILL, as far as is known: of the OOM killer, unless the log shows that it was another one
    if end.signal is None and end.other_oom is not None:
        return _oom(end, end.other_oom, code)
    if not (end.log_followed and end.signal == KILL) and (
        end.reason == _OOM_REASON or (end.oom_kills or 0) > 0
    ):
        return _oom(end, None, code)
    return _ended_alone(end, code)


def _code(end: Ending) -> str:
    named = f" {end.reason}" if end.reason not in ("", "Error", "Completed") else ""
    return f"exit code {end.code}{named}"


def _texts(*found: str) -> tuple[str, ...]:
    return tuple(one_line(each, 200) for each in found if each)


def _limit(kill: MemoryKill) -> str:
    return f"memory limit of the {kill.limit}" if kill.limit else ""


def _count(end: Ending) -> str:
    return f"oom_kill counter {end.oom_kills}" if end.oom_kills else ""


def _oom(end: Ending, kill: MemoryKill | None, code: str) -> DeathCause:
    limit = Limit.UNKNOWN if kill is None else kill.limit
    named = "" if kill is None else kill.text
    return DeathCause(_OOM_KINDS[limit], Actor.KERNEL, _texts(code, named, _count(end)))


def _stopped(end: Ending, stop: StopNote, code: str) -> DeathCause:
    detail, actor = "", Actor.AGENT
    if stop.reason is not None:
        kind = _STOPS[stop.reason]
    elif end.pod_end is not None:
        kind, actor, detail = end.pod_end.kind, end.pod_end.actor, end.pod_end.detail
    else:
        kind = DeathKind.CGROUP
    took = f"{duration(end.stopped_for)} after the stop began, of a grace period of {stop.grace}s"
    if end.signal == KILL:
        took = f"killed {took}"
    if stop.hook_late:
        return DeathCause(DeathKind.PRE_STOP, actor, _texts(code, took, _TEXTS[kind], detail))
    return DeathCause(kind, actor, _texts(code, took, detail))


def _ended_alone(end: Ending, code: str) -> DeathCause:
    """Return the cause of an end that neither the agent nor a lack of memory explains."""
    number = end.signal if end.signal is not None else _possible_signal(end)
    earlier = end.other_oom
    killed = "" if earlier is None else f"the kernel had killed {earlier.text}"
    if not number:
        return DeathCause(DeathKind.EXITED, Actor.PROCESS, _texts(code, killed or _count(end)))
    if end.signal is None:
        why = f"its end by signal {number} and an exit with that code have the same record"
        return DeathCause(DeathKind.UNKNOWN, Actor.UNKNOWN, _texts(code, why, killed))
    if end.own_pids and number != KILL:
        # process 1 of a namespace ignores signals without a handler but for the kernel's own
        return DeathCause(DeathKind.FAULT, Actor.PROCESS, _texts(code, f"signal {number}"))
    actor = Actor.OUTSIDE if end.own_pids else Actor.UNKNOWN
    return DeathCause(DeathKind.SIGNAL, actor, _texts(code, f"signal {number}", killed))


def _possible_signal(end: Ending) -> int:
    """Return the signal that an exit code can stand for, or 0."""
    number = end.code - 128
    if not 0 < number <= 64:
        return 0
    return number if not end.own_pids or number == KILL or number in _FAULTS else 0
