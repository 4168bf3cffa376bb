"""When a probe runs and what its result is: a state machine, with its inputs and reports. Pure.

``with_container_state`` takes in the state of the container, ``finished`` the finding of a run. The
state contains when the next run is due; no polling is needed in between. Sources:
docs/reference/behaviour.md, m1, m2. Must never read a clock: times are seconds of the event loop,
given as ``now``.

Three things differ from a worker that ticks every period; only timing shows them:

- A probe that waits (for its container, for the startup probe) has no timer; what it waits for
  wakes it.
- The first run that counts comes half a period to a period after probing may begin, where a ticker
  started with the pod would have it. So a startup probe still has failureThreshold periods.
- Before that, startup and readiness probes have early runs at growing intervals, as the kubelet
  runs readiness probes early whenever it computes a status. An early success counts; an early
  failure is neither counted nor reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import parse_time
from kubeletpy.base.structs import Struct, replace
from kubeletpy.pods.pod import TERMINAL_PHASES, Pod
from kubeletpy.pods.runtime_status import ProbeOutcome, restart_after_exit, triggers_restart_all

EARLY_PAUSE_S = 0.1
"""Pause after the first early run; it doubles after each further one."""
RESTART_SLACK_S = 10.0
"""A container that started earlier than this before the agent predates it."""
MAX_SECONDS = 1_000_000_000
"""Upper bound for any time in a probe."""


class ProbeKind(StrEnum):
    """The three probes, named as in events and metrics."""

    STARTUP = "Startup"
    READINESS = "Readiness"
    LIVENESS = "Liveness"


FIELDS: Mapping[ProbeKind, str] = {
    ProbeKind.STARTUP: "startupProbe",
    ProbeKind.READINESS: "readinessProbe",
    ProbeKind.LIVENESS: "livenessProbe",
}


def field_of(container: api.Container, kind: ProbeKind) -> api.Probe:
    """Return the probe of a kind as the container's spec has it."""
    return cast(api.Probe, container.get(FIELDS[kind], {}))


_INITIAL = {
    ProbeKind.STARTUP: ProbeOutcome.UNKNOWN,
    ProbeKind.READINESS: ProbeOutcome.FAILURE,
    ProbeKind.LIVENESS: ProbeOutcome.SUCCESS,
}


class ProbeSpec(Struct, frozen=True):
    """How a probe is run. Seconds and counts, kept within bounds for any manifest."""

    kind: ProbeKind
    period: float = 10
    timeout: float = 1
    initial_delay: float = 0
    failure_threshold: int = 3
    success_threshold: int = 1

    @classmethod
    def from_probe(cls, kind: ProbeKind, probe: Mapping[str, object]) -> ProbeSpec:
        """Read the API's Probe, with the API's defaults for missing fields."""

        def number(field: str, default: int) -> int:
            value = probe.get(field)
            if not isinstance(value, int) or value < 1:
                return default
            return min(value, MAX_SECONDS)

        return cls(
            kind,
            number("periodSeconds", 10),
            number("timeoutSeconds", 1),
            number("initialDelaySeconds", 0),
            number("failureThreshold", 3),
            number("successThreshold", 1),
        )


class ProbedContainer(Struct, frozen=True):
    """The container's state from the pod's status."""

    phase: str
    container_id: str = ""
    running_for: float | None = None
    """Seconds since the container started; None when it does not run."""
    survivor: bool = False
    """It is running, and started more than RESTART_SLACK_S before the agent."""
    started: bool = False
    ready: bool = False
    """The status shows it as ready: before its first probe, because the API does."""
    may_run_again: bool = True
    """For a container that does not run: whether it will be restarted."""
    deleting: bool = False
    """Deletion of the pod was requested, or its termination has begun."""


class ProbeState(Struct, frozen=True):
    """The state of a probe between its runs."""

    container_id: str = ""
    result: ProbeOutcome | None = None
    """The settled result for that container."""
    last: ProbeOutcome | None = None
    streak: int = 0
    """Consecutive runs that found ``last``."""
    on_hold: bool = False
    """Nothing to do until there is a new container."""
    ended: bool = False
    """Nothing to do for good, unless there is a new container after all."""
    survivor: bool = False
    due: float | None = None
    """When to run next; None: not until its state changes."""
    counts_from: float = 0.0
    """When the first run is due that counts whatever its result."""
    pause: float = EARLY_PAUSE_S
    """The pause after the next early run."""

    @property
    def early(self) -> bool:
        """Whether the run that is due is an early one."""
        return self.due is not None and self.due < self.counts_from


def with_container_state(
    spec: ProbeSpec, state: ProbeState, seen: ProbedContainer | None, now: float, draw: float
) -> ProbeState:
    """Take in what is known about the container. ``draw`` is random, in [0, 1)."""
    if seen is None:
        return state
    if seen.phase in TERMINAL_PHASES:
        return end(state)
    if not seen.container_id:
        return replace(state, due=None)
    if seen.container_id != state.container_id:
        state = _adopt(spec, seen)
    if state.ended or state.on_hold:
        return state
    if seen.running_for is None:
        if not seen.may_run_again:
            return end(state)
        return replace(state, due=None, result=ProbeOutcome.FAILURE)
    if seen.deleting and spec.kind is not ProbeKind.READINESS:
        return end(state)
    if seen.started is (spec.kind is ProbeKind.STARTUP):
        if seen.started and state.result is None:  # seen only now, in a static pod's mirror
            state = replace(state, result=ProbeOutcome.SUCCESS)
        return replace(state, due=None)
    if state.due is not None:
        return state
    return _begin(spec, state, now + max(0.0, spec.initial_delay - seen.running_for), draw)


