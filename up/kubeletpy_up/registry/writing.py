"""Creating, replacing and patching objects: decode, check, fill in, admit, validate, store.

The caller is already authorized. Must never change the object that a caller passed in.
"""

from __future__ import annotations

from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component
from kubeletpy_up import errors
from kubeletpy_up.auth import node_restriction
from kubeletpy_up.defaults import pods as pod_defaults
from kubeletpy_up.kinds import gated_fields, meta, pods, storage
from kubeletpy_up.kinds import rules as kinds
from kubeletpy_up.patching import apply
from kubeletpy_up.registry import reading
from kubeletpy_up.registry.cluster import Cluster
from kubeletpy_up.registry.removal import Remover
from kubeletpy_up.requests import Caller, Target, WriteOptions
from kubeletpy_up.resources import ResourceInfo, find
from kubeletpy_up.schema import decode as schema
from kubeletpy_up.schema import definitions
from kubeletpy_up.schema.compile import json_type
from kubeletpy_up.schema.formats import check_values
from kubeletpy_up.validation import objects as pod_validation

APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
PATCH_TYPES = (JSON_PATCH, MERGE, STRATEGIC, APPLY)
_GENERATE_ATTEMPTS = 8


def stored_form(info: ResourceInfo, obj: JSON) -> tuple[ResourceInfo, JSON]:
    """A decoded object, and its resource, as they are stored (core/v1 for events)."""
    if info.key == info.storage_key:
        return info, obj
    canonical = find(info.storage_key)
    if canonical is None:
        raise errors.unknown_path()
    return canonical, meta.to_core(obj)


