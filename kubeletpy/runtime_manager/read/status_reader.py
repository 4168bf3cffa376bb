"""Converts the runtime's answers to statuses of pods, its own health, and texts of errors. Pure.

A runtime may send anything: records without an id or a name are left out, duplicate ids count once,
absurd times count as unknown, foreign records are not the pod's. Must never call the runtime or
read a file: termination messages are arguments.

Source: docs/reference/behaviour.md, e4, e5, c11, o4.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.base.text import scrub
from kubeletpy.pods import runtime_status
from kubeletpy.pods.pod import CONFIG_SOURCE, canonical_address
from kubeletpy.remote.errors import Code
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.names import (
    CONTAINER_NAME,
    HASH,
    POD_UID,
    RESTART_COUNT,
    pod_labels,
    read_labels,
    read_restart_count,
)

MAX_RESTART_COUNT = 2**31 - 1
LONGEST_REASON = 1024
"""Characters of the runtime's reason for an exit; the API limits the size of a pod."""
LONGEST_MESSAGE = 12288
"""Characters of the runtime's message about an exit: a status shows no more bytes of a pod."""
_STATES = {
    cri.CONTAINER_CREATED: runtime_status.ContainerState.CREATED,
    cri.CONTAINER_RUNNING: runtime_status.ContainerState.RUNNING,
    cri.CONTAINER_EXITED: runtime_status.ContainerState.EXITED,
}


class ReadContainer(Struct, frozen=True):
    """One ContainerStatus answer, with facts that the answer itself lacks."""

    status: cri.ContainerStatus
    sandbox_id: str = ""
    termination_message: str = ""
    """From the container's file or the end of its log."""
    start_abandoned: bool = False
    """It ended because the agent that was starting it exited: it counts as never started."""


class PodIdentity(Struct, frozen=True):
    """The pod whose status it is."""

    uid: str
    name: str
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)


def pod_status_from_cri(
    identity: PodIdentity,
    sandboxes: Iterable[cri.PodSandboxStatus | runtime_status.SandboxStatus],
    containers: Iterable[ReadContainer | runtime_status.ContainerStatus],
    observed_at: int,
) -> runtime_status.PodRuntimeStatus:
    """Build a pod's status. ``observed_at``: see PodRuntimeStatus. Converted records are kept."""
    by_sandbox: dict[str, runtime_status.SandboxStatus] = {}
    labels: Mapping[str, str] = identity.labels
    for answer in sandboxes:
        sandbox = (
            answer if isinstance(answer, runtime_status.SandboxStatus) else sandbox_from_cri(answer)
        )
        if sandbox.id:
            by_sandbox.setdefault(sandbox.id, sandbox)
        if not labels and not isinstance(answer, runtime_status.SandboxStatus):
            labels = pod_labels(answer.labels)
    by_container: dict[str, runtime_status.ContainerStatus] = {}
    for record in containers:
        if isinstance(record, runtime_status.ContainerStatus):
            status: runtime_status.ContainerStatus | None = record
        else:
            status = container_of_pod(record, identity.uid)
        if status is not None:
            by_container.setdefault(status.id, status)
    newest_first = sort_sandboxes(by_sandbox.values())
    return runtime_status.PodRuntimeStatus(
        uid=identity.uid,
        name=identity.name,
        namespace=identity.namespace,
        sandboxes=newest_first,
        containers=sort_containers(by_container.values()),
        ips=pod_ips(newest_first),
        observed_at=observed_at,
        labels=labels,
    )


def sandbox_from_cri(status: cri.PodSandboxStatus) -> runtime_status.SandboxStatus:
    """Convert one PodSandboxStatus; an id of "" marks an empty answer."""
    options = status.linux.namespaces.options
    return runtime_status.SandboxStatus(
        id=status.id,
        ready=status.state == cri.SANDBOX_READY,
        attempt=status.metadata.attempt,
        created_at=_time(status.created_at),
        host_network=options.network == cri.NODE,
        has_network=status.HasField("network"),
        ips=_ips(status.network),
        runtime_handler=status.runtime_handler,
        source=status.annotations.get(CONFIG_SOURCE, ""),
    )


