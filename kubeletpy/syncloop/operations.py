"""What the merging of the sources hands to the loop. Plain data. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kubeletpy.pods.pod import Pod


class Op(StrEnum):
    """What happened to a source's pods (docs/reference/behaviour.md, a2)."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    REMOVE = "REMOVE"
    DELETE = "DELETE"
    """Deletion was asked for; the pod is still there."""
    RECONCILE = "RECONCILE"
    """Only the API's status changed."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of change to pods of one source."""

    op: Op
    source: str
    pods: tuple[Pod, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod left out because another of its source has its full name, or an unreadable change of
    one: the pod keeps its last good version."""

    pod: Pod
    message: str


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of one delivery of a source; operations in the order to handle them."""

    operations: tuple[Operation, ...] = ()
    refused: tuple[Refused, ...] = ()
    """For events on these pods."""
    malformed: tuple[str, ...] = ()
    """What is wrong with objects that are not pods; they are left out."""
