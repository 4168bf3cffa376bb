"""Server-side apply as a request: what is wrong with it, and the object that results.

Must never write. Time is an argument.
"""

from __future__ import annotations

from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy_up import errors
from kubeletpy_up.kinds import meta
from kubeletpy_up.patching import apply
from kubeletpy_up.registry import reading
from kubeletpy_up.requests import Target, WriteOptions
from kubeletpy_up.resources import ResourceInfo
from kubeletpy_up.schema import decode as schema
from kubeletpy_up.schema import definitions
from kubeletpy_up.schema.json_types import json_type


def merged(
    target: Target, applied: Any, old: JSON | None, options: WriteOptions, now: float
) -> JSON:
    """The object with the configuration applied, to be created or to replace the old one.

    Args:
        applied: the request's body, decoded.
        old: the stored object; None if there is none.
        now: Unix seconds.

    Raises:
        ApiError: 400, 404, 409, 422.
    """
    info, name = target.info, target.name
    if not options.field_manager:
        text = "Required value: is required for apply patch"
        raise errors.invalid_options("PatchOptions", "fieldManager", "FieldValueRequired", text)
    _check_kind(info, applied)
    # a field that is not in the schema can't have an owner
    decoded, _ = schema.decode(info, applied, "Strict", whole=False)
    metadata = decoded.get("metadata") or {}
    if old is None:
        _check_absent(target, metadata.get("uid") or "")
    if info.subresource("status") is not None:
        reset = "spec" if target.subresource == "status" else "status"
        decoded = {key: value for key, value in decoded.items() if key != reset}
    found = apply.server_side_apply(
        definitions.definition_name(info.group, info.version, info.kind),
        reading.view(info, old) if old else None,
        {**decoded, "metadata": {**metadata, "name": metadata.get("name") or name}},
        options.field_manager,
        force=options.force,
        now=now,
        subresource=target.subresource,
    )
    meta.check_namespace(info, found, target.namespace)
    meta.check_name(found, name)
    return found


def _check_kind(info: ResourceInfo, applied: Any) -> None:
    if not isinstance(applied, dict):
        raise errors.bad_request(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot "
            f"unmarshal {json_type(applied)} into Go value of type map[string]interface {{}}"
        )
    group_version, kind = applied.get("apiVersion") or "", applied.get("kind") or ""
    if (group_version, kind) != (info.group_version, info.kind):
        shown = str(group_version) if "/" in str(group_version) else f"/{group_version}"
        raise errors.bad_request(f"invalid object type: {shown[:300]}, Kind={str(kind)[:300]}")


def _check_absent(target: Target, uid: str) -> None:
    """Refuse to create what is meant for an existing object."""
    info, name = target.info, target.name
    if target.subresource:
        raise errors.not_found(info.plural, name, info.group)
    if uid:
        why = (
            f"uid mismatch: the provided object specified uid {uid}, and no existing object was "
            "found"
        )
        raise errors.conflict(info.plural, name, why, info.group)
