"""What an operation on a volume is given of a pod, and how it fails. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.on_disk import Outcome


@dataclass(frozen=True, slots=True)
class PodUse:
    """The pod, as far as a plugin may know it."""

    uid: str
    name: str
    namespace: str
    service_account: str
    fs_group: int | None
    fs_group_change_policy: str | None
    selinux_context: str | None
    """Mount the volume with this SELinux context; None: the runtime relabels."""
    pod: Pod
    alone: bool = True
    """No other pod of this node has the volume, or may have it."""


class OperationFailed(Exception):
    """An operation on a volume failed.

    Attributes:
        outcome: what that says of the volume.
        message: for people, without secrets.
        event_word: the tabled word for events (table sf), for example ``MountVolume.MountDevice``.
        call: what failed, for example ``NodeStageVolume of driver x``.
    """

    def __init__(
        self, outcome: Outcome, message: str, *, event_word: str = "", call: str = ""
    ) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message
        self.event_word = event_word
        self.call = call


class FilesystemMismatch(OperationFailed):
    """A disk could not be mounted, and holds another file system than its volume says."""


class StillUnderWay(OperationFailed):
    """It has not failed, but who waited for it has waited long enough."""

    def __init__(self, call: str) -> None:
        super().__init__(Outcome.UNCERTAIN, f"still waiting for {call}", call=call)


class ExpansionProblem(StrEnum):
    """Why a volume was not expanded on this node (table so3)."""

    UNSUPPORTED = "unsupported"
    """The driver does not expand on nodes."""
    IN_USE = "in use"
    """Not while it is in use (FailedPrecondition): not tried again until it is set up again."""
    INFEASIBLE = "infeasible"
    """Never with this size (InvalidArgument, OutOfRange, NotFound)."""
    OTHER = "other"


class ExpansionFailed(OperationFailed):
    """A volume could not be expanded."""

    def __init__(self, problem: ExpansionProblem, message: str, *, call: str = "") -> None:
        super().__init__(Outcome.UNCERTAIN, message, call=call)
        self.problem = problem
