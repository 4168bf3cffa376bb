"""The runtime's status of a pod, the rules that read it, and the results of acting on it. Pure.

The status is immutable data that :mod:`kubeletpy.runtime_manager` builds from CRI responses; times
are Unix nanoseconds, the CRI's unit, 0 when unknown. The runtime manager and the status share the
rules on sandboxes and restarts, so that they always agree. Decisions, errors and results follow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

from kubeletpy.base.api import types as api
from kubeletpy.base.host.errors import Cause, CausedError, CauseKind
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import Pod


class ContainerState(StrEnum):
    """The states of a container in the CRI."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


class RuntimeUser(Struct, frozen=True):
    """The Linux identity of a container's first process, where the runtime reports it."""

    uid: int
    gid: int
    supplemental_groups: tuple[int, ...] = ()


class RuntimeResources(Struct, frozen=True):
    """The limits that the runtime enforces (CRI LinuxContainerResources); None: not reported."""

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    cpu_period: int | None = None
    memory_limit_bytes: int | None = None


class ContainerStatus(Struct, frozen=True):
    """One container record of the runtime, running or dead."""

    id: str
    name: str
    state: ContainerState
    sandbox_id: str = ""
    created_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    """The runtime's message joined with the termination message (file or log tail)."""
    image: str = ""
    image_id: str = ""
    image_ref: str = ""
    hash: str = ""
    """Annotation io.kubernetes.container.hash; empty when the container has none."""
    restart_count: int = 0
    attempt: int = 0
    """Part of its name in the runtime: more than ``restart_count`` where a name was taken."""
    log_path: str = ""
    user: RuntimeUser | None = None
    resources: RuntimeResources | None = None

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.state is ContainerState.RUNNING

    @property
    def rank(self) -> tuple[int, int]:
        """Higher is newer, among records of one name. Dates lie once the clock was put back."""
        return self.restart_count, self.created_at


class SandboxStatus(Struct, frozen=True):
    """One pod sandbox record of the runtime."""

    id: str
    ready: bool
    attempt: int = 0
    created_at: int = 0
    host_network: bool = False
    has_network: bool = True
    """Whether the runtime reported a network block."""
    ips: tuple[str, ...] = ()
    runtime_handler: str = ""
    source: str = ""
    """Annotation kubernetes.io/config.source: where the pod came from."""

    @property
    def rank(self) -> tuple[int, int]:
        """Higher is newer, among those of one pod. Dates lie once the clock was put back."""
        return self.attempt, self.created_at


class PodRuntimeStatus(Struct, frozen=True, dict=True):
    """Everything that the runtime has of one pod.

    ``observed_at`` is a lower bound, in nanoseconds of the event loop's clock: just before the
    runtime was queried, or when its event was sent. The status observed later wins, even if the
    wall clock was set meanwhile.
    """

    uid: str
    name: str
    namespace: str
    sandboxes: tuple[SandboxStatus, ...] = ()
    """Newest first."""
    containers: tuple[ContainerStatus, ...] = ()
    """The newest of each name first."""
    ips: tuple[str, ...] = ()
    """Those of the newest ready sandbox; kept while a pod terminates."""
    observed_at: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    def newest(self, name: str) -> ContainerStatus | None:
        """The newest record with that container name."""
        return self._newest.get(name)

    @cached_property
    def _newest(self) -> Mapping[str, ContainerStatus]:
        """The newest record of each name; an index, because pods may have thousands of
        containers."""
        return {status.name: status for status in reversed(self.containers)}

    def by_id(self, container_id: str) -> ContainerStatus | None:
        """The record with that container id."""
        for status in self.containers:
            if status.id == container_id:
                return status
        return None

    @property
    def source(self) -> str:
        """Where the pod came from (file, http, api), from its sandboxes; "" when none has it."""
        return next((sandbox.source for sandbox in self.sandboxes if sandbox.source), "")

    @property
    def running_containers(self) -> tuple[ContainerStatus, ...]:
        """Containers whose process runs."""
        return tuple(c for c in self.containers if c.running)

    @property
    def has_ready_sandbox(self) -> bool:
        """Whether any sandbox is ready."""
        return any(sandbox.ready for sandbox in self.sandboxes)

    @property
    def empty(self) -> bool:
        """Whether the runtime has nothing left of this pod."""
        return not self.sandboxes and not self.containers


