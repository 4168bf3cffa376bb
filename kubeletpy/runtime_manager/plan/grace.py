"""How long a container gets to end by itself, also when an earlier agent began its stop. Pure.

Grace periods are in seconds. Source: docs/reference/behaviour.md, n2. Must never lengthen one.
"""

from __future__ import annotations

from enum import StrEnum

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import MAX_GRACE_S, Pod
from kubeletpy.pods.runtime_status import KillReason
from kubeletpy.runtime_manager.names import AnnotatedContainerInfo

MINIMUM = 2
"""Every container gets this much, whatever was requested."""


def base_grace(deletion: int | None, probe: int | None, termination: int | None) -> int:
    """The first one set: of the deletion, of the failed probe, of the spec; else 2.

    At most MAX_GRACE_S: probes and annotations can hold any 64-bit number.
    """
    for grace in (deletion, probe, termination):
        if grace is not None:
            return min(max(0, grace), MAX_GRACE_S)
    return MINIMUM


def container_grace(pod: Pod, container: api.Container | None, reason: KillReason | None) -> int:
    """The grace period from the pod's spec, before any override."""
    return base_grace(
        pod.deletion_grace_period,
        _probe_grace(container, reason),
        pod.spec.get("terminationGracePeriodSeconds"),
    )


def remembered_grace(container: AnnotatedContainerInfo) -> int:
    """The grace period of a container whose pod was removed, from its annotations."""
    return base_grace(container.deletion_grace_period, None, container.termination_grace_period)


def remaining(grace: int, elapsed: float) -> int:
    """The rest of a grace period after some seconds; only whole seconds count."""
    return max(0, grace - int(elapsed))


def _probe_grace(container: api.Container | None, reason: KillReason | None) -> int | None:
    if container is None:
        return None
    probe = None
    if reason is KillReason.LIVENESS_PROBE:
        probe = container.get("livenessProbe")
    elif reason is KillReason.STARTUP_PROBE:
        probe = container.get("startupProbe")
    return probe.get("terminationGracePeriodSeconds") if probe else None


# The rest of a stop that an earlier agent began

WITHDRAWN_S = 60.0
"""Seconds after the end of the grace period for which a stop that was no deletion can be resumed.
Later, its cause (a probe, an eviction) may not hold in the next agent."""


class HookState(StrEnum):
    """The state of a container's preStop hook."""

    NONE = "none"
    """It was not started."""
    BEGUN = "begun"
    ENDED = "ended"


class StopRecord(Struct, frozen=True):
    """A stop that an agent began."""

    container_id: str
    life: str
    """Names the agent's process."""
    began: float
    """Seconds of a clock that never steps and that all agents since the boot share."""
    deleting: bool
    """The pod was being deleted, which nobody can withdraw."""
    hook: HookState = HookState.NONE


class ResumedStop(Struct, frozen=True):
    """The rest of a stop that an earlier agent began."""

    anew: bool = False
    """No earlier agent has begun it."""
    elapsed: float = 0.0
    """Seconds of the grace period that are over."""
    hook: api.LifecycleHandler | None = None
    """The preStop hook to run; None: there is none, or it has had its run."""


def resume_stop(
    record: StopRecord | None,
    *,
    grace: int,
    deleting: bool,
    pre_stop: api.LifecycleHandler | None,
    now: float,
) -> ResumedStop:
    """The rest of a stop that an earlier agent began; all of it without a record.

    A hook runs once: an exec or HTTP hook that was interrupted with its agent is not completed. A
    sleep continues for its remaining seconds. ``now`` is by the clock of the record's ``began``.
    """
    if record is None:
        return ResumedStop(anew=True, hook=pre_stop)
    elapsed = max(0.0, now - record.began)
    if not (record.deleting and deleting) and elapsed > grace + WITHDRAWN_S:
        return ResumedStop(anew=True, hook=pre_stop)
    if record.hook is HookState.NONE:
        return ResumedStop(elapsed=elapsed, hook=pre_stop)
    return ResumedStop(elapsed=elapsed, hook=_rest_of_sleep(record, pre_stop, elapsed))


def _rest_of_sleep(
    record: StopRecord, pre_stop: api.LifecycleHandler | None, elapsed: float
) -> api.LifecycleHandler | None:
    seconds = ((pre_stop or {}).get("sleep") or {}).get("seconds")
    if record.hook is HookState.ENDED or not isinstance(seconds, int):
        return None
    left = seconds - int(elapsed)
    return {"sleep": {"seconds": left}} if left > 0 else None
