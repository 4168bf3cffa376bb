"""The rules of garbage collection: what becomes of an object with owners. Pure.

Source: metav1.OwnerReference, metav1.DeletionPropagation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubeletpy.base.api.types import JSON

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
"""Finalizers: orphan the dependents; wait until the blocking ones are deleted."""
SOLID, ABSENT, WAITING = "solid", "absent", "waiting"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How garbage collection changes an object.

    Attributes:
        disown: uids of owners to forget.
        delete: the propagation policy to delete it with; empty if it stays.
    """

    disown: set[str] = field(default_factory=set)
    delete: str = ""


def owner_uids(obj: JSON | None) -> set[str]:
    """The uids of an object's owners; none for no object."""
    return {
        each["uid"] for each in ((obj or {}).get("metadata") or {}).get("ownerReferences") or ()
    }


def matters(obj: JSON) -> bool:
    """Whether an object in this state may be garbage, or has dependents to deal with."""
    meta = obj["metadata"]
    if meta.get("deletionTimestamp"):
        return bool({ORPHAN, FOREGROUND} & {*(meta.get("finalizers") or ())})
    return bool(meta.get("ownerReferences"))


def is_waiting_for_dependents(obj: JSON) -> bool:
    """Whether an object is being deleted in the foreground."""
    meta = obj["metadata"]
    return bool(meta.get("deletionTimestamp")) and FOREGROUND in (meta.get("finalizers") or ())


def blocks(dependent: JSON, uid: str) -> bool:
    """Whether an owner has to wait for a dependent."""
    references = dependent["metadata"].get("ownerReferences") or ()
    return any(each["uid"] == uid and each.get("blockOwnerDeletion") for each in references)


def state(owner: JSON | None, reference: JSON) -> str:
    """The state of a reference's owner: solid, absent (or another by that name) or waiting."""
    if owner is None or owner["metadata"]["uid"] != reference["uid"]:
        return ABSENT
    return WAITING if is_waiting_for_dependents(owner) else SOLID


def judge(obj: JSON, states: Mapping[str, str], *, has_dependents: bool) -> Verdict:
    """Decide what becomes of an object that is not being deleted.

    Args:
        states: of its owners, by uid.
        has_dependents: whether it is an owner itself.
    """
    if SOLID in states.values():
        return Verdict(disown={uid for uid, found in states.items() if found != SOLID})
    if WAITING in states.values() and has_dependents:
        return Verdict(delete="Foreground")
    finalizers = obj["metadata"].get("finalizers") or ()
    if ORPHAN in finalizers:
        return Verdict(delete="Orphan")
    return Verdict(delete="Foreground" if FOREGROUND in finalizers else "Background")