class RuntimePodSummary(Struct, frozen=True):
    """One pod in a relist: just enough to see what changed."""

    uid: str
    name: str
    namespace: str
    sandboxes: Mapping[str, bool]
    """Sandbox id -> ready."""
    containers: Mapping[str, ContainerState]
    """Container id -> state."""


class ProbeOutcome(StrEnum):
    """The last settled result of a probe."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


class ProbeResults(Struct, frozen=True):
    """Settled probe results by container id, as compute-actions reads them. Absent: no result."""

    liveness: Mapping[str, ProbeOutcome] = field(default_factory=dict)
    startup: Mapping[str, ProbeOutcome] = field(default_factory=dict)
    readiness: Mapping[str, ProbeOutcome] = field(default_factory=dict)


PLAUSIBLE_EVENT_AGE = 7 * 24 * 3600 * 10**9
PLAUSIBLE_EVENT_LEAD = 10**9
"""Nanoseconds that the time of a runtime's event may be behind or ahead of ours; beyond that its
time is not believed, and the runtime is queried. An event from further ahead was sent before the
wall clock was set back."""


def event_observed_at(created_at: int, wall: int, steady: int) -> int | None:
    """Convert the wall time of an event to the event loop's clock; all in nanoseconds.

    The wall clock may have been set between the event's creation and its arrival, so its age only
    counts where it is plausible. The result is never after ``steady``: a status read later would be
    refused as older.

    None: the time of the event is nonsense, or the wall clock was set back after it was sent. The
    runtime must then be queried.

    >>> event_observed_at(created_at=1_000, wall=1_200, steady=500)
    300
    """
    age = wall - created_at
    if not -PLAUSIBLE_EVENT_LEAD <= age < PLAUSIBLE_EVENT_AGE:
        return None
    return steady - max(age, 0)


# -- whether a new sandbox is needed (docs/reference/behaviour.md, c1) -----------------------


class SandboxDecision(Struct, frozen=True):
    """Whether a pod needs a new sandbox, and why."""

    create: bool
    """A new sandbox is needed."""
    attempt: int
    """That of the sandbox to create, or of the one in use."""
    sandbox_id: str
    """The sandbox in use, or the one that a new one replaces; empty when there is none."""
    reason: str
    message: str = ""
    """The message of condition PodReadyToStartContainers while a new sandbox is needed."""


NOT_READY = "PodSandboxNotReady"
"""Reason of condition PodReadyToStartContainers."""


def decide_sandbox(pod: Pod, status: PodRuntimeStatus) -> SandboxDecision:
    """Evaluate the newest sandbox. Older ones never count."""
    if not status.sandboxes:
        return SandboxDecision(True, 0, "", "the pod has no sandbox", "no pod sandbox exists")
    newest = status.sandboxes[0]
    following = newest.attempt + 1
    ready = sum(1 for sandbox in status.sandboxes if sandbox.ready)
    if ready > 1:
        return SandboxDecision(
            True,
            following,
            newest.id,
            f"{ready} sandboxes are ready where one should be",
            "multiple pod sandboxes are ready and need to be reconciled",
        )
    if not newest.ready:
        return SandboxDecision(
            True, following, newest.id, "the sandbox is not ready", "pod sandbox is not ready"
        )
    if newest.host_network != pod.host_network:
        return SandboxDecision(
            True,
            following,
            "",
            "the sandbox's network namespace is not the one the pod requests",
            "network namespace mode changed and sandbox needs to be recreated",
        )
    if not pod.host_network and newest.has_network and not newest.ips:
        return SandboxDecision(
            True,
            following,
            newest.id,
            "the sandbox has no IP address",
            "pod sandbox has no IP address",
        )
    return SandboxDecision(False, newest.attempt, newest.id, "the sandbox is ready")


# -- whether a container may run again -------------------------------------------------------
#
# Source: docs/reference/behaviour.md, c6, c7; KEP-5307 (container restart rules), KEP-5532
# (RestartAllContainers), KEP-753 (sidecars).

ACTION_RESTART = "Restart"
ACTION_RESTART_ALL = "RestartAllContainers"


def matching_rule(container: api.Container, exit_code: int) -> api.ContainerRestartRule | None:
    """The first of the container's restartPolicyRules that matches an exit code."""
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes")
        if not codes:
            continue
        listed = exit_code in (codes.get("values") or ())
        operator = codes.get("operator")
        if (operator == "In" and listed) or (operator == "NotIn" and not listed):
            return rule
    return None


