"""Rules that differ from kind to kind when an object is created or changed.

Pure but for the lookups it is given. Every function returns a new object and changes none.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy_up.errors import Cause, invalid
from kubeletpy_up.kinds import devices, pods, services, storage
from kubeletpy_up.requests import Caller
from kubeletpy_up.resources import ResourceInfo

NOT_READY_TAINT: JSON = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}

# Kinds whose PUT may create, and kinds whose PUT needs a resourceVersion (as on a real server).
CREATE_ON_UPDATE = frozenset({"leases.coordination.k8s.io", "events", "endpoints"})
NEEDS_VERSION = frozenset(
    {"leases.coordination.k8s.io", "csinodes.storage.k8s.io", "priorityclasses.scheduling.k8s.io"}
)
# Kinds whose deletion answers with the object instead of a Status.
RETURNS_DELETED = frozenset(
    {
        "pods",
        "services",
        "serviceaccounts",
        "namespaces",
        "persistentvolumes",
        "persistentvolumeclaims",
        "storageclasses.storage.k8s.io",
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "volumeattachments.storage.k8s.io",
        devices.CLAIMS,
        devices.TEMPLATES,
        devices.SLICES,
        devices.CLASSES,
    }
)
_REQUESTS = "certificatesigningrequests.certificates.k8s.io"
_KEEPS_STATUS_ON_CREATE = frozenset({"nodes"})
_WITH_GENERATION = frozenset({"pods", "priorityclasses", "deviceclasses", "resourceslices"})


class Context(Struct, frozen=True):
    """Lookups and settings for the rules of kinds.

    Attributes:
        find: (resource key, namespace, name) -> object or None.
        all_of: all objects of a resource.
        now: Unix seconds.
        suffix: makes five random characters.
        mount_tokens: whether pods get their service account's volume.
        service_cidr: where clusterIPs come from.
    """

    find: pods.Find
    all_of: Callable[[str], Iterable[JSON]]
    now: float
    suffix: Callable[[], str]
    mount_tokens: bool
    service_cidr: str


def before_defaults(info: ResourceInfo, obj: JSON, caller: Caller) -> JSON:
    """A new object as its client may set it: without status, with the server's own fields."""
    if info.storage_key not in _KEEPS_STATUS_ON_CREATE and info.subresource("status"):
        obj = {key: value for key, value in obj.items() if key != "status"}
    if info.plural in _WITH_GENERATION:
        obj = {**obj, "metadata": {**obj["metadata"], "generation": 1}}
    elif info.plural == "secrets":
        obj = fold_string_data(obj)
    elif info.plural in storage.PROTECTION:
        obj = storage.protected(info.plural, obj)
    elif info.plural == "nodes":
        obj = _taint_new_node(obj)
    elif info.plural == "certificatesigningrequests":
        spec = {**(obj.get("spec") or {}), "username": caller.user, "groups": list(caller.groups)}
        obj = {**obj, "spec": spec, "status": {}}
    return obj


def after_defaults(info: ResourceInfo, obj: JSON, context: Context) -> JSON:
    """A new object with the fields that depend on other objects.

    Raises:
        ApiError: something it names isn't there, or an address is taken.
    """
    if info.plural == "pods":
        return pods.admit(
            obj,
            context.find,
            mount_tokens=context.mount_tokens,
            suffix=context.suffix(),
            now=context.now,
        )
    if info.plural == "services":
        return services.allocate(obj, context.all_of("services"), context.service_cidr)
    if info.plural == storage.CLAIMS:
        return storage.with_default_class(obj, context.all_of(storage.CLASSES))
    if info.plural == storage.VOLUMES:
        return {**obj, "status": storage.volume_status(obj, {}, context.now)}
    if info.key in (devices.CLAIMS, devices.TEMPLATES):
        _check_admin(info, obj, "", context)
    return obj


def _check_admin(info: ResourceInfo, obj: JSON, subresource: str, context: Context) -> None:
    namespace = context.find("namespaces", "", obj["metadata"].get("namespace") or "")
    devices.check_admin(info, obj, namespace, subresource)


