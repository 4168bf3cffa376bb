"""What ``kubeletpy explain`` knows of a pod: plain immutable data, as it goes over the socket.

Pure. Times are Unix seconds, None for unknown. Must never hold what is secret: no environment, no
volume content, no credentials; only names, states, reasons and messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeletpy.trace.names import Name


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that has to happen, or a time that has to come, before the pod goes on."""

    kind: str
    """crash backoff, image backoff, image, start error, volume, network, runtime, static name,
    grace period, hook, runtime call, retry, probe, init container, finalizer, resize, API write,
    ..."""
    subject: str
    """The container, volume or object; may be empty."""
    why: str
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """What is being done for the pod right now."""

    what: Name
    subject: str
    since: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision and why it was made; ``count`` times between ``at`` and ``last_at``."""

    at: float
    what: str
    why: str
    count: int = 1
    last_at: float | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """How a run of a container ended."""

    container: str
    attempt: int | None
    exit_code: int
    reason: str
    message: str
    started_at: float | None
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container of the pod."""

    name: str
    kind: str
    """init, sidecar, container or ephemeral."""
    image: str
    state: str
    """waiting, running or terminated."""
    reason: str
    message: str
    since: float | None
    ready: bool
    restarts: int
    id: str


@dataclass(frozen=True, slots=True)
class ProbeView:
    """What a probe has last found."""

    container: str
    kind: str
    """startup, readiness or liveness."""
    settled: str
    """What counts for the container: success, failure, unknown, or empty for nothing yet."""
    last: str
    """What the newest run found: success, failure, error (it could not be run), or empty."""
    words: str
    """What it said; cut, on one line."""
    at: float | None
    streak: int
    threshold: int
    """Runs in a row that settle what the last one found."""
    next_at: float | None


@dataclass(frozen=True, slots=True)
class WorkerView:
    """The pod's worker."""

    state: str
    """syncing, terminating, terminated, finished or none."""
    since: float | None
    step: str
    """The step that is running; empty between two steps."""
    grace: int | None
    """Seconds that an ending pod has."""
    next_step_at: float | None
    last_step_at: float | None
    last_error: str


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """All about one pod."""

    at: float
    namespace: str
    name: str
    uid: str
    static: bool
    verdict: str
    """One sentence: why it does not run, or how it runs."""
    healthy: bool
    """Whether all is as it should be."""
    phase: str
    ready: bool
    pod_ips: tuple[str, ...]
    worker: WorkerView
    waits: tuple[Wait, ...]
    actions: tuple[Action, ...]
    containers: tuple[ContainerView, ...]
    probes: tuple[ProbeView, ...]
    decisions: tuple[Decided, ...]
    """Oldest first."""
    errors: tuple[Decided, ...]
    exits: tuple[Exit, ...]
    """Newest first."""


@dataclass(frozen=True, slots=True)
class PodLine:
    """One pod in a list."""

    namespace: str
    name: str
    uid: str
    state: str
    healthy: bool
    verdict: str
