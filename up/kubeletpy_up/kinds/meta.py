"""Object metadata: what the server fills in, what a client may not change, and what owners imply.

Also the two views of events, and warnings about addresses. Pure: the random source is an argument.
Must never change an object in place.
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct, field
from kubeletpy_up.errors import ApiError, Cause, bad_request, conflict, invalid
from kubeletpy_up.resources import ResourceInfo
from kubeletpy_up.schema import formats

if TYPE_CHECKING:
    import random


_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_MAX_GENERATED = 63
_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)


def check_namespace(info: ResourceInfo, obj: JSON, namespace: str) -> None:
    """Refuse an object whose namespace differs from the request's.

    Raises:
        ApiError: 400.
    """
    supplied = (obj.get("metadata") or {}).get("namespace") or ""
    if not info.namespaced and supplied:
        raise bad_request("namespace may not be set on a cluster-scoped object")
    if supplied not in ("", namespace):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def check_name(obj: JSON, name: str) -> None:
    """Refuse an object whose name differs from the URL's.

    Raises:
        ApiError: 400.
    """
    supplied = (obj.get("metadata") or {}).get("name")
    if supplied and supplied != name:
        raise bad_request(
            f"the name of the object ({supplied}) does not match the name on the URL ({name})"
        )


def new_metadata(
    info: ResourceInfo, obj: JSON, namespace: str, now: float, rng: random.Random
) -> JSON:
    """The object as created: name (made from generateName), uid, creationTimestamp, namespace.

    Raises:
        ApiError: 500 for the version of a stored object (any other text is ignored, as by
            kube-apiserver), 422 for neither name nor generateName.
    """
    supplied: JSON = obj.get("metadata") or {}
    version = supplied.get("resourceVersion") or ""
    if version.isascii() and version.isdecimal() and 0 < int(version[:21]) < 1 << 64:
        raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
    meta = {key: value for key, value in supplied.items() if key not in _SERVER_OWNED}
    meta.pop("resourceVersion", None)
    if not meta.get("name"):
        prefix = meta.get("generateName")
        if not prefix:
            cause = Cause(
                "FieldValueRequired",
                "metadata.name",
                "Required value: name or generateName is required",
            )
            raise invalid(info.kind, "", [cause], info.group)
        letters = "".join(rng.choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
        meta["name"] = prefix[: _MAX_GENERATED - _SUFFIX_LENGTH] + letters
    if info.namespaced:
        meta["namespace"] = namespace
    meta["uid"] = str(uuid.UUID(int=rng.getrandbits(128), version=4))
    meta["creationTimestamp"] = format_time(now)
    return {**obj, "metadata": meta}


def check_delete_preconditions(
    info: ResourceInfo, name: str, old: JSON, uid: str, resource_version: str
) -> None:
    """Refuse a deletion meant for another object of that name, or for an older version.

    Raises:
        ApiError: 409 Conflict.
    """
    meta = old["metadata"]
    if uid and uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record "
            f"({meta['uid']}). The object might have been deleted and then recreated"
        )
        raise conflict(info.kind, name, why, info.group)
    if resource_version and resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({resource_version}) does not match the "
            f"ResourceVersion in record ({meta['resourceVersion']}). The object might have been "
            "modified"
        )
        raise conflict(info.kind, name, why, info.group)


def check_patched(info: ResourceInfo, new: JSON, old: JSON) -> None:
    """Refuse a patch of the fields that identify an object or mark it as deleted.

    Raises:
        ApiError: 422.
    """
    supplied, known = new.get("metadata") or {}, old["metadata"]
    for key in ("uid", "deletionTimestamp"):
        if supplied.get(key) and supplied[key] != known.get(key):
            text = f'Invalid value: "{supplied[key]}": field is immutable'
            cause = Cause("FieldValueInvalid", f"metadata.{key}", text)
            raise invalid(info.kind, known["name"], [cause], info.group)


def check_preconditions(
    info: ResourceInfo, name: str, old: JSON, uid: str, resource_version: str
) -> None:
    """Refuse a write meant for another object of that name, or for an older version.

    Raises:
        ApiError: 409 Conflict.
    """
    meta = old["metadata"]
    if uid and uid != meta["uid"]:
        why = (
            "StorageError: invalid object, Code: 4, Key: "
            f"/registry/{info.plural}/{meta.get('namespace', '')}/{name}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, "
            f"UID in object meta: {meta['uid']}"
        )
        raise conflict(info.plural, name, why, info.group)
    if resource_version not in ("", "0", meta["resourceVersion"]):
        raise conflict(info.plural, name, "", info.group)


def carry_over(new: JSON, old: JSON) -> JSON:
    """The new object with the metadata that only the server sets taken from the old one."""
    meta: JSON = {
        key: value for key, value in (new.get("metadata") or {}).items() if key not in _SERVER_OWNED
    }
    for key in (*_SERVER_OWNED, "resourceVersion", "name", "namespace", "generateName"):
        if key in old["metadata"]:
            meta[key] = old["metadata"][key]
    if "managedFields" in old["metadata"] and "managedFields" not in meta:
        meta["managedFields"] = old["metadata"]["managedFields"]
    return {**new, "metadata": meta}


def same(left: JSON, right: JSON) -> bool:
    """Whether two versions of an object differ in nothing but the resourceVersion."""
    return _bare(left) == _bare(right)


def _bare(obj: JSON) -> JSON:
    meta = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}
    return {**obj, "metadata": meta}


def with_metadata(obj: JSON, **changes: object) -> JSON:
    """A copy with metadata fields set; None removes a field."""
    meta = {**obj["metadata"], **changes}
    return {**obj, "metadata": {k: v for k, v in meta.items() if v is not None}}


# Garbage collection: what becomes of an object with owners.
# Source: metav1.OwnerReference, metav1.DeletionPropagation.

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
"""Finalizers: orphan the dependents; wait until the blocking ones are deleted."""
SOLID, ABSENT, WAITING = "solid", "absent", "waiting"


class Verdict(Struct, frozen=True):
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


# Addresses that are valid, but not in canonical form.

_DEPRECATED = "spec.externalIPs is deprecated and may no longer be implemented in some clusters"


def warnings(plural: str, new: JSON, old: JSON | None = None) -> list[str]:
    """The warnings to the client about newly added addresses."""
    known = set(_addresses(plural, old)) if old else set()
    found = [_warning(*each) for each in _addresses(plural, new) if each not in known]
    ranges = set(_ranges(plural, old)) if old else set()
    found += [_range_warning(*each) for each in _ranges(plural, new) if each not in ranges]
    if plural == "services" and (new.get("spec") or {}).get("externalIPs"):
        found.append(_DEPRECATED)
    return [warning for warning in found if warning]


def _addresses(plural: str, obj: JSON) -> Iterator[tuple[str, str]]:
    """Each address with the path of its field."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if plural != "pods":
        return
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        yield f"spec.hostAliases[{index}].ip", alias.get("ip") or ""
    for index, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        yield f"spec.dnsConfig.nameservers[{index}]", server
    for key in ("podIPs", "hostIPs"):
        for index, entry in enumerate(status.get(key) or ()):
            yield f"status.{key}[{index}].ip", entry.get("ip") or ""


