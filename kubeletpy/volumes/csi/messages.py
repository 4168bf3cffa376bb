"""The messages of a CSI driver's Node service: makes requests, interprets answers and errors.

Pure. Drivers may answer anything: each answer is checked and bounded. The module loads the CSI
message classes, so it is imported with the first driver. Source:
docs/reference/behaviour-storage.md, sg, sk, so3, sr; docs/reference/csi-v1.json.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Hidden, HidesFields, Struct, field
from kubeletpy.base.text import scrub
from kubeletpy.remote.errors import Code
from kubeletpy.remote.generated import csi_pb2 as csi
from kubeletpy.volumes.claims.model import ExpansionProblem, FailureOutcome, VolumeStats

MAX_NODE_ID = 256
"""Bytes. Source: the CSI's own limit for a node_id."""
MAX_SEGMENTS = 64
MAX_CAPABILITIES, MAX_USAGE = 256, 16
"""Entries of these lists that are read: the CSI has 9 capabilities and 2 units."""
_INT32_MAX = 2**31 - 1
_UNCERTAIN = frozenset(
    {
        Code.CANCELLED,
        Code.DEADLINE_EXCEEDED,
        Code.UNAVAILABLE,
        Code.RESOURCE_EXHAUSTED,
        Code.ABORTED,
    }
)
_LABEL = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_PREFIX = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
_MAX_PREFIX = 253
_INFEASIBLE = frozenset({Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE, Code.NOT_FOUND})


class BadCsiAnswer(ValueError):
    """A driver's answer contradicts itself or the CSI; the text states how."""


class NodeInfo(Struct, frozen=True):
    """A node as a driver sees it."""

    node_id: str
    max_volumes: int | None = None
    """None: the driver sets no limit."""
    topology: Mapping[str, str] = field(default_factory=dict)
    odd: str = ""
    """The parts of the answer that were rejected, for the log."""


def outcome_of(code: Code, *, answered: bool) -> FailureOutcome:
    """The consequence of a failed call for the volume (table sg)."""
    return FailureOutcome.UNCERTAIN if code in _UNCERTAIN or not answered else FailureOutcome.FINAL


def expansion_problem(code: Code, *, answered: bool) -> ExpansionProblem:
    """The consequence of a failed NodeExpandVolume for the expansion (table so3)."""
    if answered and code is Code.FAILED_PRECONDITION:
        return ExpansionProblem.IN_USE
    if answered and code in _INFEASIBLE:
        return ExpansionProblem.INFEASIBLE
    if outcome_of(code, answered=answered) is FailureOutcome.FINAL:
        return ExpansionProblem.REFUSED
    return ExpansionProblem.OTHER


def capabilities(answer: csi.NodeGetCapabilitiesResponse) -> frozenset[int]:
    """The numbers of the capabilities that a driver reports."""
    listed = islice(answer.capabilities, MAX_CAPABILITIES)
    return frozenset(each.rpc.type for each in listed if each.HasField("rpc"))


def node_info(answer: csi.NodeGetInfoResponse) -> NodeInfo:
    """NodeGetInfo's answer. Raises BadCsiAnswer."""
    if not answer.node_id:
        raise BadCsiAnswer("it gives no node_id")
    if len(answer.node_id.encode()) > MAX_NODE_ID or not answer.node_id.isprintable():
        raise BadCsiAnswer("what it gives as node_id cannot be one")
    topology = answer.accessible_topology.segments
    if len(topology) > MAX_SEGMENTS:
        raise BadCsiAnswer(f"it gives more than {MAX_SEGMENTS} topology segments")
    segments = dict(topology)
    for key, value in segments.items():
        _must_be_label(key, value)
    count, odd = answer.max_volumes_per_node, ""
    if count < 0:
        odd = (
            f"max_volumes_per_node is {count}, below zero: it is reported as no limit, so that "
            "more volumes may be scheduled to this node than the driver can attach"
        )
    elif count > _INT32_MAX:
        odd = f"max_volumes_per_node is {count}: {_INT32_MAX} is reported, the largest possible"
    limit = min(count, _INT32_MAX) if count > 0 else None
    return NodeInfo(answer.node_id, limit, segments, odd)


def _must_be_label(key: str, value: str) -> None:
    """Raise BadCsiAnswer: a topology segment becomes a label of the node."""
    prefix, slash, name = key.rpartition("/")
    good = _LABEL.fullmatch(name) and (
        not slash or (len(prefix) <= _MAX_PREFIX and _PREFIX.fullmatch(prefix))
    )
    if not good:
        raise BadCsiAnswer(
            f"accessible_topology has the key {key[:80]!r}, which cannot be a label's; the node "
            "cannot be labeled with it"
        )
    if value and not _LABEL.fullmatch(value):
        raise BadCsiAnswer(
            f"accessible_topology has {value[:80]!r} for {key!r}, which cannot be a label's value; "
            "the node cannot be labeled with it"
        )


