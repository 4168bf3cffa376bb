"""Which steps take a node over, or give it back, from the state in which it is. Pure.

Each step may be repeated, and a process may be killed between any two: the next run plans from the
state that it finds. The drop-ins are that state; no other file decides anything.
"""

from __future__ import annotations

from enum import StrEnum

from kubeletpy.structs import Struct


class Program(StrEnum):
    """What the kubelet's unit runs."""

    AGENT = "this agent"
    KUBELET = "the kubelet"
    NOTHING = "nothing"


class Step(StrEnum):
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


class State(Struct, frozen=True):
    """A node as it is found.

    Attributes:
        trial: whether the drop-in below /run exists.
        kept: whether the drop-in below /etc exists.
        running: what the unit runs.
    """

    trial: bool
    kept: bool
    running: Program


def plan_adopt(state: State) -> tuple[Step, ...]:
    """The steps that take a node over; a run that was killed is finished."""
    if state.kept and state.running is Program.AGENT:
        left = (Step.REMOVE_TRIAL,) if state.trial else ()
        return (*left, Step.RELOAD, Step.DISARM)
    restart = () if state.running is Program.AGENT else (Step.RESTART,)
    return (
        Step.ARM,
        Step.WRITE_TRIAL,
        Step.RELOAD,
        *restart,
        Step.WATCH,
        Step.KEEP,
        Step.REMOVE_TRIAL,
        Step.RELOAD,
        Step.DISARM,
    )


def plan_give_back(state: State, *, unconfirmed: bool = False) -> tuple[Step, ...]:
    """The steps that give a node back; none if the kubelet has it.

    ``unconfirmed``: only if no watch has confirmed the agent.
    """
    if unconfirmed and state.kept:
        return ()
    if not (state.trial or state.kept) and state.running is Program.KUBELET:
        return (Step.DISARM,)
    removed = [
        step
        for step, there in ((Step.REMOVE_KEPT, state.kept), (Step.REMOVE_TRIAL, state.trial))
        if there
    ]
    restart = () if state.running is Program.KUBELET else (Step.RESTART,)
    return (*removed, Step.RELOAD, *restart, Step.DISARM)
