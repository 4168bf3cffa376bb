"""The explanation of a pod by ``kubeletpy explain``: plain immutable data, as sent over the socket.

Pure. Times are Unix seconds, None for unknown. Must never hold secrets: no environment, no volume
content, no credentials; only names, states, reasons and messages.
"""

from __future__ import annotations

from enum import StrEnum

from kubeletpy.base.structs import Struct
from kubeletpy.metrics.trace.model import Name
from kubeletpy.pods.granted import HeldResource


class WaitKind(StrEnum):
    """The kinds of waits of a pod. Code compares the members; people read the values."""

    RUNTIME = "runtime"
    STATIC_NAME = "static name"
    ADMISSION = "admission"
    WATCH = "watch"
    IMAGE_PULL = "image pull"
    SANDBOX = "sandbox"
    GRACE_PERIOD = "grace period"
    HOOK = "hook"
    START_PLACE = "start place"
    STOP_PLACE = "stop place"
    STOP_ORDER = "stop order"
    RELEASE = "release"
    RUNTIME_CALL = "runtime call"
    NETWORK = "network"
    VOLUME = "volume"
    CLAIM = "resource claim"
    CGROUP = "cgroup"
    DIRECTORY = "directory"
    STOP = "stop"
    RETRY = "retry"
    CRASH_BACKOFF = "crash backoff"
    IMAGE_BACKOFF = "image backoff"
    IMAGE = "image"
    START_ERROR = "start error"
    INIT_CONTAINER = "init container"
    PROBE = "probe"
    READINESS_GATE = "readiness gate"
    RESIZE = "resize"
    API_WRITE = "API write"
    FINALIZER = "finalizer"


class Role(StrEnum):
    """The kind of a container in its pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    CONTAINER = "container"
    EPHEMERAL = "ephemeral"


class ContainerStateKey(StrEnum):
    """The state of a container: the key of its entry in the pod's status."""

    WAITING = "waiting"
    RUNNING = "running"
    TERMINATED = "terminated"


class WorkerState(StrEnum):
    """The phase a pod's worker is in."""

    NONE = "none"
    WAITING = "waiting"
    SYNCING = "syncing"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FINISHED = "finished"


class Wait(Struct, frozen=True):
    """Something that must happen, or a time that must come, before the pod can continue."""

    kind: WaitKind
    subject: str
    """The container, volume or object; may be empty."""
    why: str
    """For people; see :mod:`kubeletpy.observe.explain.phrases`."""
    since: float | None = None
    until: float | None = None
    call: Name | str | None = None
    """The step or call being waited for: one of ours, or ``NodeStageVolume of driver x``."""


class Action(Struct, frozen=True):
    """A step or call that is under way for the pod."""

    what: Name
    subject: str
    since: float
    until: float | None = None


class Decided(Struct, frozen=True):
    """A decision and its reason; made ``count`` times between ``at`` and ``last_at``."""

    at: float
    what: str
    why: str
    count: int = 1
    last_at: float | None = None


class Exit(Struct, frozen=True):
    """How a run of a container ended."""

    container: str
    attempt: int | None
    exit_code: int
    reason: str
    message: str
    started_at: float | None
    finished_at: float | None


class ContainerView(Struct, frozen=True):
    """One container of the pod."""

    name: str
    kind: Role
    image: str
    state: ContainerStateKey
    reason: str
    message: str
    since: float | None
    ready: bool
    restarts: int
    id: str
    exit_code: int | None = None
    """For a terminated container."""


class ProbeView(Struct, frozen=True):
    """The latest findings of a probe."""

    container: str
    kind: str
    """startup, readiness or liveness."""
    settled: str
    """The result in effect for the container: success, failure, unknown, or empty for none yet."""
    last: str
    """The result of the latest run: success, failure, error (it could not be run), or empty."""
    words: str
    """Its output; truncated, on one line."""
    at: float | None
    streak: int
    threshold: int
    """Consecutive runs needed to settle the latest result."""
    next_at: float | None


class WorkerView(Struct, frozen=True):
    """The pod's worker."""

    state: WorkerState
    since: float | None
    stage: str
    """The stage whose sync is running; empty between two syncs."""
    grace: int | None
    """Seconds that a terminating pod has."""
    next_sync_at: float | None
    last_sync_at: float | None
    last_error: str


class PodExplanation(Struct, frozen=True):
    """Everything about one pod."""

    at: float
    namespace: str
    name: str
    uid: str
    static: bool
    verdict: str
    """One sentence: why it does not run, or how it runs."""
    healthy: bool
    """Whether everything is as it should be."""
    cause: str
    """A fixed word: a member of :class:`kubeletpy.observe.explain.codes.CauseCode`, or a kind of wait."""
    first_seen: float | None
    """When that began: the first time, not the latest try; None while all is well."""
    hint: str
    """How to fix it, on one line; may be empty."""
    final: bool
    """This pod is never tried again, whatever is done about the cause."""
    phase: str
    ready: bool
    pod_ips: tuple[str, ...]
    worker: WorkerView
    waits: tuple[Wait, ...]
    actions: tuple[Action, ...]
    containers: tuple[ContainerView, ...]
    held: tuple[HeldResource, ...]
    """CPUs, memory and devices that its containers have."""
    probes: tuple[ProbeView, ...]
    decisions: tuple[Decided, ...]
    """Oldest first."""
    errors: tuple[Decided, ...]
    exits: tuple[Exit, ...]
    """Newest first."""


class PodLine(Struct, frozen=True):
    """One pod in a list."""

    namespace: str
    name: str
    uid: str
    state: WorkerState
    healthy: bool
    verdict: str
    cause: str
    first_seen: float | None