MAX_ENTRIES = 256
"""Entries of one answer about a volume's health that are read."""
MAX_CONDITIONS = 16
MAX_REASON, MAX_HEALTH_MESSAGE = 256, 1024
"""Bytes, as the API takes them."""
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_HEALTH = {
    csi.VolumeHealthErrorType.DEGRADED: "Degraded",
    csi.VolumeHealthErrorType.INACCESSIBLE: "Inaccessible",
    csi.VolumeHealthErrorType.DATA_LOSS: "DataLoss",
}
_STORAGE_HEALTH = {
    csi.StorageHealthErrorType.STORAGE_DEGRADED: "StorageDegraded",
    csi.StorageHealthErrorType.STORAGE_UNREACHABLE: "StorageUnreachable",
}
_MODE = csi.VolumeCapability.AccessMode
_ACCESS_MODES = {
    _MODE.SINGLE_NODE_WRITER: "ReadWriteOnce",
    _MODE.SINGLE_NODE_READER_ONLY: "ReadWriteOnce",
    _MODE.SINGLE_NODE_MULTI_WRITER: "ReadWriteOnce",
    _MODE.SINGLE_NODE_SINGLE_WRITER: "ReadWriteOncePod",
    _MODE.MULTI_NODE_READER_ONLY: "ReadOnlyMany",
    _MODE.MULTI_NODE_SINGLE_WRITER: "ReadWriteMany",
    _MODE.MULTI_NODE_MULTI_WRITER: "ReadWriteMany",
}


def volume_stats(answer: csi.NodeGetVolumeStatsResponse, *, condition: bool) -> VolumeStats:
    """NodeGetVolumeStats' answer; ``condition``: the driver reports health. Raises BadCsiAnswer."""
    if not answer.usage and not condition:
        raise BadCsiAnswer("it gives no usage")
    numbers: dict[str, int] = {}
    for usage in islice(answer.usage, MAX_USAGE):
        figures = (usage.total, usage.used, usage.available)
        if min(figures) < 0:
            fields = ("total", "used", "available")
            odd = next(f"{field} {n}" for field, n in zip(fields, figures, strict=True) if n < 0)
            raise BadCsiAnswer(f"it gives a usage below zero ({odd}); none of it is reported")
        if usage.unit == csi.VolumeUsage.BYTES:
            names = ("capacity_bytes", "used_bytes", "available_bytes")
        elif usage.unit == csi.VolumeUsage.INODES:
            names = ("inodes", "inodes_used", "inodes_free")
        else:
            continue
        numbers |= dict(zip(names, figures, strict=True))
    has_condition = condition and answer.HasField("volume_condition")
    return VolumeStats(
        **numbers,
        abnormal=answer.volume_condition.abnormal if has_condition else None,
        message=scrub(answer.volume_condition.message)[:1024] if has_condition else "",
    )


def volume_health(answer: csi.NodeGetVolumeHealthResponse) -> list[api.VolumeHealthCondition]:
    """NodeGetVolumeHealth's answer: at most MAX_CONDITIONS, each (status, reason) once.

    A reason that the API would refuse, and with it the pod's whole status, is left out.
    """
    found: dict[tuple[str, str], api.VolumeHealthCondition] = {}
    for entry in islice(answer.volume_health.health_statuses, MAX_ENTRIES):
        status = _HEALTH.get(entry.status)
        if status is None:
            continue
        reason = entry.reason if _is_reason(entry.reason) else ""
        found.setdefault(
            (status, reason),
            {"status": status, "reason": reason, "message": _health_message(entry.message)},
        )
        if len(found) == MAX_CONDITIONS:
            break
    return list(found.values())


def storage_health(answer: csi.NodeGetStorageHealthResponse) -> list[api.JSON]:
    """NodeGetStorageHealth's answer as conditions of a CSINode without times, each once.

    Raises BadCsiAnswer: the API would refuse it.
    """
    entries = answer.backend_health
    if len(entries) > MAX_CONDITIONS:
        raise BadCsiAnswer(
            f"it gives {len(entries)} conditions, and {MAX_CONDITIONS} can be reported"
        )
    found: dict[tuple[str, ...], api.JSON] = {}
    for entry in entries:
        status = _STORAGE_HEALTH.get(entry.status)
        if status is None:
            continue
        if not _is_reason(entry.reason):
            raise BadCsiAnswer(f"it gives {entry.reason[:80]!r} as the reason of {status}")
        condition: api.JSON = {"status": status, "reason": entry.reason}
        if entry.HasField("volume_capability"):
            condition |= _modes(entry.volume_capability)
        identity = tuple(condition.values())
        if entry.message:
            condition["message"] = _health_message(entry.message)
        found.setdefault(identity, condition)
    return list(found.values())


def _modes(capability: csi.VolumeCapability) -> dict[str, str]:
    """The modes of volumes that a condition affects. Raises BadCsiAnswer."""
    kind = capability.WhichOneof("access_type")
    mode = _ACCESS_MODES.get(capability.access_mode.mode)
    if kind is None or mode is None:
        lacks = "access_type" if kind is None else "access_mode that is known"
        raise BadCsiAnswer(f"it gives a volume_capability without an {lacks}")
    return {"accessMode": mode, "volumeMode": "Block" if kind == "block" else "Filesystem"}