def restart_after_exit(
    pod_policy: str, container: api.Container, exit_code: int
) -> tuple[bool, str]:
    """Whether an exit with this code is followed by a restart, regardless of the pod's fate.

    A container's own restartPolicy wins over the pod's; only then are its rules evaluated.
    """
    policy = container.get("restartPolicy")
    if policy:
        rule = matching_rule(container, exit_code)
        if rule is not None and rule.get("action") in (ACTION_RESTART, ACTION_RESTART_ALL):
            return True, f"it exited with {exit_code} and its rule is {rule.get('action')}"
        owner = "its restartPolicy"
    if policy not in ("Always", "OnFailure", "Never"):
        policy, owner = pod_policy, "the pod's restartPolicy"
    if policy == "Never":
        return False, f"it exited with {exit_code} and {owner} is Never"
    if policy == "OnFailure" and exit_code == 0:
        return False, f"it exited with 0 and {owner} is OnFailure"
    return True, f"it exited with {exit_code} and {owner} is {policy}"


def restart_allowed(pod: Pod, container: api.Container) -> bool:
    """Whether a container without an exit code (killed by a probe, state unknown) may restart.

    Only the policy counts: exit-code rules have nothing to match.
    """
    return (container.get("restartPolicy") or pod.restart_policy) != "Never"


def should_container_be_restarted(
    pod: Pod, container: api.Container, status: PodRuntimeStatus
) -> tuple[bool, str]:
    """Whether a container that is not running should be (re)started, and why or why not."""
    if pod.being_deleted:
        return False, "the pod is being deleted"
    record = status.newest(container["name"])
    if record is None:
        return True, "it has no container yet"
    if record.state is ContainerState.EXITED:
        return restart_after_exit(pod.restart_policy, container, record.exit_code)
    if record.state is ContainerState.RUNNING:
        return False, "it is running"
    return True, f"its container is in state {record.state}"


def init_container_failed(record: ContainerStatus) -> bool:
    """Whether the newest record of a regular init container counts as a failure."""
    return (
        record.reason == "OOMKilled"
        or record.state is ContainerState.UNKNOWN
        or (record.state is ContainerState.EXITED and record.exit_code != 0)
    )


def triggers_restart_all(container: api.Container, exit_code: int) -> bool:
    """Whether this exit triggers a restart of all containers of the pod."""
    rule = matching_rule(container, exit_code)
    return rule is not None and rule.get("action") == ACTION_RESTART_ALL


def could_restart_all(pod: Pod) -> bool:
    """Whether any container has a RestartAllContainers rule (only such pods show the condition)."""
    return any(map(causes_restart_all, (*pod.init_containers, *pod.containers)))


def causes_restart_all(container: api.Container) -> bool:
    """Whether the container has a RestartAllContainers rule."""
    rules = container.get("restartPolicyRules") or ()
    return any(rule.get("action") == ACTION_RESTART_ALL for rule in rules)


def restart_all_active(pod: Pod, status: PodRuntimeStatus) -> bool:
    """Whether all containers of the pod must be removed and started from scratch.

    Derived from the runtime alone: the record whose exit triggered the restart is removed last, so
    it is visible until nothing is left, even to an agent that restarted meanwhile. The pod's
    AllContainersRestarting condition follows from this; reading it back could restart everything
    again while the API still shows an older state.
    """
    return any(
        record is not None
        and record.state is ContainerState.EXITED
        and triggers_restart_all(container, record.exit_code)
        for container in (*pod.init_containers, *pod.containers)
        for record in (status.newest(container["name"]),)
    )


# -- the reason of a container that never ran ------------------------------------------------