def sandbox_from_list(item: cri.PodSandbox) -> runtime_status.SandboxStatus:
    """A listing's facts about a sandbox: enough for all but a pod's newest."""
    return runtime_status.SandboxStatus(
        id=item.id,
        ready=item.state == cri.SANDBOX_READY,
        attempt=item.metadata.attempt,
        created_at=_time(item.created_at),
        runtime_handler=item.runtime_handler,
        source=item.annotations.get(CONFIG_SOURCE, ""),
    )


def container_of_pod(record: ReadContainer, uid: str) -> runtime_status.ContainerStatus | None:
    """Convert one ContainerStatus of a pod; None for one that is another pod's, or that names
    neither itself nor its container."""
    status = record.status
    name = status.labels.get(CONTAINER_NAME, "") or status.metadata.name
    if status.labels.get(POD_UID, uid) != uid or not status.id or not name:
        return None
    state = _STATES.get(status.state, runtime_status.ContainerState.UNKNOWN)
    if record.start_abandoned:
        state = runtime_status.ContainerState.CREATED
    exited = state is runtime_status.ContainerState.EXITED
    restarts = read_restart_count(status.annotations)
    if not restarts and status.annotations.get(RESTART_COUNT) != "0":  # it is not recorded
        restarts = status.metadata.attempt
    return runtime_status.ContainerStatus(
        id=status.id,
        name=name,
        state=state,
        sandbox_id=record.sandbox_id,
        created_at=_time(status.created_at),
        started_at=0
        if state is runtime_status.ContainerState.CREATED
        else _time(status.started_at),
        finished_at=_time(status.finished_at) if exited else 0,
        exit_code=status.exit_code if exited else 0,
        reason=status.reason[:LONGEST_REASON] if exited else "",
        message=_joined(status.message, record.termination_message) if exited else "",
        image=status.image.image,
        image_id=status.image_id or status.image_ref,
        image_ref=status.image_ref,
        hash=status.annotations.get(HASH, ""),
        restart_count=min(restarts, MAX_RESTART_COUNT),
        attempt=min(status.metadata.attempt, MAX_RESTART_COUNT),
        log_path=status.log_path,
        user=_user(status),
        resources=_resources(status),
    )


def replace_sandbox_records(
    previous: runtime_status.PodRuntimeStatus,
    sandbox_id: str,
    fresh: runtime_status.PodRuntimeStatus,
) -> runtime_status.PodRuntimeStatus:
    """``fresh`` has everything of one sandbox; what ``previous`` has of the others stays."""
    sandboxes = sort_sandboxes(
        [*fresh.sandboxes, *(s for s in previous.sandboxes if s.id != sandbox_id)]
    )
    known = {container.id for container in fresh.containers}
    others = (c for c in previous.containers if c.id not in known and c.sandbox_id != sandbox_id)
    return replace(
        fresh,
        sandboxes=sandboxes,
        containers=sort_containers([*fresh.containers, *others]),
        ips=pod_ips(sandboxes),
    )


def summaries_from_lists(
    sandboxes: Iterable[cri.PodSandbox], containers: Iterable[cri.Container]
) -> list[runtime_status.RuntimePodSummary]:
    """Group two listings by pod. Records without a pod uid belong to none of our pods."""
    names: dict[str, tuple[str, str]] = {}
    by_sandbox: dict[str, dict[str, bool]] = {}
    by_container: dict[str, dict[str, runtime_status.ContainerState]] = {}
    for sandbox in sandboxes:
        owner = read_labels(sandbox.labels)
        if not owner.pod_uid or not sandbox.id:
            continue
        names[owner.pod_uid] = (owner.pod_name, owner.pod_namespace)
        ready = sandbox.state == cri.SANDBOX_READY
        by_sandbox.setdefault(owner.pod_uid, {})[sandbox.id] = ready
    for container in containers:
        owner = read_labels(container.labels)
        if not owner.pod_uid or not container.id:
            continue
        names.setdefault(owner.pod_uid, (owner.pod_name, owner.pod_namespace))
        state = _STATES.get(container.state, runtime_status.ContainerState.UNKNOWN)
        by_container.setdefault(owner.pod_uid, {})[container.id] = state
    return [
        runtime_status.RuntimePodSummary(
            uid, name, namespace, by_sandbox.get(uid, {}), by_container.get(uid, {})
        )
        for uid, (name, namespace) in names.items()
    ]


