"""Which steps take a node over, or give it back, from the state in which it is. Pure.

Each step may be repeated, and a process may be killed between any two: the next run plans from the
state that it finds. The drop-ins are that state; no other file decides anything.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from kubeletpy.agent.takeover.preflight.unit_command import UnitCommand, is_kubelet
from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import CONFIG_MIRROR
from kubeletpy.status.conditions import is_ready


class UnitProgram(StrEnum):
    """The program of the kubelet's unit."""

    AGENT = "this agent"
    KUBELET = "the kubelet"
    NOTHING = "nothing"


class AdoptionStep(StrEnum):
    """One change of the machine, or the watch."""

    ARM = "start a timer that gives the node back if nothing confirms"
    WRITE_TRIAL = "write the drop-in below /run"
    RELOAD = "reload systemd"
    RESTART = "restart the unit"
    WATCH = "watch the node"
    KEEP = "write the drop-in below /etc"
    REMOVE_TRIAL = "remove the drop-in below /run"
    REMOVE_KEPT = "remove the drop-in below /etc"
    DISARM = "stop the timer"


class AdoptionState(Struct, frozen=True):
    """A node as it is found.

    Attributes:
        trial: whether the drop-in below /run exists.
        kept: whether the drop-in below /etc exists.
        running: what the unit runs.
        shutting_down: whether the machine does. The agent then ends the pods: no program may be
            restarted, and the next boot starts the one that the drop-ins name.
    """

    trial: bool
    kept: bool
    running: UnitProgram
    shutting_down: bool = False


def plan_adopt(state: AdoptionState) -> tuple[AdoptionStep, ...]:
    """The steps that take a node over; a run that was killed is finished."""
    if state.kept and state.running is UnitProgram.AGENT:
        left = (AdoptionStep.REMOVE_TRIAL,) if state.trial else ()
        return (*left, AdoptionStep.RELOAD, AdoptionStep.DISARM)
    restart = () if state.running is UnitProgram.AGENT else (AdoptionStep.RESTART,)
    return (
        AdoptionStep.ARM,
        AdoptionStep.WRITE_TRIAL,
        AdoptionStep.RELOAD,
        *restart,
        AdoptionStep.WATCH,
        AdoptionStep.KEEP,
        AdoptionStep.REMOVE_TRIAL,
        AdoptionStep.RELOAD,
        AdoptionStep.DISARM,
    )


def plan_give_back(state: AdoptionState, *, unconfirmed: bool = False) -> tuple[AdoptionStep, ...]:
    """The steps that give a node back; none if the kubelet has it.

    ``unconfirmed``: only if no watch has confirmed the agent.
    """
    if unconfirmed and state.kept:
        return ()
    if not (state.trial or state.kept) and state.running is UnitProgram.KUBELET:
        return (AdoptionStep.DISARM,)
    removed = [
        step
        for step, there in (
            (AdoptionStep.REMOVE_KEPT, state.kept),
            (AdoptionStep.REMOVE_TRIAL, state.trial),
        )
        if there
    ]
    if state.shutting_down:
        return (*removed, AdoptionStep.DISARM)
    restart = () if state.running is UnitProgram.KUBELET else (AdoptionStep.RESTART,)
    return (*removed, AdoptionStep.RELOAD, *restart, AdoptionStep.DISARM)


# The drop-in by which the kubelet's unit starts this agent. During the watch it is below /run:
# after a power cut the unit starts the kubelet. Once the watch has succeeded it is below /etc.

NAME = "zz-kubeletpy.conf"
"""Sorts after other drop-ins, so that its ExecStart is the one in effect."""
TRIAL = "run/systemd/system"
KEPT = "etc/systemd/system"
_PREFIXES = {"ignore-failure": "-", "no-env-expand": ":"}
_ESCAPES = {"\\": "\\\\", '"': '\\"', "%": "%%", "\n": "\\n", "\t": "\\t"}
_PLAIN = re.compile(r"[^\s\"';]+")
_EXEC = re.compile(r"^ExecStart=.*\n?", re.MULTILINE)
_COMMENT = re.compile(r"^#.*\n", re.MULTILINE)


class DropInError(ValueError):
    """A unit for which no drop-in can be made; the message states why."""


def drop_in_path(unit: str, directory: str) -> str:
    """Where a unit's drop-in is, relative to the file system's root."""
    return posixpath.join(directory, f"{unit}.d", NAME)


