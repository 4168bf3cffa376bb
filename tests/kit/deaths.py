"""Sixty ways in which a container ends, each with its true cause: the catalogue of deaths.

The facts of each way are those of a node with process events and a kernel log, unless its
name states otherwise. Simulations and tests on a real runtime read kind and actor by name.
"""

from __future__ import annotations

from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy.observe.explain.deaths import (
    Actor,
    DeathKind,
    Ending,
    Limit,
    MemoryKill,
    PodEnd,
    pod_end,
)
from kubeletpy.pods.runtime_status import KillReason, StopNote

AT = 1_700_000_000.0


class Way(Struct, frozen=True):
    """A way to die, with its true cause."""

    kind: DeathKind
    actor: Actor
    ending: Ending


def killed(limit: Limit, ago: float = 0.1, pid: int = 71) -> MemoryKill:
    """A process that the OOM killer has ended some seconds before the container's end."""
    return MemoryKill("hog", pid, limit, AT - ago)


def ended(code: int, **more: Any) -> Ending:
    """The end of a main process by itself, or with the facts of the keywords."""
    found: dict[str, Any] = {"signal": 0, "log_followed": True, "at": AT, "reason": "Error"}
    return Ending(code, **{**found, **more})


def by_signal(number: int, **more: Any) -> Ending:
    return ended(128 + number, signal=number, **more)


def stopped(
    why: KillReason | None = None, end: PodEnd | None = None, code: int = 0, **more: Any
) -> Ending:
    """The end of a container that the agent was stopping for 0.2 s, with 30 s to end by itself."""
    late = bool(more.pop("late", False))
    note = StopNote("c", why, 30, hook_late=late)
    return ended(code, stop=note, stopped_for=0.2, pod_end=end, **more)


def terminated(reason: str = "", *, deleted: bool = False, removed: bool = False) -> PodEnd:
    return pod_end(reason, "", deleted=deleted, removed=removed, from_api=False)


DELETED = terminated(deleted=True)
KILLED: dict[str, Any] = {"code": 137, "signal": 9}
"""It did not end by itself."""
_PROCESS, _KERNEL, _AGENT = Actor.PROCESS, Actor.KERNEL, Actor.AGENT
_API, _OUTSIDE, _RUNTIME = Actor.API, Actor.OUTSIDE, Actor.RUNTIME

