"""Patches: server-side apply and its record of owners, JSON, merge, strategic merge. Pure.

Server-side apply is the common case of KEP-555. Fields merge by the schema's list keys. A field
that a manager applied before and now leaves out is removed unless others own it. Another manager's
field is changed only by force. Time is an argument; no argument is changed.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from kubeletpy.base.api import json_patch as patching
from kubeletpy.base.api.json_patch import MalformedPatch
from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct, replace
from kubeletpy_up.errors import MAX_CAUSES, ApiError, Cause, apply_conflict, bad_request
from kubeletpy_up.patching import field_sets
from kubeletpy_up.patching.field_sets import Path
from kubeletpy_up.schema import definitions
from kubeletpy_up.schema.compile import json_type

# Owners of fields, as ``metadata.managedFields`` records them. Must never fail on what a client has
# written into the record: what can't be read owns nothing.

BEFORE_FIRST_APPLY = "before-first-apply"
CLIENT_SIDE_APPLY = "kubectl-client-side-apply"
_MAX_MANAGERS = 30
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ANNOTATION: Path = ("f:metadata", "f:annotations", f"f:{_LAST_APPLIED}")


class Manager(Struct, frozen=True):
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

    def reported(self) -> str:
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
    return {**obj, "metadata": {**metadata, "annotations": {**annotations, _LAST_APPLIED: text}}}


def conflict_of(contested: list[tuple[Manager, list[Path]]]) -> ApiError:
    """The refusal of an apply that would change fields of these other managers."""
    pairs = [(other, path) for other, paths in contested for path in paths]
    causes = [
        Cause("FieldManagerConflict", field_sets.text(path), f"conflict with {other.reported()}")
        for other, path in pairs[:MAX_CAUSES]
    ]
    if len(pairs) == 1:
        other, path = pairs[0]
        reported = f"conflict with {other.reported()}: {field_sets.text(path)}"
        return apply_conflict(f"Apply failed with 1 conflict: {reported}", causes)
    lines: list[str] = []
    for other, paths in sorted(contested, key=lambda pair: pair[0].reported()):
        lines.append(f"conflicts with {other.reported()}:")
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


def server_side_apply(  # noqa: PLR0917 - one request's own parts, in the order of the protocol
    definition_name: str | None,
    live: JSON | None,
    applied: JSON,
    manager: str,
    force: bool,
    now: float,
    subresource: str = "",
) -> JSON:
    """Apply a configuration.

    Args:
        definition_name: full name of the kind's definition.
        live: the stored object, None if there is none.
        applied: the manager's configuration, decoded (quantities canonical), without defaults.
        manager: the request's fieldManager, not empty.
        force: take fields over from other managers.
        now: Unix seconds.
        subresource: of the request's path.

    Returns:
        The object to default, validate and store, managedFields included.

    Raises:
        ApiError: 409 with causes FieldManagerConflict; 400 if the configuration has managedFields
            or the same item of a list twice.
    """
    if (applied.get("metadata") or {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if twice := field_sets.duplicate(definition_name, applied):
        raise bad_request(f"failed to create typed patch object: {twice}")
    members = frozenset(field_sets.paths(field_sets.of_object(definition_name, applied)))
    api_version = str(applied.get("apiVersion", ""))
    mine = Manager(manager, "Apply", api_version, format_time(now), subresource, members)
    others = [one for one in known_managers(definition_name, live) if not one.same_as(mine)]
    before = next((one for one in managers_of(live) if one.same_as(mine)), None)
    if live is not None:
        others = _resolve_conflicts(definition_name, live, applied, mine, others, force=force)
    merged = _merge(definitions.definition(definition_name), live or {}, applied)
    merged = with_last_applied(merged, applied, manager)
    if before is not None:
        merged = _drop(definition_name, merged, before.members - members, others)
        if before.members == members and live == merged:
            mine = replace(mine, time=before.time)
    return with_managers(merged, [*others, mine])


def _resolve_conflicts(
    definition_name: str | None,
    live: JSON,
    applied: JSON,
    mine: Manager,
    others: list[Manager],
    *,
    force: bool,
) -> list[Manager]:
    """Raise on conflicts, or with force take the fields away from the others."""
    is_now = field_sets.Values(definition_name, live)
    becomes = field_sets.Values(definition_name, applied)
    changed = {
        path
        for path in mine.members
        if is_now.at(path) != becomes.at(path) and not path[-1].startswith("k:")
    }
    # kubectl's earlier client-side applies were its own: what they set, it may take over.
    own = last_applied(definition_name, live) if mine.name == "kubectl" else frozenset()
    contested = [(other, sorted((changed - own) & other.members)) for other in others]
    contested = [(other, paths) for other, paths in contested if paths]
    if contested and not force:
        raise conflict_of(contested)
    left = [replace(other, members=other.members - changed) for other in others]
    return [other for other in left if other.members]


def _merge(schema: JSON, live: Any, applied: Any) -> Any:
    merged = dict(live)
    for key, value in applied.items():
        merged[key] = _merge_value(field_sets.child_schema(schema, key), live.get(key), value)
    return merged


def _merge_value(schema: JSON, live: Any, applied: Any) -> Any:
    resolved = definitions.resolve(schema)
    if isinstance(applied, dict) and isinstance(live, dict):
        if applied and not field_sets.is_granular(schema, resolved, applied):
            return applied
        return _merge(resolved, live, applied)
    granular = field_sets.is_granular(schema, resolved, applied)
    if not (granular and isinstance(applied, list) and isinstance(live, list)):
        return applied
    return _merge_list(schema, live, applied)


def _merge_list(schema: JSON, live: list[Any], applied: list[Any]) -> list[Any]:
    """Merge two lists: items of only one of them stay before the shared item that they precede.

    Shared items are in the order applied. Where an item of either could come next, that of
    the live list does.
    """
    items = definitions.resolve(schema.get("items", {}))
    by_key = {field_sets.item_key(schema, item): item for item in live}
    desired = {field_sets.item_key(schema, item) for item in applied}
    waiting = deque((field_sets.item_key(schema, item), item) for item in live)
    shared = deque(key for item in applied if (key := field_sets.item_key(schema, item)) in by_key)
    merged: list[Any] = []
    for item in applied:
        key = field_sets.item_key(schema, item)
        while waiting and waiting[0][0] != key:
            if waiting[0][0] not in desired:
                merged.append(waiting.popleft()[1])
            elif not shared or waiting[0][0] != shared[0]:
                waiting.popleft()  # already merged, or another item's turn
            else:
                break
        old = by_key.get(key)
        merged.append(_merge(items, old, item) if isinstance(old, dict) else item)
        if shared and shared[0] == key:
            shared.popleft()
            if waiting and waiting[0][0] == key:
                waiting.popleft()
    return merged + [item for key, item in waiting if key not in desired]


def _drop(
    definition_name: str | None, merged: JSON, dropped: frozenset[Path], others: list[Manager]
) -> JSON:
    """Remove what the manager no longer applies and nobody else owns."""
    owned = {path for other in others for path in other.members}
    parents = {path[:length] for path in owned for length in range(1, len(path))}
    going = (
        path
        for path in dropped
        if path not in owned and path not in parents and not field_sets.is_item_key(path)
    )
    return field_sets.remove(definition_name, merged, going)


# Other patches, with the API's refusals.


def json_patch(original: JSON, operations: Any) -> JSON:
    """Apply an RFC 6902 patch.

    Raises:
        ApiError: 400 if it is not such a patch, 413 if it is too large or copies too much, 422 if
            it does not fit the object.
    """
    if not isinstance(operations, list):
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {json_type(operations)} into Go value "
            "of type []handlers.jsonPatchOp"
        )
    try:
        return patching.json_patch(original, operations)
    except patching.TooLarge as error:
        raise ApiError(413, "RequestEntityTooLarge", str(error)) from None
    except patching.DoesNotFit:
        raise ApiError(
            422, "Invalid", "the server rejected our request due to an error in our request"
        ) from None
    except MalformedPatch as error:
        raise bad_request(str(error)) from None


def merge_patch(original: Any, patch: Any) -> Any:
    """Apply an RFC 7396 patch; null removes. Raises ApiError (400) if it is nested too deep."""
    try:
        return patching.merge_patch(original, patch)
    except MalformedPatch as error:
        raise bad_request(str(error)) from None


def strategic_merge(definition_name: str | None, original: JSON, patch: JSON) -> JSON:
    """Apply a strategic merge patch.

    Args:
        definition_name: full name of the object's definition; None merges maps and replaces lists.
        original: the object to patch.
        patch: the parsed patch.

    Raises:
        ApiError: 400 for a malformed directive, 422 for an item without its merge key.
    """
    schema = definitions.definition(definition_name)
    try:
        return patching.strategic_merge(schema, original, patch, resolve=definitions.resolve)
    except patching.NoMergeKey as error:
        raise ApiError(422, "Invalid", str(error)) from None
    except patching.MalformedPatch as error:
        raise bad_request(str(error)) from None