class Writer(Component):
    """Writes objects for the registry."""

    cluster: Cluster
    remover: Remover

    def create(
        self, caller: Caller, info: ResourceInfo, obj: Any, namespace: str, options: WriteOptions
    ) -> JSON:
        """Create an object. Raises ApiError."""
        decoded, warnings = schema.decode(info, obj, options.field_validation)
        options.warnings.extend(warnings)
        meta.check_namespace(info, decoded, namespace)
        self._check_namespace(info, decoded, namespace)
        seen_as, (info, decoded) = info, stored_form(info, decoded)
        if seen_as is not info and (causes := meta.check_new(decoded)):
            name = (decoded.get("metadata") or {}).get("name") or ""
            raise errors.invalid(info.kind, name, causes)
        options.warnings.extend(storage.warnings(info.plural, decoded))
        options.warnings.extend(meta.warnings(info.plural, decoded))
        for attempt in range(_GENERATE_ATTEMPTS):
            made = self._build(caller, info, decoded, namespace, options.subject)
            name = made["metadata"]["name"]
            if self.cluster.store.get(info.storage_key, namespace, name) is None:
                break
            generated = not (decoded.get("metadata") or {}).get("name")
            if not generated or attempt == _GENERATE_ATTEMPTS - 1:
                raise errors.already_exists(info.plural, name, info.group)
        if not options.dry_run:
            made = self.cluster.store.put(info.storage_key, namespace, name, made)
        return reading.view(seen_as, made)

    def _build(
        self, caller: Caller, info: ResourceInfo, decoded: JSON, namespace: str, subject: str | None
    ) -> JSON:
        cluster = self.cluster
        now = cluster.clock.now()
        made = meta.new_metadata(info, decoded, namespace, now, cluster.rng)
        made = kinds.before_defaults(info, made, caller)
        if info.key == "pods":
            made = gated_fields.without_disabled(made, None, cluster.feature_gates)
        made = pod_defaults.apply_defaults(info, made)
        self._restrict_create(caller, info, made, subject)
        causes = pod_validation.validate_create(info, made)
        if info.plural == "events":
            causes = [*causes, *meta.check(made)]
        if causes:
            raise errors.invalid(info.kind, made["metadata"]["name"], causes, info.group)
        made = kinds.after_defaults(info, made, cluster.context())
        return _ordered(info, made)

    def _restrict_create(
        self, caller: Caller, info: ResourceInfo, obj: JSON, subject: str | None
    ) -> None:
        node = caller.node_name
        if not node or not self.cluster.strict:
            return
        refused = None
        if info.plural == "pods":
            known = self.cluster.find("nodes", "", node)
            refused = node_restriction.check_pod_create(node, obj, known)
        elif info.plural == "nodes":
            supplied = obj["spec"].get("taints") or []
            plain = [taint for taint in supplied if taint != kinds.NOT_READY_TAINT]
            refused = node_restriction.check_node(
                node, {**obj, "spec": {**obj["spec"], "taints": plain}}, None
            )
        elif info.plural == "certificatesigningrequests":
            refused = node_restriction.check_certificate_request(node, obj, subject)
        if refused:
            raise errors.forbidden(info.plural, obj["metadata"]["name"], refused, info.group)

    def _check_namespace(self, info: ResourceInfo, obj: JSON, namespace: str) -> None:
        if not info.namespaced:
            return
        if not namespace:
            raise errors.bad_request("an empty namespace may not be set during creation")
        found = self.cluster.find("namespaces", "", namespace)
        if found is None:
            raise errors.not_found("namespaces", namespace)
        if found["metadata"].get("deletionTimestamp"):
            name = (obj.get("metadata") or {}).get("name") or ""
            why = (
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated"
            )
            refusal = errors.forbidden(info.plural, name, why, info.group)
            message = f"namespace {namespace} is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": message,
                "field": "metadata.namespace",
            }
            refusal.details["causes"] = [cause]
            raise refusal

    def update(self, target: Target, obj: Any, options: WriteOptions) -> JSON:
        """Replace an object, or the part of it that a subresource covers. Raises ApiError."""
        info, namespace, name = target.info, target.namespace, target.name
        decoded, warnings = schema.decode(info, obj, options.field_validation)
        options.warnings.extend(warnings)
        meta.check_namespace(info, decoded, namespace)
        meta.check_name(decoded, name)
        known = self.cluster.store.get(info.storage_key, namespace, name)
        if known is None and not target.subresource and info.storage_key in kinds.CREATE_ON_UPDATE:
            supplied = {**(decoded.get("metadata") or {}), "name": name}
            supplied.pop("resourceVersion", None)
            new = {**decoded, "metadata": supplied}
            options.created = True
            return self.create(target.caller, info, new, namespace, WriteOptions(options.dry_run))
        old = self.cluster.stored(info, namespace, name)
        kinds.need_version(info, decoded)
        return self._replace(target, decoded, old, options)

    def patch(self, target: Target, patch: Any, patch_type: str, options: WriteOptions) -> JSON:
        """Apply a patch to an object. Raises ApiError."""
        info, namespace, name = target.info, target.namespace, target.name
        if patch_type not in PATCH_TYPES:
            raise errors.unsupported_media_type(patch_type, PATCH_TYPES)
        entry = self.cluster.store.get(info.storage_key, namespace, name)
        old = entry.object if entry else None
        if patch_type == APPLY:
            return self._apply(target, patch, old, options)
        if old is None:
            raise errors.not_found(info.plural, name, info.group)
        reported = reading.view(info, old)
        if patch_type == JSON_PATCH:
            patched = apply.json_patch(reported, patch)
        elif not isinstance(patch, dict):
            begin = "" if patch_type == STRATEGIC else "error decoding patch: "
            raise errors.bad_request(
                f"{begin}json: cannot unmarshal {json_type(patch)} into Go value of type "
                "map[string]interface {}"
            )
        elif patch_type == MERGE:
            patched = apply.merge_patch(reported, patch)
        else:
            kind = definitions.definition_name(info.group, info.version, info.kind)
            patched = apply.strategic_merge(kind, reported, patch)
        check_values(patched)
        try:
            decoded, warnings = schema.decode(info, patched, options.field_validation)
        except errors.ApiError as refusal:
            raise errors.invalid_patch(refusal.message) from None
        options.warnings.extend(warnings)
        meta.check_namespace(info, decoded, namespace)
        if not (decoded.get("metadata") or {}).get("name"):
            raise errors.bad_request(
                f"the name of the object ({name} based on URL) was undeterminable: name must be "
                "provided"
            )
        meta.check_name(decoded, name)
        return self._replace(target, decoded, old, options)

    def _apply(self, target: Target, applied: Any, old: JSON | None, options: WriteOptions) -> JSON:
        info, now = target.info, self.cluster.clock.now()
        merged = merge_applied(target, applied, old, options, now)
        quiet = WriteOptions(options.dry_run, field_validation="Ignore", warnings=options.warnings)
        if old is None:
            options.created = True
            return self.create(target.caller, info, merged, target.namespace, quiet)
        merged, _ = schema.decode(info, merged, "Ignore")
        return self._replace(target, merged, old, quiet)

    def _replace(self, target: Target, decoded: JSON, old: JSON, options: WriteOptions) -> JSON:
        seen_as, subresource = target.info, target.subresource
        info, new = stored_form(seen_as, decoded)
        supplied = new.get("metadata") or {}
        about = old["metadata"]
        name, namespace = about["name"], about.get("namespace", "")
        uid, version = supplied.get("uid") or "", supplied.get("resourceVersion") or ""
        if options.is_patch:
            meta.check_patched(info, new, old)
        meta.check_preconditions(info, name, old, uid, version)
        new = meta.carry_over(new, old)
        new = kinds.changed(info, new, old, subresource, self.cluster.context())
        if info.key == "pods":
            new = gated_fields.changed(new, old, subresource, self.cluster.feature_gates)
        if subresource != "status":
            resizing = subresource == "resize"
            new = pod_defaults.apply_defaults(info, new, creating=False, resizing=resizing)
        new = kinds.with_generation(info, new, old)
        self._restrict_update(target.caller, info, new, old, subresource)
        causes = pod_validation.validate_update(info, new, old, subresource)
        if causes:
            raise errors.invalid(info.kind, name, causes, info.group)
        if subresource == "resize" and new.get("spec") != old.get("spec"):
            node = self.cluster.find("nodes", "", new["spec"].get("nodeName") or "")
            pods.check_resize(new, node)
        kinds.check_change(info, new, old, subresource, self.cluster.context())
        options.warnings.extend(meta.warnings(info.plural, new, old))
        if meta.same(new, old):
            return reading.view(seen_as, old)
        new = _ordered(info, self._with_owners(target, info, new, old, options.field_manager))
        if options.dry_run:
            return reading.view(seen_as, new)
        removed = self.remover.after_update(info, namespace, name, new)
        if removed is not None:
            return reading.view(seen_as, removed)
        return reading.view(seen_as, self.cluster.store.put(info.storage_key, namespace, name, new))

    def _with_owners(
        self, target: Target, info: ResourceInfo, new: JSON, old: JSON, manager: str
    ) -> JSON:
        """The new object; if it was ever applied, its changed fields now belong to the changer."""
        if not manager or "managedFields" not in old["metadata"]:
            return new
        from kubeletpy_up.patching.apply import track_update

        kind = definitions.definition_name(info.group, info.version, info.kind)
        now, subresource = self.cluster.clock.now(), target.subresource
        return track_update(kind, old, new, manager, now=now, subresource=subresource)

    def _restrict_update(
        self, caller: Caller, info: ResourceInfo, new: JSON, old: JSON, subresource: str
    ) -> None:
        node = caller.node_name
        if not node or not self.cluster.strict:
            return
        refused = None
        if info.plural == "nodes":
            refused = node_restriction.check_node(node, new, old)
        elif info.plural == "pods" and subresource == "status":
            refused = node_restriction.check_pod_status(node, new, old)
        elif info.plural == storage.CLAIMS and subresource == "status":
            refused = node_restriction.check_claim_status(node, new, old)
        if refused:
            raise errors.forbidden(info.plural, new["metadata"]["name"], refused, info.group)


def _ordered(info: ResourceInfo, obj: JSON) -> JSON:
    rest = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
    return {"kind": info.kind, "apiVersion": info.group_version, **rest}


# Server-side apply as a request. Nothing here writes.


def merge_applied(
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
        reported = str(group_version) if "/" in str(group_version) else f"/{group_version}"
        raise errors.bad_request(f"invalid object type: {reported[:300]}, Kind={str(kind)[:300]}")


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
