"""Which steps take a node over, or give it back, from the state in which it is. Pure.

Each step may be repeated, and a process may be killed between any two: the next run plans from the
state that it finds. The drop-ins are that state; no other file decides anything.
"""

from __future__ import annotations

from enum import StrEnum

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
