"""Interprets drivers' answers and errors; drivers may answer anything. Pure.

Imports the CSI messages: load it with the first driver. Must never wait or keep anything. Source:
docs/reference/behaviour-storage.md, sg, sk, so3, sr.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.api.scrub import scrub
from kubeletpy.remote.errors import Code
from kubeletpy.remote.generated import csi_pb2 as csi
from kubeletpy.structs import Struct, field
from kubeletpy.volumes.on_disk import Outcome, VolumeStats
from kubeletpy.volumes.operation import ExpansionProblem

MAX_NODE_ID = 256
"""Bytes. Source: the CSI's own limit for a node_id."""
MAX_SEGMENTS = 64
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
_INFEASIBLE = frozenset({Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE, Code.NOT_FOUND})


class BadAnswer(ValueError):
    """A driver's answer contradicts itself or the CSI; the text says how."""


class NodeInfo(Struct, frozen=True):
    """A node as a driver sees it."""

    node_id: str
    max_volumes: int | None = None
    """None: the driver sets no limit."""
    topology: Mapping[str, str] = field(default_factory=dict)
    odd: str = ""
    """The parts of the answer that were rejected, for the log."""


def outcome_of(code: Code, *, answered: bool) -> Outcome:
    """What a failed call implies for the volume (table sg)."""
    return Outcome.UNCERTAIN if code in _UNCERTAIN or not answered else Outcome.FINAL


def expansion_problem(code: Code, *, answered: bool) -> ExpansionProblem:
    """What a failed NodeExpandVolume implies for the expansion (table so3)."""
    if answered and code is Code.FAILED_PRECONDITION:
        return ExpansionProblem.IN_USE
    if answered and code in _INFEASIBLE:
        return ExpansionProblem.INFEASIBLE
    if outcome_of(code, answered=answered) is Outcome.FINAL:
        return ExpansionProblem.REFUSED
    return ExpansionProblem.OTHER


def capabilities(answer: csi.NodeGetCapabilitiesResponse) -> frozenset[int]:
    """The numbers of the capabilities that a driver reports."""
    return frozenset(each.rpc.type for each in answer.capabilities if each.HasField("rpc"))


def node_info(answer: csi.NodeGetInfoResponse) -> NodeInfo:
    """NodeGetInfo's answer. Raises BadAnswer."""
    if not answer.node_id:
        raise BadAnswer("it gives no node_id")
    if len(answer.node_id.encode()) > MAX_NODE_ID or not answer.node_id.isprintable():
        raise BadAnswer("what it gives as node_id cannot be one")
    segments = dict(answer.accessible_topology.segments)
    if len(segments) > MAX_SEGMENTS:
        raise BadAnswer(f"it gives more than {MAX_SEGMENTS} topology segments")
    count, odd = answer.max_volumes_per_node, ""
    if count < 0:
        odd = f"max_volumes_per_node is {count}"
    limit = min(count, _INT32_MAX) if count > 0 else None
    return NodeInfo(answer.node_id, limit, segments, odd)


def volume_stats(answer: csi.NodeGetVolumeStatsResponse, *, condition: bool) -> VolumeStats:
    """NodeGetVolumeStats' answer; ``condition``: the driver reports health. Raises BadAnswer."""
    if not answer.usage and not condition:
        raise BadAnswer("it gives no usage")
    numbers: dict[str, int] = {}
    for usage in answer.usage:
        figures = (usage.total, usage.used, usage.available)
        if min(figures) < 0:
            raise BadAnswer("it gives a usage below zero")
        if usage.unit == csi.VolumeUsage.BYTES:
            names = ("capacity_bytes", "used_bytes", "available_bytes")
        elif usage.unit == csi.VolumeUsage.INODES:
            names = ("inodes", "inodes_used", "inodes_free")
        else:
            continue
        numbers |= dict(zip(names, figures, strict=True))
    given = condition and answer.HasField("volume_condition")
    return VolumeStats(
        **numbers,
        abnormal=answer.volume_condition.abnormal if given else None,
        message=scrub(answer.volume_condition.message)[:1024] if given else "",
    )
