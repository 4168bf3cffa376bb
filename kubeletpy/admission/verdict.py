"""What admission can say of a pod."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a pod is refused: the reason of its status and event, and a sentence for people."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource of which the node has too little left. cpu in millicores, others in units."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        """How much other pods would have to give back."""
        return self.requested - (self.capacity - self.used)

    def rejection(self) -> Rejection:
        """The rejection of a pod that does not fit."""
        return Rejection(
            f"OutOf{self.resource}",
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}",
        )


@dataclass(frozen=True, slots=True)
class Admitted:
    """The pod may run."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The pod may not run here."""

    rejection: Rejection


@dataclass(frozen=True, slots=True)
class AskForNode:
    """The node as it is known does not suit the pod's affinity: look at the newest one first.

    ``rejection`` holds if that can not be had.
    """

    rejection: Rejection


@dataclass(frozen=True, slots=True)
class Preempt:
    """A critical pod fits when others give way."""

    shortages: tuple[Shortage, ...]


Verdict = Admitted | Refused | AskForNode | Preempt


def predicate(name: str, text: str) -> Rejection:
    """The rejection by one of the scheduler's rules."""
    return Rejection(name, f"Predicate {name} failed: {text}")