WAYS: dict[str, Way] = {
    # by itself
    "exit-0": Way(DeathKind.EXITED, _PROCESS, ended(0, reason="Completed")),
    "exit-1": Way(DeathKind.EXITED, _PROCESS, ended(1)),
    "exit-137": Way(DeathKind.EXITED, _PROCESS, ended(137)),
    "exit-139": Way(DeathKind.EXITED, _PROCESS, ended(139)),
    "exit-143": Way(DeathKind.EXITED, _PROCESS, ended(143)),
    "exit-255": Way(DeathKind.EXITED, _PROCESS, ended(255)),
    "shell-without-command": Way(DeathKind.EXITED, _PROCESS, ended(127)),
    "shell-without-permission": Way(DeathKind.EXITED, _PROCESS, ended(126)),
    "shell-whose-child-was-killed": Way(DeathKind.EXITED, _PROCESS, ended(137)),
    "sigterm-from-inside": Way(DeathKind.EXITED, _PROCESS, ended(143)),
    "sigterm-from-outside-handled": Way(DeathKind.EXITED, _PROCESS, ended(7)),
    "init-container-fails": Way(DeathKind.EXITED, _PROCESS, ended(3)),
    "exit-143-without-process-events": Way(DeathKind.EXITED, _PROCESS, ended(143, signal=None)),
    # by a signal
    "sigkill-from-outside": Way(DeathKind.SIGNAL, _OUTSIDE, by_signal(9)),
    "sigkill-by-a-client-of-the-runtime": Way(DeathKind.SIGNAL, _OUTSIDE, by_signal(9)),
    "sigkill-among-shared-pids": Way(DeathKind.SIGNAL, Actor.UNKNOWN, by_signal(9, own_pids=False)),
    "sigterm-among-host-pids": Way(DeathKind.SIGNAL, Actor.UNKNOWN, by_signal(15, own_pids=False)),
    "sigkill-after-an-oom-reason": Way(
        DeathKind.SIGNAL,
        _OUTSIDE,
        by_signal(9, reason="OOMKilled", other_oom=killed(Limit.CONTAINER, ago=60)),
    ),
    "segmentation-fault": Way(DeathKind.FAULT, _PROCESS, by_signal(11)),
    "illegal-instruction": Way(DeathKind.FAULT, _PROCESS, by_signal(4)),
    "division-by-zero": Way(DeathKind.FAULT, _PROCESS, by_signal(8)),
    "breakpoint": Way(DeathKind.FAULT, _PROCESS, by_signal(5)),
    "privileged-instruction": Way(DeathKind.FAULT, _PROCESS, by_signal(11)),
    # out of memory
    "oom-at-its-limit": Way(
        DeathKind.OOM_CONTAINER,
        _KERNEL,
        by_signal(9, reason="OOMKilled", main_oom=killed(Limit.CONTAINER), oom_kills=1),
    ),
    "oom-at-the-limit-of-its-pod": Way(
        DeathKind.OOM_POD, _KERNEL, by_signal(9, main_oom=killed(Limit.POD))
    ),
    "oom-of-the-node": Way(DeathKind.OOM_NODE, _KERNEL, by_signal(9, main_oom=killed(Limit.NODE))),
    "oom-of-all-processes": Way(
        DeathKind.OOM_CONTAINER,
        _KERNEL,
        by_signal(9, main_oom=killed(Limit.CONTAINER), other_oom=killed(Limit.CONTAINER, pid=72)),
    ),
    "oom-of-a-child-and-exit-137": Way(
        DeathKind.OOM_CHILD,
        _KERNEL,
        ended(137, reason="OOMKilled", other_oom=killed(Limit.CONTAINER)),
    ),
    "oom-of-a-child-and-exit-1": Way(
        DeathKind.EXITED, _PROCESS, ended(1, reason="OOMKilled", other_oom=killed(Limit.CONTAINER))
    ),
    "oom-long-before-exit-0": Way(
        DeathKind.EXITED,
        _PROCESS,
        ended(0, reason="OOMKilled", other_oom=killed(Limit.CONTAINER, ago=600)),
    ),
    "oom-while-it-is-stopped": Way(
        DeathKind.OOM_CONTAINER,
        _KERNEL,
        stopped(None, DELETED, **KILLED, main_oom=killed(Limit.CONTAINER)),
    ),
    "oom-without-kernel-log": Way(
        DeathKind.OOM, _KERNEL, by_signal(9, reason="OOMKilled", log_followed=False)
    ),
    "oom-by-the-counter-alone": Way(
        DeathKind.OOM, _KERNEL, ended(137, signal=None, log_followed=False, oom_kills=1)
    ),
    "oom-without-process-events": Way(
        DeathKind.OOM_POD, _KERNEL, ended(137, signal=None, other_oom=killed(Limit.POD))
    ),
    # by the agent
    "liveness-probe": Way(DeathKind.LIVENESS, _AGENT, stopped(KillReason.LIVENESS_PROBE)),
    "liveness-probe-and-sigkill": Way(
        DeathKind.LIVENESS, _AGENT, stopped(KillReason.LIVENESS_PROBE, **KILLED)
    ),
    "startup-probe": Way(DeathKind.STARTUP, _AGENT, stopped(KillReason.STARTUP_PROBE)),
    "definition-changed": Way(DeathKind.DEFINITION, _AGENT, stopped(KillReason.DEFINITION_CHANGED)),
    "resize-with-restart": Way(DeathKind.RESIZE, _AGENT, stopped(KillReason.RESIZE)),
    "poststart-hook-fails": Way(DeathKind.POST_START, _AGENT, stopped(KillReason.POST_START_HOOK)),
    "restart-of-all-containers": Way(
        DeathKind.RESTART_ALL, _AGENT, stopped(KillReason.RESTART_ALL, **KILLED)
    ),
    "state-unknown-to-the-runtime": Way(
        DeathKind.STATE, _AGENT, stopped(KillReason.UNKNOWN_STATE, **KILLED)
    ),
    "sandbox-killed": Way(DeathKind.SANDBOX, _AGENT, stopped(KillReason.SANDBOX_CHANGED)),
    "sandbox-killed-among-shared-pids": Way(
        DeathKind.SANDBOX, _KERNEL, by_signal(9, own_pids=False, sandbox_ready=False)
    ),
    "cgroup-removed": Way(DeathKind.CGROUP, _AGENT, stopped()),
    "sidecar-of-a-pod-that-has-ended": Way(
        DeathKind.POD_ENDED, _AGENT, stopped(None, terminated())
    ),
    "container-beside-a-failed-init-container": Way(
        DeathKind.POD_ENDED, _AGENT, stopped(KillReason.POD_ENDED)
    ),
    # by others through the agent
    "deleted": Way(DeathKind.DELETED, _API, stopped(None, DELETED)),
    "deleted-and-deaf": Way(DeathKind.DELETED, _API, stopped(None, DELETED, **KILLED)),
    "prestop-hook-too-long": Way(
        DeathKind.PRE_STOP, _API, stopped(None, DELETED, **KILLED, late=True)
    ),
    "deleted-after-an-oom-reason": Way(
        DeathKind.DELETED,
        _API,
        stopped(None, DELETED, reason="OOMKilled", other_oom=killed(Limit.CONTAINER, ago=60)),
    ),
    "manifest-removed": Way(
        DeathKind.REMOVED, Actor.MANIFEST, stopped(None, terminated(removed=True))
    ),
    "deadline": Way(DeathKind.DEADLINE, _AGENT, stopped(None, terminated("DeadlineExceeded"))),
    "evicted": Way(DeathKind.EVICTED, _AGENT, stopped(None, terminated("Evicted"))),
    "preempted": Way(DeathKind.PREEMPTED, _AGENT, stopped(None, terminated("Preempting"))),
    "node-shutdown": Way(DeathKind.SHUTDOWN, Actor.NODE, stopped(None, terminated("Terminated"))),
    "device-lost": Way(
        DeathKind.REFUSED, _AGENT, stopped(None, terminated("UnexpectedAdmissionError"))
    ),
    # by the runtime
    "program-missing": Way(DeathKind.NEVER_RAN, _RUNTIME, Ending(128, "StartError")),
    "shim-killed": Way(
        DeathKind.RUNTIME_LOST, _RUNTIME, stopped(KillReason.SANDBOX_CHANGED, code=255, alive=True)
    ),
    "runtime-lost-it": Way(DeathKind.RUNTIME_LOST, _RUNTIME, Ending(255, "Unknown")),
}
UNEXPLAINED: dict[str, Way] = {
    "exit-code-137-without-evidence": Way(
        DeathKind.UNKNOWN, Actor.UNKNOWN, ended(137, signal=None)
    ),
    "exit-code-139-without-evidence": Way(
        DeathKind.UNKNOWN, Actor.UNKNOWN, ended(139, signal=None)
    ),
    "exit-code-143-among-shared-pids": Way(
        DeathKind.UNKNOWN, Actor.UNKNOWN, ended(143, signal=None, own_pids=False)
    ),
}
"""Ends on nodes without process events, which nobody can explain."""