def agent_command(command: UnitCommand, program: str) -> str:
    """The ExecStart of a unit with this agent as the program, and its variables as they are.

    Args:
        command: of the unit as it is: of the kubelet, or of an agent that was put in its place.
        program: the agent's path.

    Raises:
        DropInError: the unit starts another program.
    """
    arguments = command.arguments
    if not is_kubelet(command.program):
        if arguments[:1] != ("run",):
            raise DropInError(f"ExecStart starts {command.program}, not a kubelet")
        arguments = arguments[1:]
    if any(char.isspace() or char in "\"'\\$%;" for char in program):
        raise DropInError(f"the path {program!r} has characters that a unit would need to quote")
    prefixes = "".join(sign for flag, sign in _PREFIXES.items() if flag in command.flags)
    return " ".join((f"{prefixes}{program} run", *map(_quoted, arguments)))


def _quoted(word: str) -> str:
    """A word as a unit file has it."""
    escaped = "".join(_ESCAPES.get(char, char) for char in word)
    return escaped if _PLAIN.fullmatch(word) else f'"{escaped}"'


def drop_in_text(deployed: str, command: str) -> str:
    """The drop-in's content.

    Args:
        deployed: the drop-in of ``deploy/``, whose other settings it has.
        command: its ExecStart.
    """
    body = _EXEC.sub("", _COMMENT.sub("", deployed))
    if not body.startswith("[Service]\n"):
        raise DropInError("the drop-in that this version comes with has no section Service")
    rest = body.removeprefix("[Service]\n")
    note = "# Written by `kubeletpy adopt`. To go back: `kubeletpy give-back`.\n"
    return f"{note}[Service]\nExecStart=\nExecStart={command}\n{rest}"


# Whether a node that was taken over is well, from what the API and systemd show.


AT_BOOT = "the machine shuts down; its next boot starts the kubelet"


class WatchOutcome(StrEnum):
    """The consequence of an observation."""

    GO_ON = "watching"
    CONFIRM = "confirmed"
    GIVE_BACK = "given back"


class WatchVerdict(Struct, frozen=True):
    """The outcome with its reason."""

    outcome: WatchOutcome
    why: str = ""


class WatchLimits(Struct, frozen=True):
    """Seconds.

    Attributes:
        watch: how long the node must be well.
        ready: within which it must be Ready.
        silent: for which the API server may not answer.
        steady: for which a container must have run to count as one that does not restart.
    """

    watch: float
    ready: float = 90.0
    silent: float = 60.0
    steady: float = 600.0


class ContainerSeen(Struct, frozen=True):
    """A container that runs: its id, its restart count and when it started, in Unix seconds."""

    id: str
    restarts: int
    started: float


class PodSeen(Struct, frozen=True):
    """A pod as the API shows it.

    Attributes:
        key: namespace/name.
        deleting: whether its deletion was requested.
        containers: those that run, by name.
        static: whether it is the mirror of a static pod.
    """

    key: str
    ready: bool
    deleting: bool
    containers: Mapping[str, ContainerSeen]
    static: bool = False


class WatchObservation(Struct, frozen=True):
    """The observations at one moment. Times are in Unix seconds.

    Attributes:
        running: what the unit runs.
        exits: how often systemd has restarted it since the switch.
        node_ready: whether the Node is Ready.
        renewed: when the node's lease was last renewed.
        pods: by identity, the pods of the node.
        answered: when the API server last answered.
        refused: pods whose status the API does not accept, with the reason.
        shutting_down: whether the machine does, read after all others.
    """

    at: float
    running: UnitProgram
    exits: int = 0
    node_ready: bool = False
    renewed: float = 0.0
    pods: Mapping[str, PodSeen] = field(default_factory=dict)
    answered: float = 0.0
    refused: tuple[str, ...] = ()
    shutting_down: bool = False