def sort_sandboxes(
    sandboxes: Iterable[runtime_status.SandboxStatus],
) -> tuple[runtime_status.SandboxStatus, ...]:
    """Sort sandboxes so that the newest comes first."""
    return tuple(sorted(sandboxes, key=lambda s: s.rank, reverse=True))


def sort_containers(
    containers: Iterable[runtime_status.ContainerStatus],
) -> tuple[runtime_status.ContainerStatus, ...]:
    """Sort so that the newest one of each name comes first."""
    return tuple(sorted(containers, key=lambda c: c.rank, reverse=True))


def pod_ips(newest_first: tuple[runtime_status.SandboxStatus, ...]) -> tuple[str, ...]:
    """Addresses of the newest ready sandbox."""
    return next((sandbox.ips for sandbox in newest_first if sandbox.ready), ())


def _time(nanoseconds: int) -> int:
    """Runtimes write times before 1970 for "never"."""
    return max(0, nanoseconds)


def _ips(network: cri.PodSandboxNetworkStatus) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for text in (network.ip, *(extra.ip for extra in network.additional_ips)):
        if address := canonical_address(text):
            found[address] = None
    return tuple(found)


def _user(status: cri.ContainerStatus) -> runtime_status.RuntimeUser | None:
    if not status.user.HasField("linux"):
        return None
    linux = status.user.linux
    return runtime_status.RuntimeUser(linux.uid, linux.gid, tuple(linux.supplemental_groups))


def _resources(status: cri.ContainerStatus) -> runtime_status.RuntimeResources | None:
    if not status.resources.HasField("linux"):
        return None
    linux = status.resources.linux
    return runtime_status.RuntimeResources(
        cpu_shares=linux.cpu_shares or None,
        cpu_quota=linux.cpu_quota or None,
        cpu_period=linux.cpu_period or None,
        memory_limit_bytes=linux.memory_limit_in_bytes or None,
    )


def _joined(runtime: str, own: str) -> str:
    runtime = runtime[:LONGEST_MESSAGE]
    return f"{runtime}: {own}" if runtime and own else runtime or own


# The runtime's status of itself, for node conditions and the sync loop

RUNTIME_READY = "RuntimeReady"
NETWORK_READY = "NetworkReady"


def health_from_conditions(
    conditions: Iterable[cri.RuntimeCondition],
) -> runtime_status.RuntimeHealth:
    """Return the runtime's health; a condition that it does not report is not met."""
    by_type = {condition.type: condition for condition in conditions}
    runtime, network = by_type.get(RUNTIME_READY), by_type.get(NETWORK_READY)
    return runtime_status.RuntimeHealth(
        runtime_ready=runtime is not None and runtime.status,
        network_ready=network is not None and network.status,
        message=_message(RUNTIME_READY, runtime),
        network_message=_message(NETWORK_READY, network),
    )


def _message(name: str, condition: cri.RuntimeCondition | None) -> str:
    if condition is None:
        return f"runtime does not report {name}"
    if condition.status:
        return ""
    # the API limits the size of a Node, and shows this in its Ready condition
    reason, message = scrub(condition.reason), scrub(condition.message)
    return f"{name}=false reason:{reason} message:{message}"


# Errors of the runtime, without the values of secrets

HIDDEN = "***"
MIN_SECRET = 4
"""Minimum length of a value to search for: shorter ones would be found everywhere."""
MAX_SECRET_CHARACTERS = 1 << 20
"""Maximum characters of all values to search for."""
MAX_SECRETS = 20_000
"""Maximum values to search for: each line of them costs a search of the text."""
UNSHOWN = "(not shown: the container has too much from secrets to take it out of the message)"


