"""Object metadata: what the server fills in, and what a client may not change.

Pure: the random source is an argument. Must never change an object in place.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import Cause, bad_request, conflict, invalid
from kubeletpy_up.resources import ResourceInfo

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
    given = (obj.get("metadata") or {}).get("namespace") or ""
    if not info.namespaced and given:
        raise bad_request("namespace may not be set on a cluster-scoped object")
    if given not in ("", namespace):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def check_name(obj: JSON, name: str) -> None:
    """Refuse an object whose name differs from the URL's.

    Raises:
        ApiError: 400.
    """
    given = (obj.get("metadata") or {}).get("name")
    if given and given != name:
        raise bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def new_metadata(
    info: ResourceInfo, obj: JSON, namespace: str, now: float, rng: random.Random
) -> JSON:
    """The object as created: name (made from generateName), uid, creationTimestamp, namespace.

    Raises:
        ApiError: 400 for a resourceVersion, 422 for neither name nor generateName.
    """
    given: JSON = obj.get("metadata") or {}
    if given.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    meta = {key: value for key, value in given.items() if key not in _SERVER_OWNED}
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
    given, known = new.get("metadata") or {}, old["metadata"]
    for key in ("uid", "deletionTimestamp"):
        if given.get(key) and given[key] != known.get(key):
            text = f'Invalid value: "{given[key]}": field is immutable'
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
