"""Server-side apply: merge what a manager wants into what there is, and remember who owns what.

The common case of KEP-555: fields merge by the schema's list keys; what a manager leaves out that
it applied before goes away unless others own it; a field of another manager is changed only by
force. Ownership lives in ``metadata.managedFields``. Pure: time is an argument.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kubeletpy.api.times import format_time
from kubeletpy.localapi import definitions, field_sets
from kubeletpy.localapi.errors import ApiError, Cause, apply_conflict, bad_request
from kubeletpy.localapi.field_sets import FieldSet, Path

if TYPE_CHECKING:
    from kubeletpy.api.types import JSON

BEFORE_FIRST_APPLY = "before-first-apply"
CLIENT_SIDE_APPLY = "kubectl-client-side-apply"
_MAX_MANAGERS = 30
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ANNOTATION: Path = ("f:metadata", "f:annotations", f"f:{_LAST_APPLIED}")


@dataclass(frozen=True, slots=True)
class _Manager:
    name: str
    operation: str
    api_version: str
    time: str
    subresource: str
    members: frozenset[Path]

    def entry(self) -> JSON:
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
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            text += f" using {self.api_version}"
            if self.time:
                text += f" at {self.time}"
        return text

    def same_as(self, other: _Manager) -> bool:
        mine = (self.name, self.operation, self.subresource)
        return mine == (other.name, other.operation, other.subresource)


def _managers(obj: JSON | None) -> list[_Manager]:
    found: list[_Manager] = []
    for entry in ((obj or {}).get("metadata") or {}).get("managedFields") or ():
        fields: FieldSet = entry.get("fieldsV1") or {}
        found.append(
            _Manager(
                entry.get("manager", ""),
                entry.get("operation", "Update"),
                entry.get("apiVersion", ""),
                entry.get("time", ""),
                entry.get("subresource", ""),
                frozenset(field_sets.paths(fields)),
            )
        )
    return found


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
        live: the object as it is, None if there is none.
        applied: what the manager wants, decoded (quantities canonical), without defaults.
        manager: the request's fieldManager.
        force: take fields over from other managers.
        now: Unix seconds.
        subresource: of the request's path.

    Returns:
        The object to default, validate and store, managedFields included.

    Raises:
        ApiError: 409 with causes FieldManagerConflict; 400 if the configuration has managedFields.
    """
    if (applied.get("metadata") or {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if not manager:
        raise ApiError(
            422,
            "Invalid",
            'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for '
            "apply patch",
        )
    members = frozenset(field_sets.paths(field_sets.of_object(definition_name, applied)))
    api_version = str(applied.get("apiVersion", ""))
    mine = _Manager(manager, "Apply", api_version, format_time(now), subresource, members)
    others = [one for one in _known(definition_name, live) if not one.same_as(mine)]
    before = next((one for one in _managers(live) if one.same_as(mine)), None)
    if live is not None:
        others = _resolve_conflicts(definition_name, live, applied, mine, others, force=force)
    merged = _merge(definitions.definition(definition_name), live or {}, applied)
    if before is not None:
        merged = _drop(definition_name, merged, before.members - members, others)
        unchanged = before.members == members and _same(live, merged)
        if unchanged:
            mine = replace(mine, time=before.time)
    return _with_managers(merged, [*others, mine])


def _same(live: JSON | None, merged: JSON) -> bool:
    return live is not None and live == merged


def _known(definition_name: str | None, live: JSON | None) -> list[_Manager]:
    """The recorded managers; an object without any belongs to whoever wrote it before.

    What client-side apply set is known from its annotation, and is named so that kubectl finds it
    when it moves to server-side apply; then nothing else is claimed, above all not what admission
    added.
    """
    recorded = _managers(live)
    if recorded or live is None:
        return recorded
    version = str(live.get("apiVersion", ""))
    time = str((live.get("metadata") or {}).get("creationTimestamp") or "")
    applied = _last_applied(definition_name, live)
    if applied:
        members = applied | {_ANNOTATION}
        return [_Manager(CLIENT_SIDE_APPLY, "Update", version, time, "", members)]
    fields = field_sets.of_object(definition_name, {k: v for k, v in live.items() if k != "status"})
    members = frozenset(field_sets.paths(fields))
    return [_Manager(BEFORE_FIRST_APPLY, "Update", version, time, "", members)]


def _resolve_conflicts(
    definition_name: str | None,
    live: JSON,
    applied: JSON,
    mine: _Manager,
    others: list[_Manager],
    *,
    force: bool,
) -> list[_Manager]:
    """Raise on conflicts, or with force take the fields away from the others."""
    changed = {
        path
        for path in mine.members
        if field_sets.value_at(definition_name, live, path)
        != field_sets.value_at(definition_name, applied, path)
        and not path[-1].startswith("k:")
    }
    # kubectl's earlier client-side applies were its own: what they set, it may take over.
    own = _last_applied(definition_name, live) if mine.name == "kubectl" else frozenset()
    contested = [(other, sorted((changed - own) & other.members)) for other in others]
    contested = [(other, paths) for other, paths in contested if paths]
    if contested and not force:
        raise _conflict(contested)
    left = [replace(other, members=other.members - changed) for other in others]
    return [other for other in left if other.members]


def _last_applied(definition_name: str | None, live: JSON) -> frozenset[Path]:
    """Fields of the configuration that client-side apply left in its annotation."""
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    try:
        config = json.loads(annotations.get(_LAST_APPLIED, "{}"))
        return frozenset(field_sets.paths(field_sets.of_object(definition_name, config)))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return frozenset()  # anybody can write the annotation: what can't be read owns nothing


def _conflict(contested: list[tuple[_Manager, list[Path]]]) -> ApiError:
    pairs = [(other, path) for other, paths in contested for path in paths]
    causes = [
        Cause("FieldManagerConflict", field_sets.text(path), f"conflict with {other.shown()}")
        for other, path in pairs
    ]
    if len(pairs) == 1:
        other, path = pairs[0]
        shown = f"conflict with {other.shown()}: {field_sets.text(path)}"
        return apply_conflict(f"Apply failed with 1 conflict: {shown}", causes)
    lines: list[str] = []
    for other, paths in sorted(contested, key=lambda pair: pair[0].shown()):
        lines.append(f"conflicts with {other.shown()}:")
        lines += [f"- {field_sets.text(path)}" for path in paths]
    message = f"Apply failed with {len(pairs)} conflicts: " + "\n".join(lines)
    return apply_conflict(message, causes)


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
    """The applied items in their order; those that only the live list has keep their place."""
    items = definitions.resolve(schema.get("items", {}))
    by_key = {field_sets.item_key(schema, item): item for item in live}
    wanted = {field_sets.item_key(schema, item) for item in applied}
    merged: list[Any] = []
    waiting = [(field_sets.item_key(schema, item), item) for item in live]
    for item in applied:
        key = field_sets.item_key(schema, item)
        while waiting and key in by_key:
            live_key, live_item = waiting.pop(0)
            if live_key == key:
                break
            if live_key not in wanted:
                merged.append(live_item)
        old = by_key.get(key)
        merged.append(_merge(items, old, item) if isinstance(old, dict) else item)
    return merged + [item for key, item in waiting if key not in wanted]


def _drop(
    definition_name: str | None, merged: JSON, dropped: frozenset[Path], others: list[_Manager]
) -> JSON:
    """Take out what the manager no longer applies and nobody else owns."""
    owned = {path for other in others for path in other.members}
    parents = {path[:length] for path in owned for length in range(1, len(path))}
    for path in sorted(dropped, key=len):
        if path not in owned and path not in parents and not field_sets.is_item_key(path):
            merged = field_sets.remove(definition_name, merged, path)
    return merged


def _with_managers(obj: JSON, managers: list[_Manager]) -> JSON:
    entries = [manager.entry() for manager in managers if manager.members]
    metadata = {**(obj.get("metadata") or {}), "managedFields": entries[-_MAX_MANAGERS:]}
    return {**obj, "metadata": metadata}


def track_update(
    definition_name: str | None,
    live: JSON | None,
    new: JSON,
    manager: str,
    *,
    now: float,
    subresource: str = "",
) -> JSON:
    """Record that an update or another patch changed fields: the changer owns them now.

    Objects that were never applied have no managedFields, and get none here: they cost nothing.
    """
    managers = _managers(live)
    if live is None or not managers:
        return new
    fields = field_sets.of_object(definition_name, new)
    changed = frozenset(
        path
        for path in field_sets.paths(fields)
        if field_sets.value_at(definition_name, live, path)
        != field_sets.value_at(definition_name, new, path)
    )
    version = str(new.get("apiVersion", ""))
    mine = _Manager(manager, "Update", version, format_time(now), subresource, changed)
    kept: list[_Manager] = []
    for one in managers:
        remaining = {
            path
            for path in one.members
            if path not in changed
            and field_sets.exists(field_sets.value_at(definition_name, new, path))
        }
        if one.same_as(mine):
            mine = replace(mine, members=mine.members | remaining)
            if not changed:
                mine = replace(mine, time=one.time)
        else:
            kept.append(replace(one, members=frozenset(remaining)))
    return _with_managers(new, [*kept, mine])