def finished(
    spec: ProbeSpec, state: ProbeState, found: ProbeOutcome | None, now: float
) -> ProbeState:
    """Take in the finding of the run that was due; None: it could not be run."""
    if state.due is None:
        return state
    early = state.early
    if found is None or (early and found is ProbeOutcome.FAILURE):
        return _again(spec, state, now, early)
    streak = state.streak + 1 if found is state.last else 1
    state = replace(_again(spec, state, now, early=False), last=found, streak=streak)
    succeeded = found is ProbeOutcome.SUCCESS
    if streak < (spec.success_threshold if succeeded else spec.failure_threshold):
        return state
    state = replace(state, result=found)
    if spec.kind is ProbeKind.STARTUP or (spec.kind is ProbeKind.LIVENESS and not succeeded):
        return replace(state, on_hold=True, streak=0, due=None)
    return state


def end(state: ProbeState) -> ProbeState:
    """Stop, and forget the result."""
    return replace(state, ended=True, result=None, due=None)


def _adopt(spec: ProbeSpec, seen: ProbedContainer) -> ProbeState:
    """A new container: everything known is about an old one.

    A container that predates this agent keeps the state that the API shows until a probe has
    settled. One that had started stays started: that is never revoked.
    """
    result: ProbeOutcome | None = None
    if spec.kind is ProbeKind.STARTUP and seen.started:
        result = ProbeOutcome.SUCCESS
    elif not (seen.survivor or (spec.kind is ProbeKind.READINESS and seen.ready)):
        result = _INITIAL[spec.kind]
    return ProbeState(seen.container_id, result, survivor=seen.survivor)


def _begin(spec: ProbeSpec, state: ProbeState, opens: float, draw: float) -> ProbeState:
    """Probing may begin at ``opens``: when are the first runs?

    After a restart of the agent all probes of the node begin at once, so they are spread over their
    whole period.
    """
    if state.survivor:
        due = opens + spec.period * draw
        return replace(state, due=due, counts_from=due)
    counts_from = opens + spec.period * (0.5 + draw / 2)
    due = counts_from if spec.kind is ProbeKind.LIVENESS else opens
    return replace(state, due=due, counts_from=counts_from, pause=EARLY_PAUSE_S)


def _again(spec: ProbeSpec, state: ProbeState, now: float, early: bool) -> ProbeState:
    """When to run next: on the period's grid, or immediately if a run has outlasted its period."""
    assert state.due is not None
    if early:
        due = min(now + state.pause, state.counts_from)
        return replace(state, due=due, pause=state.pause * 2)
    return replace(state, due=max(state.due + spec.period, now))


KEPT_MESSAGE = 200
"""Characters kept of a run's output."""


class ProbeFinding(NamedTuple):
    """The finding of one run; without an outcome if the probe could not be run."""

    outcome: ProbeOutcome | None
    message: str = ""


class ProbeReport(Struct, frozen=True):
    """The last findings of a probe, for people; output is truncated, not sanitized.

    Times are seconds of the event loop.
    """

    container: str
    kind: ProbeKind
    settled: ProbeOutcome | None
    """The settled result for the container; None: none yet."""
    last: ProbeFinding | None = None
    """The latest run, even if it did not count; None: none has ended."""
    at: float = 0.0
    """When it ended."""
    streak: int = 0
    """Consecutive runs with the same finding."""
    threshold: int = 1
    """Consecutive runs needed to settle it."""
    next_at: float | None = None
    killed_with: ProbeFinding | None = None
    """The run for which the previous container was killed; None: it was not."""


def container_state(
    pod: Pod,
    container: api.Container,
    status: api.PodStatus,
    *,
    now: float,
    agent_started_at: float,
) -> ProbedContainer:
    """Derive the state of a container for its probes from the API status of its pod.

    ``now`` and ``agent_started_at`` are Unix seconds.
    """
    phase = status.get("phase") or ""
    known = _find(status, container["name"])
    container_id = (known or {}).get("containerID", "").partition("://")[2]
    if known is None or not container_id:
        return ProbedContainer(phase)
    state = known.get("state") or {}
    running_for, survivor, ended = None, False, state.get("terminated")
    if "running" in state:
        started_at = state["running"].get("startedAt")
        since = parse_time(started_at) if started_at else now
        running_for = max(0.0, now - since)
        survivor = since < agent_started_at - RESTART_SLACK_S
    return ProbedContainer(
        phase=phase,
        container_id=container_id,
        running_for=running_for,
        survivor=survivor,
        started=bool(known.get("started")),
        ready=bool(known.get("ready")),
        may_run_again=ended is None
        or restart_after_exit(pod.restart_policy, container, ended.get("exitCode", 0))[0]
        or _restarts_all(pod, status),
        deleting=pod.being_deleted,
    )


def _find(status: api.PodStatus, name: str) -> api.ContainerStatus | None:
    for entries in (status.get("containerStatuses"), status.get("initContainerStatuses")):
        for entry in entries or ():
            if entry.get("name") == name:
                return entry
    return None


def _restarts_all(pod: Pod, status: api.PodStatus) -> bool:
    """Whether some container's exit causes all of them to restart."""
    for container in (*pod.init_containers, *pod.containers):
        state = (_find(status, container["name"]) or {}).get("state") or {}
        ended = state.get("terminated")
        if ended is not None and triggers_restart_all(container, ended.get("exitCode", 0)):
            return True
    return False