def changed(info: ResourceInfo, new: JSON, old: JSON, subresource: str, context: Context) -> JSON:
    """The part of an update that its path may change, on top of the old object.

    Raises:
        ApiError: an address is taken.
    """
    if subresource == "status":
        taken = {key: new[key] for key in ("status",) if key in new}
        if info.storage_key == _REQUESTS:
            taken = {"status": _dated(new.get("status") or {}, old, context.now)}
        if info.plural == "pods":
            taken = {"status": pods.with_kept_status(new.get("status") or {}, old)}
        elif info.key == devices.CLAIMS:
            taken = {"status": devices.claim_status(new, old)}
        elif info.plural == storage.VOLUMES:
            taken = {"status": storage.volume_status(new, old, context.now)}
        kept = {key: value for key, value in old.items() if key != "status"}
        return {**kept, **taken, "metadata": new["metadata"]}
    if subresource == "ephemeralcontainers":
        return pods.only_ephemeral_containers(new, old)
    if subresource == "resize":
        return pods.only_resources(new, old)
    if subresource == "approval":
        conditions = (new.get("status") or {}).get("conditions")
        status = {**(old.get("status") or {}), "conditions": conditions or []}
        return {**old, "status": _dated(status, old, context.now)}
    if subresource == "finalize":
        return {**old, "spec": new.get("spec") or {}}
    if info.subresource("status"):
        new = {key: value for key, value in new.items() if key != "status"}
        if "status" in old:
            new["status"] = old["status"]
    if info.storage_key == _REQUESTS:
        return {**new, "spec": old["spec"]}  # the request itself never changes
    if info.key == "pods":
        return pods.with_pod_level(new, old)
    if info.plural == "secrets":
        return fold_string_data(new)
    if info.plural == "services":
        return _service_update(new, old, context)
    return new


def _dated(status: JSON, old: JSON, now: float) -> JSON:
    """A certificate request's status with timestamps on its new conditions."""
    if not status.get("conditions"):
        return {key: value for key, value in status.items() if key != "conditions"}
    known = {c.get("type"): c for c in (old.get("status") or {}).get("conditions") or ()}
    moment = format_time(now)
    dated = []
    for condition in status["conditions"]:
        before = known.get(condition.get("type"), {})
        same = before.get("status") == condition.get("status")
        since = before.get("lastTransitionTime") if same else None
        dated.append(
            {
                **condition,
                "lastUpdateTime": condition.get("lastUpdateTime") or moment,
                "lastTransitionTime": condition.get("lastTransitionTime") or since or moment,
            }
        )
    return {**status, "conditions": dated}


def check_change(
    info: ResourceInfo, new: JSON, old: JSON, subresource: str, context: Context
) -> None:
    """Refuse a change that is valid in itself but not allowed by other objects.

    Raises:
        ApiError: 403.
    """
    if info.plural == storage.CLAIMS and not subresource:
        name = storage.class_of(new) or ""
        storage.check_expansion(new, old, context.find(storage.CLASSES, "", name))
    is_first = not (old.get("status") or {}).get("allocation")
    if info.key == devices.CLAIMS and subresource == "status" and is_first:
        _check_admin(info, new, subresource, context)


def _service_update(new: JSON, old: JSON, context: Context) -> JSON:
    spec = dict(new.get("spec") or {})
    old_spec: JSON = old.get("spec") or {}
    if spec.get("type") != "ExternalName" and not spec.get("clusterIP"):
        for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if key in old_spec:
                spec[key] = old_spec[key]
    uid = old["metadata"]["uid"]
    others = [s for s in context.all_of("services") if s["metadata"]["uid"] != uid]
    return services.allocate({**new, "spec": spec}, others, context.service_cidr)


def with_generation(info: ResourceInfo, new: JSON, old: JSON) -> JSON:
    """The new object with its generation, which grows with the spec for kinds that have one."""
    generation = old["metadata"].get("generation") or 0
    counted = info.plural == "csidrivers" or (
        info.plural in ("pods", "deviceclasses", "resourceslices") and generation
    )
    if not counted or new.get("spec") == old.get("spec"):
        return new
    return {**new, "metadata": {**new["metadata"], "generation": generation + 1}}


def fold_string_data(secret: JSON) -> JSON:
    """A secret with its write-only stringData moved into data."""
    supplied = secret.get("stringData")
    if supplied is None:
        return secret
    encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in supplied.items()}
    kept = {key: value for key, value in secret.items() if key != "stringData"}
    return {**kept, "data": {**(secret.get("data") or {}), **encoded}} if encoded else kept


def _taint_new_node(node: JSON) -> JSON:
    spec: JSON = node.get("spec") or {}
    taints = spec.get("taints") or []
    if any(taint.get("key") == NOT_READY_TAINT["key"] for taint in taints):
        return node
    return {**node, "spec": {**spec, "taints": [*taints, NOT_READY_TAINT]}}


def need_version(info: ResourceInfo, obj: JSON) -> None:
    """Refuse an update without resourceVersion where a kind needs it.

    Raises:
        ApiError: 422.
    """
    meta = obj.get("metadata") or {}
    if info.storage_key in NEEDS_VERSION and not meta.get("resourceVersion"):
        cause = Cause(
            "FieldValueInvalid",
            "metadata.resourceVersion",
            "Invalid value: 0: must be specified for an update",
        )
        raise invalid(info.plural, meta.get("name", ""), [cause], info.group)
