"""Server-side apply: merges a manager's configuration into the live object, and records owners.

The common case of KEP-555. Fields merge by the schema's list keys. A field that a manager applied
before and now leaves out is removed unless others own it. Another manager's field is changed only
by force. Ownership: :mod:`kubeletpy_up.patching.field_managers`. Pure: time is an argument.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kubeletpy.base.api.times import format_time
from kubeletpy_up.errors import bad_request
from kubeletpy_up.patching import field_sets
from kubeletpy_up.patching.field_managers import (
    Manager,
    conflict_of,
    known_managers,
    last_applied,
    managers_of,
    with_last_applied,
    with_managers,
)
from kubeletpy_up.patching.field_sets import Path
from kubeletpy_up.schema import definitions

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON


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
    wanted = {field_sets.item_key(schema, item) for item in applied}
    waiting = deque((field_sets.item_key(schema, item), item) for item in live)
    shared = deque(key for item in applied if (key := field_sets.item_key(schema, item)) in by_key)
    merged: list[Any] = []
    for item in applied:
        key = field_sets.item_key(schema, item)
        while waiting and waiting[0][0] != key:
            if waiting[0][0] not in wanted:
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
    return merged + [item for key, item in waiting if key not in wanted]


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
