"""Reads from a CSIDriver object how its driver's volumes are handled; the object is optional.

Pure. Source: docs/reference/behaviour-storage.md, sl, sp1.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy.volumes.csi.names import EPHEMERAL, PERSISTENT

TOKEN_SECONDS = 3600
"""For a token without a requested lifetime: the API's default."""
SHORTEST_PERIOD_S = 10.0


class GroupPolicy(StrEnum):
    """Policy that determines who applies the pod's fsGroup to a volume, and when."""

    READ_WRITE_ONCE_WITH_FS_TYPE = "ReadWriteOnceWithFSType"
    FILE = "File"
    NONE = "None"


_POLICIES: Mapping[str, GroupPolicy] = {policy.value: policy for policy in GroupPolicy}


class TokenRequest(Struct, frozen=True):
    """A service account's token that a driver requests for each pod."""

    audience: str
    """Empty: the API server's own."""
    seconds: int


class DriverObject(Struct, frozen=True):
    """A CSIDriver; default values stand for a missing object."""

    attach_required: bool = True
    pod_info: bool = False
    lifecycles: frozenset[str] = frozenset({PERSISTENT})
    group_policy: GroupPolicy | None = GroupPolicy.READ_WRITE_ONCE_WITH_FS_TYPE
    """None: the object has no known one."""
    tokens: tuple[TokenRequest, ...] = ()
    tokens_in_secrets: bool = False
    republish: bool = False
    selinux_mount: bool = False
    allocatable_period: float | None = None
    """Seconds between queries for the number of volumes that fit."""


ABSENT = DriverObject()


def read(found: Mapping[str, Any] | None) -> DriverObject:
    """A CSIDriver from the API's object."""
    if found is None:
        return ABSENT
    spec = found.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    policy = spec.get("fsGroupPolicy")
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    return DriverObject(
        attach_required=spec.get("attachRequired") is not False,
        pod_info=spec.get("podInfoOnMount") is True,
        lifecycles=frozenset(_texts(spec.get("volumeLifecycleModes"))) or ABSENT.lifecycles,
        group_policy=_POLICIES.get(policy) if isinstance(policy, str) else None,
        tokens=tuple(_tokens(spec.get("tokenRequests"))),
        tokens_in_secrets=spec.get("serviceAccountTokenInSecrets") is True,
        republish=spec.get("requiresRepublish") is True,
        selinux_mount=spec.get("seLinuxMount") is True,
        allocatable_period=max(float(period), SHORTEST_PERIOD_S)
        if isinstance(period, int) and period > 0
        else None,
    )


def gives_to_group(
    policy: GroupPolicy, *, fs_type: str, inline: bool, access_modes: tuple[str, ...]
) -> bool:
    """Whether the agent applies the pod's fsGroup to a volume (table sp1)."""
    if policy is not GroupPolicy.READ_WRITE_ONCE_WITH_FS_TYPE:
        return policy is GroupPolicy.FILE
    single = {"ReadWriteOnce", "ReadWriteOncePod"} & set(access_modes)
    return bool(fs_type) and (inline or bool(single))


def lifecycle_problem(driver: str, wanted: DriverObject, *, inline: bool) -> str:
    """Why a volume of this kind is rejected; empty: it is not."""
    mode = EPHEMERAL if inline else PERSISTENT
    if mode in wanted.lifecycles:
        return ""
    if not inline:
        return f"volume mode {mode!r} not supported by driver {driver}"
    hint = "its CSIDriver object does not list it in volumeLifecycleModes"
    return f"volume mode {mode!r} not supported by driver {driver} ({hint})"


def _texts(found: Any) -> list[str]:
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _tokens(found: Any) -> list[TokenRequest]:
    wanted = []
    for each in found if isinstance(found, list) else []:
        if isinstance(each, Mapping):
            seconds = each.get("expirationSeconds")
            life = seconds if isinstance(seconds, int) and seconds > 0 else TOKEN_SECONDS
            wanted.append(TokenRequest(str(each.get("audience") or ""), life))
    return wanted
