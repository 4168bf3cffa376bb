"""Which steps take a node over, or give it back, from the state in which it is. Pure.

Each step may be repeated, and a process may be killed between any two: the next run plans from the
state that it finds. The drop-ins are that state; no other file decides anything.
"""

from __future__ import annotations

import posixpath
import re
from enum import StrEnum

from kubeletpy.agent.takeover.preflight.unit_file import PREFIXES
from kubeletpy.base.structs import Struct


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
    """

    trial: bool
    kept: bool
    running: UnitProgram


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
    restart = () if state.running is UnitProgram.KUBELET else (AdoptionStep.RESTART,)
    return (*removed, AdoptionStep.RELOAD, *restart, AdoptionStep.DISARM)


# The drop-in by which the kubelet's unit starts this agent. During the watch it is below /run:
# after a power cut the unit starts the kubelet. Once the watch has succeeded it is below /etc.

NAME = "zz-kubeletpy.conf"
"""Sorts after other drop-ins, so that its ExecStart is the one in effect."""
TRIAL = "run/systemd/system"
KEPT = "etc/systemd/system"
_EXEC = re.compile(r"^ExecStart=.*\n?", re.MULTILINE)
_COMMENT = re.compile(r"^#.*\n", re.MULTILINE)


class DropInError(ValueError):
    """A unit for which no drop-in can be made; the message states why."""


def drop_in_path(unit: str, directory: str) -> str:
    """Where a unit's drop-in is, relative to the file system's root."""
    return posixpath.join(directory, f"{unit}.d", NAME)


def agent_command(command: str, program: str) -> str:
    """The ExecStart of a kubelet with this agent as the program, and its variables as they are.

    Args:
        command: the text of the kubelet's ExecStart.
        program: the agent's path.

    Raises:
        DropInError: the text starts no program by its path.
    """
    text = command.lstrip(PREFIXES)
    prefixes = command[: len(command) - len(text)]
    parts = text.split(None, 2 if "@" in prefixes else 1)
    if not parts or not parts[0].startswith("/"):
        raise DropInError(f"ExecStart={command!r} does not start with the path of a program")
    if any(char.isspace() or char in "\"'\\$%;" for char in program):
        raise DropInError(f"the path {program!r} has characters that a unit would need to quote")
    rest = parts[2:] if "@" in prefixes else parts[1:]
    kept = "".join(char for char in prefixes if char in ":-")
    return " ".join((f"{kept}{program} run", *rest))


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
