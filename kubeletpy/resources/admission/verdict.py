"""The possible outcomes of admission."""

from __future__ import annotations

from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.events.reasons import OUT_OF, AdmissionReason

UNEXPECTED = AdmissionReason.UNEXPECTED_ADMISSION_ERROR


class Rejection(Struct, frozen=True):
    """Why a pod is rejected: the reason for its status and event, and a human-readable message."""

    reason: AdmissionReason
    message: str


class Shortage(Struct, frozen=True):
    """A resource that the node has too little of. cpu in millicores, others in units."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        """How much other pods would have to free."""
        return self.requested - (self.capacity - self.used)

    def rejection(self) -> Rejection:
        """The rejection of a pod that does not fit."""
        return Rejection(
            AdmissionReason(f"{OUT_OF}{self.resource}"),
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}",
        )


class Admitted(Struct, frozen=True):
    """The pod may run."""


class Refused(Struct, frozen=True):
    """The pod may not run here."""

    rejection: Rejection


class AskForNode(Struct, frozen=True):
    """The cached node does not match the pod's affinity: fetch the newest one first.

    ``rejection`` applies if it can't be fetched.
    """

    rejection: Rejection


class Preempt(Struct, frozen=True):
    """A critical pod fits once others are preempted."""

    shortages: tuple[Shortage, ...]


Verdict = Admitted | Refused | AskForNode | Preempt


def predicate(name: AdmissionReason, text: str) -> Rejection:
    """The rejection by one of the scheduler's rules."""
    return Rejection(name, f"Predicate {name} failed: {text}")
