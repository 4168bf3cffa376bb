"""Operations on pods: the merged sources pass them to the loop. Plain data. Pure."""

from __future__ import annotations

from enum import StrEnum

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod


class Op(StrEnum):
    """The kinds of change to a source's pods (docs/reference/behaviour.md, a2)."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    REMOVE = "REMOVE"
    DELETE = "DELETE"
    """Deletion was requested; the pod still exists."""
    RECONCILE = "RECONCILE"
    """Only the API's status changed."""


class PodOperation(Struct, frozen=True):
    """One kind of change to pods of one source."""

    op: Op
    source: str
    pods: tuple[Pod, ...] = ()


class RefusedPod(Struct, frozen=True):
    """A pod left out because another of its source has its full name, or an unreadable change of
    one: the pod keeps its last good version."""

    pod: Pod
    message: str


class MergedDelivery(Struct, frozen=True):
    """The result of one delivery of a source; operations in the order to handle them."""

    operations: tuple[PodOperation, ...] = ()
    refused: tuple[RefusedPod, ...] = ()
    """For events on these pods."""
    malformed: tuple[str, ...] = ()
    """The faults of objects that are not pods; these objects are left out."""