def _ranges(plural: str, obj: JSON) -> Iterator[tuple[str, str]]:
    """Each range with the path of its field."""
    key = {"services": "loadBalancerSourceRanges", "nodes": "podCIDRs"}.get(plural)
    for index, value in enumerate((obj.get("spec") or {}).get(key or "") or ()):
        yield f"spec.{key}[{index}]", value.strip()


def _range_warning(path: str, value: str) -> str:
    if ":" not in value or formats.cidr(value):
        return ""
    return _canonical(f"{path}: IPv6 CIDR value", value, str(ipaddress.ip_network(value)))


def _warning(path: str, address: str) -> str:
    if ":" not in address or formats.ip_address(address):
        return ""
    return _canonical(f"{path}: IPv6 address", address, str(ipaddress.ip_address(address)))


def _canonical(what: str, value: str, canonical: str) -> str:
    if canonical == value:
        return ""
    return f'{what} "{value}" should be in RFC 5952 canonical format ("{canonical}")'


# Events: stored in the core/v1 form, seen through core/v1 and events.k8s.io/v1.

_TO_NEW = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_TO_CORE = {new: core for core, new in _TO_NEW.items()}


def to_new(event: JSON) -> JSON:
    """A core/v1 event as events.k8s.io/v1."""
    renamed = {
        _TO_NEW.get(key, key): value
        for key, value in event.items()
        if value or key not in ("reportingComponent", "reportingInstance")
    }
    return {**renamed, "kind": "Event", "apiVersion": "events.k8s.io/v1"}


def to_core(event: JSON) -> JSON:
    """An events.k8s.io/v1 event as core/v1."""
    renamed = {_TO_CORE.get(key, key): value for key, value in event.items()}
    return {**renamed, "kind": "Event", "apiVersion": "v1"}


def check_new(event: JSON) -> list[Cause]:
    """Check a new event, in the core/v1 form, for the fields that events.k8s.io/v1 requires."""
    needed = {
        "eventTime": "eventTime",
        "reportingController": "reportingComponent",
        "reportingInstance": "reportingInstance",
        "action": "action",
        "reason": "reason",
    }
    return [
        Cause("FieldValueRequired", name, "Required value")
        for name, key in needed.items()
        if not event.get(key)
    ]


def check(event: JSON) -> list[Cause]:
    """The rule that an event is in its object's namespace (cluster-wide objects: ``default``)."""
    namespace = event["metadata"].get("namespace", "")
    involved = (event.get("involvedObject") or {}).get("namespace") or ""
    if involved == namespace or (not involved and namespace in ("default", "kube-system")):
        return []
    message = f'Invalid value: "{involved}": does not match event.namespace'
    return [Cause("FieldValueInvalid", "involvedObject.namespace", message)]