def judge(
    before: Mapping[str, PodSeen], now: WatchObservation, switched: float, limits: WatchLimits
) -> WatchVerdict:
    """The consequence of an observation after the switch at ``switched`` (Unix seconds)."""
    elapsed = now.at - switched
    if now.shutting_down:  # its pods end, and may have ended before this was seen
        return WatchVerdict(WatchOutcome.GIVE_BACK, AT_BOOT)
    if now.running is not UnitProgram.AGENT:
        return WatchVerdict(WatchOutcome.GIVE_BACK, f"the unit runs {now.running}")
    if now.exits:
        return WatchVerdict(
            WatchOutcome.GIVE_BACK, "the agent has exited, and systemd has restarted it"
        )
    if harmed := next(_harmed(before, now.pods, switched - limits.steady), ""):
        return WatchVerdict(WatchOutcome.GIVE_BACK, harmed)
    if now.refused:
        return WatchVerdict(
            WatchOutcome.GIVE_BACK, f"the API does not accept the status of {now.refused[0]}"
        )
    if now.at - max(now.answered, switched) > limits.silent:
        why = f"the API server has not answered for {limits.silent:.0f} s: the node is not watched"
        return WatchVerdict(WatchOutcome.GIVE_BACK, why)
    ready = now.node_ready and now.renewed > switched
    if not ready and elapsed > limits.ready:
        what = "not Ready" if now.renewed > switched else "not Ready: its lease is not renewed"
        return WatchVerdict(
            WatchOutcome.GIVE_BACK, f"after {limits.ready:.0f} s the node is {what}"
        )
    if ready and elapsed >= limits.watch:
        return WatchVerdict(WatchOutcome.CONFIRM, f"the node was well for {elapsed:.0f} s")
    return WatchVerdict(WatchOutcome.GO_ON)


def _harmed(
    before: Mapping[str, PodSeen], now: Mapping[str, PodSeen], steady_since: float
) -> Iterator[str]:
    keys = {each.key for each in now.values()}
    for identity, old in before.items():
        new = now.get(identity)
        if new is None and old.static and old.key in keys:
            yield f"static pod {old.key} was made anew"
        if new is None or new.deleting or old.deleting:
            continue
        for name, was in old.containers.items():
            if was.restarts and was.started > steady_since:
                continue  # it restarted under the kubelet, too
            container = new.containers.get(name)
            if container is None:
                yield f"container {name} of pod {old.key} does not run any more"
            elif container.id != was.id:
                yield f"container {name} of pod {old.key} was restarted"
        if old.ready and not new.ready:
            yield f"pod {old.key} has lost its readiness"


def pods_seen(pods: Iterable[JSON]) -> dict[str, PodSeen]:
    """Pods of the API by identity: the uid, of a static pod that of its manifest."""
    return {_identity(each): _pod_seen(each) for each in pods}


def plain_pods(pods: Mapping[str, PodSeen]) -> JSON:
    """Pods as JSON, for the record."""
    return {
        identity: {
            "key": pod.key,
            "ready": pod.ready,
            "static": pod.static,
            "containers": {
                name: [each.id, each.restarts, each.started]
                for name, each in pod.containers.items()
            },
        }
        for identity, pod in pods.items()
    }


def read_pods(plain: JSON) -> dict[str, PodSeen]:
    """Pods from the record."""
    return {
        identity: PodSeen(
            pod["key"],
            pod["ready"],
            deleting=False,
            containers={name: ContainerSeen(*each) for name, each in pod["containers"].items()},
            static=pod["static"],
        )
        for identity, pod in plain.items()
    }


def renewed_at(lease: JSON) -> float:
    """When a lease was renewed, in Unix seconds; 0: unknown."""
    return _seconds((lease.get("spec") or {}).get("renewTime"))


def _identity(pod: JSON) -> str:
    metadata = pod["metadata"]
    return _manifest_uid(metadata) or str(metadata["uid"])


def _manifest_uid(metadata: JSON) -> str:
    """The uid of the static pod that a mirror shows; empty: it is no mirror."""
    return str((metadata.get("annotations") or {}).get(CONFIG_MIRROR) or "")


def _pod_seen(pod: JSON) -> PodSeen:
    metadata = pod["metadata"]
    status: Any = pod.get("status") or {}
    listed = (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    )
    running = {
        each["name"]: ContainerSeen(
            str(each.get("containerID") or ""),
            int(each.get("restartCount") or 0),
            _seconds(each["state"]["running"].get("startedAt")),
        )
        for each in listed
        if "running" in (each.get("state") or {})
    }
    key = f"{metadata.get('namespace')}/{metadata.get('name')}"
    return PodSeen(
        key,
        is_ready(status),
        bool(metadata.get("deletionTimestamp")),
        running,
        bool(_manifest_uid(metadata)),
    )


def _seconds(text: Any) -> float:
    try:
        return parse_time(str(text or ""))
    except ValueError:
        return 0.0