def _is_reason(text: str) -> bool:
    return len(text) <= MAX_REASON and _REASON.fullmatch(text) is not None


def _health_message(text: str) -> str:
    cut = scrub(text[:MAX_HEALTH_MESSAGE]).encode()[:MAX_HEALTH_MESSAGE]
    return cut.decode(errors="ignore")


# The requests, made from the data of a volume.

_MULTI_NODE = {
    "ReadOnlyMany": _MODE.MULTI_NODE_READER_ONLY,
    "ReadWriteMany": _MODE.MULTI_NODE_MULTI_WRITER,
}
_SINGLE_NODE = {
    "ReadWriteOnce": _MODE.SINGLE_NODE_MULTI_WRITER,
    "ReadWriteOncePod": _MODE.SINGLE_NODE_SINGLE_WRITER,
}
"""For drivers that distinguish one writer from several on a node; others have a single mode."""


class VolumeAccess(Struct, frozen=True):
    """How a volume is used.

    Attributes:
        mode: Kubernetes' name of the access mode; inline volumes have ``ReadWriteOnce``.
        block: as a device; then the rest is empty.
        group: the pod's fsGroup, for drivers that apply it themselves.
    """

    mode: str = "ReadWriteOnce"
    block: bool = False
    fs_type: str = ""
    flags: tuple[str, ...] = ()
    group: int | None = None


def access_mode(name: str, *, multi_writer: bool) -> csi.VolumeCapability.AccessMode.Mode:
    """The CSI access mode.

    ``multi_writer``: the driver has SINGLE_NODE_MULTI_WRITER. Raises ValueError for an unknown
    mode.
    """
    if name in _MULTI_NODE:
        return _MULTI_NODE[name]
    if name not in _SINGLE_NODE:
        raise ValueError(f"access mode {name!r} is unknown")
    return _SINGLE_NODE[name] if multi_writer else _MODE.SINGLE_NODE_WRITER


def capability(access: VolumeAccess, *, multi_writer: bool) -> csi.VolumeCapability:
    """The volume capability of a request. Raises ValueError."""
    mode = _MODE(mode=access_mode(access.mode, multi_writer=multi_writer))
    if access.block:
        return csi.VolumeCapability(access_mode=mode, block=csi.VolumeCapability.BlockVolume())
    mount = csi.VolumeCapability.MountVolume(
        fs_type=access.fs_type,
        mount_flags=access.flags,
        volume_mount_group="" if access.group is None else str(access.group),
    )
    return csi.VolumeCapability(access_mode=mode, mount=mount)


class CsiVolume(HidesFields, Struct, frozen=True):
    """The volume data of stage and publish requests.

    Attributes:
        publish_context: the VolumeAttachment's attachmentMetadata.
        context: the attributes; for publish, also pod info and tokens.
        migrated: it is written as an in-tree kind (for metrics only).
    """

    handle: str
    access: VolumeAccess
    publish_context: Hidden[Mapping[str, str]] = field(default_factory=dict)
    context: Hidden[Mapping[str, str]] = field(default_factory=dict)
    secrets: Hidden[Mapping[str, str]] = field(default_factory=dict)
    migrated: bool = False


def stage(volume: CsiVolume, staging: str, *, multi_writer: bool) -> csi.NodeStageVolumeRequest:
    """The request of NodeStageVolume. Raises ValueError."""
    return csi.NodeStageVolumeRequest(
        volume_id=volume.handle,
        publish_context=volume.publish_context,
        staging_target_path=staging,
        volume_capability=capability(volume.access, multi_writer=multi_writer),
        secrets=volume.secrets,
        volume_context=volume.context,
    )


def publish(
    volume: CsiVolume, staging: str, target: str, *, read_only: bool, multi_writer: bool
) -> csi.NodePublishVolumeRequest:
    """The request of NodePublishVolume; ``staging`` empty: not staged. Raises ValueError."""
    return csi.NodePublishVolumeRequest(
        volume_id=volume.handle,
        publish_context=volume.publish_context,
        staging_target_path=staging,
        target_path=target,
        volume_capability=capability(volume.access, multi_writer=multi_writer),
        readonly=read_only,
        secrets=volume.secrets,
        volume_context=volume.context,
    )


def expand(
    volume: CsiVolume, path: str, staging: str, size: int, *, multi_writer: bool
) -> csi.NodeExpandVolumeRequest:
    """The request of NodeExpandVolume to ``size`` bytes. Raises ValueError."""
    return csi.NodeExpandVolumeRequest(
        volume_id=volume.handle,
        volume_path=path,
        capacity_range=csi.CapacityRange(required_bytes=size),
        staging_target_path=staging,
        volume_capability=capability(volume.access, multi_writer=multi_writer),
        secrets=volume.secrets,
    )