def hide_secrets(text: str, container: api.Container, variables: Mapping[str, str]) -> str:
    """Return an error's text without the values that the container's variables take from secrets.

    A command may be built from variables, and runtimes put commands into their errors, which
    events and statuses show to many.
    """
    values: set[str] = set()
    left = MAX_SECRET_CHARACTERS
    for variable in _from_secrets(container, variables):
        left -= len(variable)
        if left < 0:
            return UNSHOWN
        values.update(_lines(variable))
        if len(values) > MAX_SECRETS:
            return UNSHOWN
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def _lines(value: str) -> Iterator[str]:
    """A value and its lines: runtimes escape a text's line breaks."""
    yield from (text for text in (value, *value.splitlines()) if len(text) >= MIN_SECRET)


def _from_secrets(container: api.Container, variables: Mapping[str, str]) -> Iterator[str]:
    """Values that may come from secrets."""
    entries = container.get("env") or ()
    own = {entry.get("name") for entry in entries}
    names = {
        entry.get("name")
        for entry in entries
        if (entry.get("valueFrom") or {}).get("secretKeyRef") is not None
    }
    prefixes = tuple(
        group.get("prefix") or ""
        for group in container.get("envFrom") or ()
        if group.get("secretRef") is not None
    )
    for name, value in variables.items():
        if name in names or (name not in own and name.startswith(prefixes)):
            yield value


# Starts that were canceled with the agent that requested them, and starts that failed

START_ERROR = "StartError"
START_ERROR_CODE = 128
MESSAGE_TAIL = 512
"""Characters at the end of a message that are searched."""

_CANCELED = re.compile(r"(?:^|: )context canceled(?:: unknown)?$")
_SHIM_KILLED = re.compile(r"failed to start shim: start failed: .*: signal: killed(?:: unknown)?$")
"""containerd 1.6 kills the shim's start helper instead of naming the canceled call."""


def is_abandoned_start(status: cri.ContainerStatus) -> bool:
    """Whether the runtime's record is that of a start that ended with its client.

    containerd cancels StartContainer when its client disconnects. The container then is EXITED with
    reason StartError, exit code 128, no start time, and a message that ends with the canceled call.
    No process of it was left running, so this end has no meaning for the pod. CRI-O and cri-dockerd
    complete the call without its client. Source: docs/reference/behaviour.md, c11.

    A command that cannot be executed also ends with StartError and 128, but runc's message ends
    with the cause (``no such file or directory``), whatever the command contains.
    """
    return (
        status.state == cri.CONTAINER_EXITED
        and status.reason == START_ERROR
        and status.exit_code == START_ERROR_CODE
        and status.started_at <= 0
        and is_canceled_call(status.message)
    )


def is_canceled_call(message: str) -> bool:
    """Whether an error text of StartContainer ends with the cancellation of the call."""
    tail = message[-MESSAGE_TAIL:].rstrip()
    return bool(_CANCELED.search(tail) or _SHIM_KILLED.search(tail))


MOST_FAILED = 1000
"""Ids of containers that failed to start, of which the newest are remembered."""


class OwnStarts:
    """Remembers containers that this agent created and failed to start, or could not adopt.

    Their ends count, whatever the runtime's record contains: only a start that an earlier agent, or
    a lost connection, left behind is abandoned.
    """

    def __init__(self) -> None:
        self._failed: deque[str] = deque(maxlen=MOST_FAILED)
        self._refused: deque[str] = deque(maxlen=MOST_FAILED)

    def failed(self, container_id: str, code: Code) -> None:
        """A container that this agent created did not start."""
        self._refused.append(container_id)
        if code not in (Code.UNAVAILABLE, Code.CANCELLED):  # the call was lost, not answered
            self._failed.append(container_id)

    def refused(self, container_id: str) -> None:
        """A container that an earlier agent created did not start: it is created anew."""
        self._refused.append(container_id)

    def has_failed(self, container_id: str) -> bool:
        """Whether the container counts as an attempt although it never ran."""
        return container_id in self._failed

    def may_adopt(self, container_id: str) -> bool:
        """Whether nobody in this life has tried to start the container."""
        return container_id not in self._refused

    def is_abandoned(self, status: cri.ContainerStatus) -> bool:
        """Whether a container ended because the agent that was starting it exited."""
        return is_abandoned_start(status) and status.id not in self._failed