HIDDEN = "***"
MOST_QUOTED = 64
"""A reason with more quotes is hidden entirely: each quote is searched for everywhere."""
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)(?:"|\\?\Z)', re.DOTALL)
"""The end of the text also ends a quote: it may be cut there, and nothing is read twice."""


def reported_reason(message: str, container: api.Container) -> str:
    """The runtime's text, without its quoted parts if the container has variables from secrets.

    Runtimes quote the command, which may contain such variables. A restarted agent does not have
    their values, so every quotation is hidden.
    """
    if not _has_secrets(container):
        return message
    quoted = set(_QUOTED.findall(message)) - {""}
    if len(quoted) > MOST_QUOTED:
        return HIDDEN
    for each in sorted(quoted, key=len, reverse=True):
        message = message.replace(each, HIDDEN)
    return message


def _has_secrets(container: api.Container) -> bool:
    return any(
        (entry.get("valueFrom") or {}).get("secretKeyRef") is not None
        for entry in container.get("env") or ()
    ) or any(group.get("secretRef") is not None for group in container.get("envFrom") or ())


# -- decisions about a pod -------------------------------------------------------------------


class KillReason(StrEnum):
    """Why a container is killed; the probe reasons select the probe's own grace period."""

    DEFINITION_CHANGED = "DefinitionChanged"
    LIVENESS_PROBE = "LivenessProbe"
    STARTUP_PROBE = "StartupProbe"
    UNKNOWN_STATE = "Unknown"
    RESIZE = "Resize"
    SANDBOX_CHANGED = "SandboxChanged"
    POD_ENDED = "PodEnded"
    """Nothing of the pod may run any more."""
    POST_START_HOOK = "PostStartHook"
    RESTART_ALL = "RestartAllContainers"


class StopNote(Struct, frozen=True):
    """A stop of a container that this agent begins, or goes on with."""

    container_id: str
    reason: KillReason | None
    """None: its pod is terminated, or its cgroup has vanished."""
    grace: int
    """Seconds that it has to end by itself."""
    hook_late: bool = False
    """Its preStop hook has not ended within the grace period."""


class Decision(Struct, frozen=True):
    """One thing the agent decided about a pod, for `explain`: what and why.

    The text is for people; code reads the other fields.

    Attributes:
        failed: it is a failure rather than a decision: explain lists failures separately.
        killed: the name of the container that is killed, and ``kill_reason`` for what.
        ends_pod: the pod is terminated.
        restarts: a container that has ended is started again.
        starts: the name of the container that is started.
        cause: why a pod is refused, as data, where advice depends on it.
    """

    what: str
    why: str
    failed: bool = False
    killed: str = ""
    kill_reason: KillReason | None = None
    ends_pod: bool = False
    restarts: bool = False
    starts: str = ""
    cause: Cause | None = None


# -- errors in building the config of a sandbox or container ---------------------------------
#
# The messages reach users as waiting reasons and events: they name the container and the field,
# and never hold a value of a secret.


class ConfigError(CausedError, ValueError):
    """Something of the pod cannot be configured as the spec requires."""


class SandboxConfigError(ConfigError):
    """The pod's sandbox cannot be configured as the spec requires."""


class RuntimeClassError(SandboxConfigError):
    """The pod's RuntimeClass does not exist, or could not be read."""

    cause = Cause(CauseKind.RUNTIME_CLASS)


class ContainerConfigError(ConfigError):
    """The container cannot be configured as the spec requires (CreateContainerConfigError)."""


class SubPathError(ContainerConfigError):
    """A volumeMount's subPath is not usable."""

    cause = Cause(CauseKind.SUB_PATH)


class RunAsNonRootError(ContainerConfigError):
    """The container may not run as root, and would, or it is unclear."""

    cause = Cause(CauseKind.RUN_AS_NON_ROOT)


class NodeAddressError(ContainerConfigError):
    """The container reads an address of the node, which has none yet."""

    cause = Cause(CauseKind.NODE_ADDRESS)


# -- results of a runtime sync or a kill -----------------------------------------------------


class SyncAction(StrEnum):
    """The steps of a runtime sync, by the kubelet's names."""

    START_CONTAINER = "StartContainer"
    KILL_CONTAINER = "KillContainer"
    REMOVE_CONTAINER = "RemoveContainer"
    CREATE_POD_SANDBOX = "CreatePodSandbox"
    KILL_POD_SANDBOX = "KillPodSandbox"
    INIT_CONTAINER = "InitContainer"
    RESIZE_POD_IN_PLACE = "ResizePodInPlace"


SYNC_POD = "SyncPod"
"""The kubelet's name of the whole sync."""


class StartError(Struct, frozen=True):
    """Why a container was not started; ``code`` is the waiting reason that kubectl shows."""

    code: str
    """CrashLoopBackOff, ErrImagePull, ImagePullBackOff, CreateContainerConfigError, …"""
    message: str
    retry_at: float | None = None
    """Unix seconds at which its backoff ends, if it has one."""
    previous: StartError | None = None
    """How the previous attempt failed, where a backoff reports it."""
    cause: Cause | None = None
    """Why, as data, where advice depends on it."""
    mounted_image: str = ""
    """The image that could not be had, where it is one that the container mounts as a volume."""


class SyncResult(Struct, frozen=True):
    """The outcome of one step on one target."""

    action: SyncAction
    target: str
    """Container name, or the pod for sandbox steps."""
    error: StartError | None = None
    """None: it succeeded."""
    reason: str = ""
    """Why the step was taken, for people."""


class ResizeOutcome(Struct, frozen=True):
    """The result of reconciling the resources in effect with those the pod should have."""

    in_progress: bool
    """Some part of the pod still runs with resources other than it should have."""
    error: str = ""
    """Why; empty when nothing went wrong."""
    done: tuple[str, ...] = ()
    """Containers whose limits were changed in place."""


class PodSyncResult(Struct, frozen=True):
    """Everything that one runtime sync (or kill) did."""

    results: tuple[SyncResult, ...] = ()
    decisions: tuple[Decision, ...] = ()
    sync_error: StartError | None = None
    """A failure of no single step (the runtime is absent, the configuration is impossible)."""
    retry_at: float | None = None
    """Unix seconds at which the earliest backoff of this sync ends."""
    status: PodRuntimeStatus | None = None
    """The pod as the runtime has it after the last step; None when nothing was done and the sync's
    input is still accurate."""
    start_errors: Mapping[str, StartError] = field(default_factory=dict)
    """Container name -> why its start failed or was held back in this sync."""
    ended: bool = False
    """The pod was stopped for good: nothing of it may run any more, nor what has never run."""
    resize: ResizeOutcome | None = None
    """None: everything that runs already had the resources it should have."""

    @property
    def acted(self) -> bool:
        """Whether there is a new status: something was changed, by this call or an earlier one."""
        return self.status is not None

    @property
    def failed(self) -> bool:
        """Whether anything failed, backoff included."""
        return self.sync_error is not None or any(r.error is not None for r in self.results)

    @property
    def failed_actions(self) -> list[str]:
        """The actions that failed, but for those that wait; SyncPod: no single one failed."""
        failed = [
            str(step.action)
            for step in self.results
            if step.error is not None and not step.error.code.endswith("BackOff")
        ]
        return failed if self.sync_error is None else [SYNC_POD, *failed]

    def cause(self) -> Cause | None:
        """The cause of the first failure that has one, a fault of the machine before others."""
        errors = [self.sync_error, *(step.error for step in self.results)]
        found = [each.cause for each in errors if each is not None and each.cause is not None]
        return min(found, key=lambda cause: cause.fault is None, default=None)

    def error_message(self) -> str:
        """All failures on one line; empty when there were none."""
        parts = [] if self.sync_error is None else [self.sync_error.message]
        parts += [
            f"failed to {r.action} for {r.target} with {r.error.code}: {r.error.message}"
            for r in self.results
            if r.error is not None
        ]
        return "; ".join(parts)


class SyncIntent(Struct, frozen=True):
    """The planned actions of a runtime sync, by names of containers."""

    decisions: tuple[Decision, ...]
    ends: bool = False
    """The pod would be stopped, without a new sandbox."""
    new_sandbox: bool = False
    stopped: tuple[str, ...] = ()
    started: tuple[str, ...] = ()
    resized: tuple[str, ...] = ()
    """In place."""


class RuntimeHealth(Struct, frozen=True):
    """The runtime's status of itself (CRI Status), or why it could not be queried."""

    runtime_ready: bool
    network_ready: bool
    message: str = ""
    """Why it is not ready; empty when it is."""
    network_message: str = ""
