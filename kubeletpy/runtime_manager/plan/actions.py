"""The plan of one runtime sync: what to kill, create and start, and why. Pure.

Immutable data, made by :mod:`kubeletpy.runtime_manager.plan.compute_actions` and carried out by the
executor, which takes the target and the attempt of a start from the functions here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import ContainerKind
from kubeletpy.pods.runtime_status import (
    ContainerConfigError,
    Decision,
    KillReason,
    PodRuntimeStatus,
    StartError,
)
from kubeletpy.runtime_manager.plan.resize import NOTHING, ResizePlan


class StartContainer(Struct, frozen=True):
    """A container to start, and the reason for it."""

    kind: ContainerKind
    container: api.Container
    reason: str
    again: bool = False
    """It has run before, and ended by itself."""

    @property
    def name(self) -> str:
        """Name of the container in its pod."""
        return self.container["name"]


class KillContainer(Struct, frozen=True):
    """A container to stop."""

    id: str
    name: str
    kind: ContainerKind
    container: api.Container
    message: str
    """Text of the Killing event."""
    reason: KillReason


class ResetContainer(Struct, frozen=True):
    """A container record to remove for restart-all; its log files stay."""

    id: str
    name: str
    kind: ContainerKind
    container: api.Container
    kill: bool
    """It has not exited: stop it first, with grace override 0."""
    source: bool
    """Its exit requested the restart of all; sources are removed last."""


class PodActions(Struct, frozen=True):
    """All that one sync is to do; the fields are in order of execution."""

    kill_pod: bool
    """Stop every container and every sandbox of the pod first."""
    create_sandbox: bool
    """After that, create a sandbox (and first purge the init containers' records)."""
    sandbox_id: str
    """The sandbox to start containers in; with create_sandbox the one being replaced, or ""."""
    attempt: int
    """Attempt number of the sandbox to create, or of the one in use."""
    containers_to_kill: tuple[KillContainer, ...] = ()
    containers_to_reset: tuple[ResetContainer, ...] = ()
    """In the order of their removal."""
    resize: ResizePlan = NOTHING
    """Changes made in place once the sandbox exists, before anything starts in it."""
    ephemeral_to_start: tuple[StartContainer, ...] = ()
    init_to_start: tuple[StartContainer, ...] = ()
    """In the order of the spec."""
    regular_to_start: tuple[StartContainer, ...] = ()
    kill_pod_reason: str = ""
    """Why the pod is killed, when it is, or gets a sandbox."""
    decisions: tuple[Decision, ...] = ()
    """Every action and every container held back, each with the reason."""

    def decided(self, errors: Mapping[str, StartError]) -> tuple[Decision, ...]:
        """Return the decisions as they turned out: a start in backoff becomes a wait."""
        held = {
            start_decision(start): errors[start.name]
            for start in self.starts
            if start.name in errors and errors[start.name].code.endswith("BackOff")
        }
        return tuple(
            Decision(f"hold {one.what.removeprefix('start ')} back", held[one].message)
            if one in held
            else one
            for one in self.decisions
        )

    @property
    def replaces_sandbox(self) -> bool:
        """Whether a known sandbox gives way to a new one (event SandboxChanged)."""
        return self.create_sandbox and self.sandbox_id != ""

    @property
    def nothing_to_do(self) -> bool:
        """Whether the runtime already matches what the pod requests."""
        return not (
            self.kill_pod
            or self.create_sandbox
            or self.containers_to_kill
            or self.containers_to_reset
            or self.ephemeral_to_start
            or self.init_to_start
            or self.regular_to_start
            or not self.resize.empty
        )

    @property
    def starts(self) -> tuple[StartContainer, ...]:
        """All containers to start, in starting order."""
        return self.ephemeral_to_start + self.init_to_start + self.regular_to_start


_KIND_NAMES = {
    ContainerKind.REGULAR: "container",
    ContainerKind.INIT: "init container",
    ContainerKind.EPHEMERAL: "ephemeral container",
}


def start_decision(start: StartContainer) -> Decision:
    """Return the decision to start a container, as people read it."""
    what = f"start {_KIND_NAMES[start.kind]} {start.name}"
    return Decision(what, start.reason, restarts=start.again, starts=start.name)


def kill_decision(kill: KillContainer) -> Decision:
    """Return the decision to kill a container, as people read it."""
    return Decision(
        f"kill {_KIND_NAMES[kill.kind]} {kill.name} ({kill.id})",
        kill.message,
        killed=kill.name,
        kill_reason=kill.reason,
    )


def target_id(status: PodRuntimeStatus, container: api.Container) -> str:
    """Return the id of the container whose processes an ephemeral container sees, "" for none.

    Raises:
        ContainerConfigError: it is not running.
    """
    name = container.get("targetContainerName")
    if not isinstance(name, str) or not name:
        return ""
    target = status.newest(name)
    if target is None or not target.running:
        raise ContainerConfigError(f'unable to find target container "{name}"')
    return target.id


# The attempt of a start when the runtime has no record of the container

NO_RUN = -1
"""Stands for the last run of a container that has had none."""


def attempt_by_logs(logs: Mapping[str, int], last_run: int | None) -> int:
    """Return the attempt after those that left logs: the highest ``{n}.log*`` plus one, or 0.

    An older log must not be overwritten, but an empty newest log may be. A runtime may open it
    before it makes the container, and leave it behind when the creation fails or is interrupted by
    the agent's death. Then that attempt is made again, unless the pod's status shows that it, or a
    later one, ran. Source: docs/reference/behaviour.md, c9.

    Args:
        logs: names of the files in the container's log directory, with their sizes in bytes.
        last_run: as :func:`last_run_reported` returns it.
    """
    sizes: dict[int, list[tuple[str, int]]] = {}
    for name, size in logs.items():
        number, _, rest = name.partition(".")
        counts = number.isascii() and number.isdigit() and len(number) <= 9
        if counts and (rest == "log" or rest.startswith("log.")):
            sizes.setdefault(int(number), []).append((name, size))
    if not sizes:
        return 0
    newest = max(sizes)
    was_cut_off = last_run is not None and newest > last_run and _is_empty_log(sizes[newest])
    return newest if was_cut_off else newest + 1


def _is_empty_log(files: list[tuple[str, int]]) -> bool:
    """Whether nothing was ever written: what has been rotated (``0.log.*``) had text."""
    return all(name.endswith(".log") and size == 0 for name, size in files)


def last_run_reported(status: api.PodStatus | None, container: str) -> int | None:
    """Return the restart count of a container's last run that a pod's status contains.

    NO_RUN if it contains none, None if there is no status.
    """
    if status is None:
        return None
    for entry in _statuses(status):
        if entry.get("name") == container:
            return (entry.get("restartCount") or 0) if _has_run(entry) else NO_RUN
    return NO_RUN


def _statuses(status: api.PodStatus) -> Iterable[api.ContainerStatus]:
    yield from status.get("containerStatuses") or ()
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("ephemeralContainerStatuses") or ()


def _has_run(status: api.ContainerStatus) -> bool:
    states = [status.get("state") or {}, status.get("lastState") or {}]
    ran = any(state.get("running") or state.get("terminated") for state in states)
    return ran or bool(status.get("containerID")) or bool(status.get("restartCount"))
