"""The view of a pod that volume operations get, and how operations fail. Pure."""

from __future__ import annotations

from enum import StrEnum

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.on_disk import FailureOutcome


class PodUse(Struct, frozen=True):
    """The pod, as far as plugins may see it."""

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
    """No other pod of this node has, or may have, the volume."""


class OperationFailed(Exception):
    """An operation on a volume failed.

    Attributes:
        outcome: what the failure implies for the volume.
        message: for people, without secrets.
        event_word: the prefix for events (table sf), for example ``MountVolume.MountDevice``.
        call: the call that failed, for example ``NodeStageVolume of driver x``.
    """

    def __init__(
        self, outcome: FailureOutcome, message: str, *, event_word: str = "", call: str = ""
    ) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message
        self.event_word = event_word
        self.call = call


class FilesystemMismatch(OperationFailed):
    """A disk could not be mounted: its file system is not the one that its volume specifies."""


class StillUnderWay(OperationFailed):
    """Not a failure: the caller has waited long enough."""

    def __init__(self, call: str) -> None:
        super().__init__(FailureOutcome.UNCERTAIN, f"still waiting for {call}", call=call)


class ExpansionProblem(StrEnum):
    """Why a volume was not expanded on this node (table so3)."""

    UNSUPPORTED = "unsupported"
    """The driver does not support expansion on nodes."""
    IN_USE = "in use"
    """Not while in use (FailedPrecondition): not retried until it has been set up again."""
    INFEASIBLE = "infeasible"
    """Never with this size (InvalidArgument, OutOfRange, NotFound)."""
    REFUSED = "refused"
    """The driver has tried and refuses: no part of the call is in progress any more."""
    OTHER = "other"


class ExpansionFailed(OperationFailed):
    """A volume could not be expanded."""

    def __init__(self, problem: ExpansionProblem, message: str, *, call: str = "") -> None:
        super().__init__(FailureOutcome.UNCERTAIN, message, call=call)
        self.problem = problem
