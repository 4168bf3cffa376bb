"""Owners of an object's fields, as ``metadata.managedFields`` records them (KEP-555).

Pure: time is an argument. Must never change its arguments, nor fail on what a client has written
into the record: what can't be read owns nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kubeletpy.base.api.times import format_time
from kubeletpy_up.errors import MAX_CAUSES, ApiError, Cause, apply_conflict
from kubeletpy_up.patching import field_sets
from kubeletpy_up.patching.field_sets import Path

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON

BEFORE_FIRST_APPLY = "before-first-apply"
CLIENT_SIDE_APPLY = "kubectl-client-side-apply"
_MAX_MANAGERS = 30
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ANNOTATION: Path = ("f:metadata", "f:annotations", f"f:{_LAST_APPLIED}")


@dataclass(frozen=True, slots=True)
class Manager:
    """One entry: who, by which operation on which subresource, and the fields that are its own.

    Attributes:
        operation: Apply or Update.
        time: of the last change, RFC 3339; empty if not recorded.
    """

    name: str
    operation: str
    api_version: str
    time: str
    subresource: str
    members: frozenset[Path]

    def entry(self) -> JSON:
        """The entry in the form of managedFields."""
        found: JSON = {"manager": self.name, "operation": self.operation}
        found["apiVersion"] = self.api_version
        if self.time:
            found["time"] = self.time
        found["fieldsType"] = "FieldsV1"
        found["fieldsV1"] = field_sets.from_paths(self.members)
        if self.subresource:
            found["subresource"] = self.subresource
        return found

    def shown(self) -> str:
        """The manager's description in messages."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            text += f" using {self.api_version}"
        return text

    def same_as(self, other: Manager) -> bool:
        """Whether both are the same entry at different times."""
        mine = (self.name, self.operation, self.subresource)
        return mine == (other.name, other.operation, other.subresource)


def managers_of(obj: JSON | None) -> list[Manager]:
    """The managers that an object records."""
    return [
        Manager(
            entry.get("manager") or "",
            entry.get("operation") or "Update",
            entry.get("apiVersion") or "",
            entry.get("time") or "",
            entry.get("subresource") or "",
            _members(entry.get("fieldsV1")),
        )
        for entry in ((obj or {}).get("metadata") or {}).get("managedFields") or ()
    ]


def _members(fields: Any) -> frozenset[Path]:
    try:
        found = frozenset(field_sets.paths(fields or {}))
    except (AttributeError, RecursionError):
        return frozenset()
    return frozenset(path for path in found if field_sets.is_path(path))


def known_managers(definition_name: str | None, live: JSON | None) -> list[Manager]:
    """The recorded managers; an object without any belongs to an assumed earlier one.

    The annotation of client-side apply records its fields. They get a manager that kubectl finds by
    name when it moves to server-side apply. No other field has an owner then, above all none that
    admission added.
    """
    recorded = managers_of(live)
    if recorded or live is None:
        return recorded
    version = str(live.get("apiVersion", ""))
    time = str((live.get("metadata") or {}).get("creationTimestamp") or "")
    applied = last_applied(definition_name, live)
    if applied:
        members = applied | {_ANNOTATION}
        return [Manager(CLIENT_SIDE_APPLY, "Update", version, time, "", members)]
    fields = field_sets.of_object(definition_name, {k: v for k, v in live.items() if k != "status"})
    members = frozenset(field_sets.paths(fields))
    return [Manager(BEFORE_FIRST_APPLY, "Update", version, time, "", members)]


def last_applied(definition_name: str | None, live: JSON) -> frozenset[Path]:
    """Fields of the configuration that client-side apply left in its annotation."""
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    try:
        config = json.loads(annotations.get(_LAST_APPLIED, "{}"))
        return frozenset(field_sets.paths(field_sets.of_object(definition_name, config)))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return frozenset()  # any client can write the annotation: what can't be read owns nothing


def with_last_applied(obj: JSON, applied: JSON, manager: str) -> JSON:
    """The object with its client-side apply annotation, if any, set to what was applied.

    A user who goes back to client-side apply then finds there what kubectl applied last.
    """
    metadata = obj.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if manager != "kubectl" or _LAST_APPLIED not in annotations:
        return obj
    text = json.dumps(applied, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    return {
        **obj,
        "metadata": {**metadata, "annotations": {**annotations, _LAST_APPLIED: text}},
    }


def conflict_of(contested: list[tuple[Manager, list[Path]]]) -> ApiError:
    """The refusal of an apply that would change fields of these other managers."""
    pairs = [(other, path) for other, paths in contested for path in paths]
    causes = [
        Cause("FieldManagerConflict", field_sets.text(path), f"conflict with {other.shown()}")
        for other, path in pairs[:MAX_CAUSES]
    ]
    if len(pairs) == 1:
        other, path = pairs[0]
        shown = f"conflict with {other.shown()}: {field_sets.text(path)}"
        return apply_conflict(f"Apply failed with 1 conflict: {shown}", causes)
    lines: list[str] = []
    for other, paths in sorted(contested, key=lambda pair: pair[0].shown()):
        lines.append(f"conflicts with {other.shown()}:")
        lines += [f"- {field_sets.text(path)}" for path in paths[:MAX_CAUSES]]
    message = f"Apply failed with {len(pairs)} conflicts: " + "\n".join(lines)
    return apply_conflict(message, causes)


def with_managers(obj: JSON, managers: list[Manager]) -> JSON:
    """The object with these managers; those without fields are left out."""
    kept = [manager for manager in managers if manager.members][-_MAX_MANAGERS:]
    kept.sort(key=lambda one: (one.operation, one.time, one.name, one.api_version, one.subresource))
    entries = [manager.entry() for manager in kept]
    return {**obj, "metadata": {**(obj.get("metadata") or {}), "managedFields": entries}}


def track_update(
    definition_name: str | None,
    live: JSON,
    new: JSON,
    manager: str,
    *,
    now: float,
    subresource: str = "",
) -> JSON:
    """Record that an update or another patch changed fields: the changer owns them now.

    Objects that were never applied have no managedFields and get none here, at no cost.
    """
    managers = managers_of(live)
    if not managers or new["metadata"].get("managedFields") != live["metadata"]["managedFields"]:
        return new  # a client that writes the record itself is trusted
    fields = field_sets.of_object(definition_name, new)
    was = field_sets.Values(definition_name, live)
    becomes = field_sets.Values(definition_name, new)
    changed = frozenset(
        path for path in field_sets.paths(fields) if was.at(path) != becomes.at(path)
    )
    version = str(new.get("apiVersion", ""))
    mine = Manager(manager, "Update", version, format_time(now), subresource, changed)
    kept: list[Manager] = []
    for one in managers:
        remaining = {
            path
            for path in one.members
            if path not in changed and field_sets.exists(becomes.at(path))
        }
        if one.same_as(mine):
            mine = replace(mine, members=mine.members | remaining)
            if not changed:
                mine = replace(mine, time=one.time)
        else:
            kept.append(replace(one, members=frozenset(remaining)))
    return with_managers(new, [*kept, mine])
