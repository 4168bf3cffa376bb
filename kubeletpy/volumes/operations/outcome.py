"""The state of a volume after an operation on it ended. Pure.

Something that may exist stays so until it is made or torn down for certain. The kubelet forgets it
when a later attempt fails for good; but a later attempt that did nothing proves nothing about the
earlier one. Source: docs/reference/behaviour-storage.md, sg.
"""

from __future__ import annotations

from kubeletpy.base.structs import Struct, replace
from kubeletpy.volumes.claims.on_disk import (
    FailureOutcome,
    Published,
    PublishedOnDisk,
    StagedOnDisk,
)
from kubeletpy.volumes.operations.model import Operation, OperationKind, PodMount, Presence, Volume
from kubeletpy.volumes.operations.plan import expansion_of


class OperationDone(Struct, frozen=True):
    """An operation succeeded."""

    published: Published | None = None
    size: int = 0
    """The volume's size in bytes now; 0: unknown."""


class Left(Struct, frozen=True):
    """Where an operation puts its result, successful or not."""

    mount: PublishedOnDisk | None = None
    staged: StagedOnDisk | None = None


def after(
    volume: Volume | None,
    operation: Operation,
    result: OperationDone | FailureOutcome,
    left: Left,
    now: float,
) -> Volume:
    """The volume as it is, or may be, now. ``now`` is event-loop time."""
    if volume is None:
        volume = Volume(operation.unique_name, operation.plugin)
    if operation.spec is not None:
        volume = replace(volume, attachable=volume.attachable or operation.spec.attachable)
    match operation.kind:
        case OperationKind.STAGE:
            return _after_stage(volume, result, left)
        case OperationKind.UNSTAGE:
            if isinstance(result, OperationDone):
                return replace(volume, device=Presence.ABSENT, staged=None, device_found=False)
            return replace(volume, device=Presence.UNCERTAIN)
        case OperationKind.UNPUBLISH:
            return _after_unpublish(volume, operation, result)
        case OperationKind.EXPAND:
            if not isinstance(result, OperationDone):
                return volume
            asked = expansion_of(operation.spec) if operation.spec is not None else None
            return replace(volume, size=result.size or volume.size, expanded_for=asked)
        case OperationKind.PUBLISH | OperationKind.REPUBLISH:
            return _after_publish(volume, operation, result, left, now)


def _after_stage(volume: Volume, result: OperationDone | FailureOutcome, left: Left) -> Volume:
    if isinstance(result, OperationDone):
        return replace(volume, device=Presence.THERE, staged=left.staged, device_found=False)
    if result is FailureOutcome.UNCERTAIN:
        return replace(volume, device=Presence.UNCERTAIN, staged=left.staged)
    return volume


def _after_unpublish(
    volume: Volume, operation: Operation, result: OperationDone | FailureOutcome
) -> Volume:
    pods = dict(volume.pods)
    mount = pods.pop(operation.pod_uid, None)
    if not isinstance(result, OperationDone) and mount is not None:
        pods[operation.pod_uid] = replace(mount, state=Presence.UNCERTAIN)
    held = volume.expansion_held and bool(pods)
    return replace(volume, pods=pods, expansion_held=held)


def _after_publish(
    volume: Volume,
    operation: Operation,
    result: OperationDone | FailureOutcome,
    left: Left,
    now: float,
) -> Volume:
    pods, uid = dict(volume.pods), operation.pod_uid
    before = pods.get(uid)
    if isinstance(result, OperationDone):
        assert left.mount is not None, "what is published has a place"
        pods[uid] = PodMount(left.mount, Presence.THERE, False, result.published, now)
        return replace(volume, pods=pods, size=result.size or volume.size)
    if before is not None and before.state is Presence.THERE:
        return volume  # a running pod keeps its volume; it is retried later
    if result is FailureOutcome.UNCERTAIN and left.mount is not None:
        found = before is not None and before.found
        pods[uid] = PodMount(left.mount, Presence.UNCERTAIN, found)
    return replace(volume, pods=pods)
