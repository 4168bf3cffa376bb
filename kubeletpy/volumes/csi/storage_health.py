"""The health of drivers' storage in a CSINode's status. Pure.

Source: docs/reference/behaviour-storage.md, sr2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubeletpy.base.api.types import JSON

Conditions = Sequence[JSON]
"""StorageHealthConditions: status, reason, message, accessMode, volumeMode, lastTransitionTime."""


def changed_storage_health(
    old: Sequence[JSON], reported: Mapping[str, Conditions], now: str
) -> list[JSON] | None:
    """``status.storageHealth`` with the drivers' new reports; None: nothing is to be written.

    A report counts only if its set of (status, reason, modes) is another one: messages alone change
    nothing. A condition that stays keeps its time, and a driver without conditions has no entry.

    Args:
        old: the entries of the CSINode.
        reported: the conditions of each driver that has answered, without times.
        now: the time of new conditions.
    """
    entries = {entry.get("name") or "": entry for entry in old}
    changed = False
    for driver, conditions in reported.items():
        since = {
            identity(each): each.get("lastTransitionTime")
            for each in entries.get(driver, {}).get("healthConditions") or ()
        }
        if since.keys() == {identity(each) for each in conditions}:
            continue
        changed = True
        entries.pop(driver, None)
        if conditions:
            timed = [
                {**each, "lastTransitionTime": since.get(identity(each)) or now}
                for each in conditions
            ]
            entries[driver] = {"name": driver, "healthConditions": timed}
    return list(entries.values()) if changed else None


def identity(condition: JSON) -> tuple[str, ...]:
    """The fields that identify a condition: all but its message and its time."""
    fields = ("status", "reason", "accessMode", "volumeMode")
    return tuple(str(condition.get(field) or "") for field in fields)
