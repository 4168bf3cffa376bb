"""Names of what is done for a pod: the same in outcomes, traces, timelines, logs and explain.

A *step* is an entry in a worker's list, a *call* is one thing done within it. The values are what
people read; code compares the members. Pure.
"""

from __future__ import annotations

from enum import StrEnum


class Step(StrEnum):
    """The steps of a worker for a pod."""

    STATUS = "compute status"
    NETWORK = "network gate"
    CGROUP = "pod cgroup"
    MIRROR = "mirror pod"
    DIRECTORIES = "directories"
    VOLUMES = "volumes"
    PULL_SECRETS = "pull secrets"
    CLAIMS = "resource claims"
    PROBES = "probes"
    RUNTIME = "runtime sync"
    KILL = "kill"


class TraceCall(StrEnum):
    """The calls and waits within a step. CRI calls have their own names."""

    READ_POD = "read the pod from the runtime"
    SETTLE = "wait for the runtime to end an earlier call"
    START_PLACE = "wait for a place to start in"
    STOP_PLACE = "wait for a place to stop in"
    LOOK_UP_IMAGE = "look up image"
    PULL_IMAGE = "pull image"
    RUN_POD_SANDBOX = "RunPodSandbox"
    POD_SANDBOX_STATUS = "PodSandboxStatus"
    STOP_POD_SANDBOX = "StopPodSandbox"
    CREATE_CONTAINER = "CreateContainer"
    START_CONTAINER = "StartContainer"
    STOP_CONTAINER = "StopContainer"
    STOP_ORDER = "wait for the containers before it"
    POST_START = "postStart hook"
    PRE_STOP = "preStop hook"
    RESIZE = "resize"
    BACK_OFF = "back-off"
    """Its end is known, and may be still to come."""
    ADMIT = "admission"
    WRITE_STATUS = "write status"
    TAKE_VOLUMES_DOWN = "take volumes down"
    REMOVE_CGROUP = "remove cgroup"
    WAIT_FOR_WORKER = "wait for its worker"
    """Before the first step; drawn, never traced."""
    INIT_RUNS = "init container runs"
    """Known from its termination; drawn, never traced."""


Name = Step | TraceCall


def named(value: str) -> Name:
    """The step or call with this value. Raises ValueError if there is none."""
    return Step(value) if value in set(Step) else TraceCall(value)
