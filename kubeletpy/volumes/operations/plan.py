"""Plans the next volume operations, and determines what each pod waits for. Pure.

Every plan guarantees two things: nothing is taken from a pod unless its own end was requested, and
nothing is unstaged that a pod has, may have or needs. An unreadable claim causes no teardown. The
state of a volume after an operation, and the patches of an expanded claim, are derived here too.
Source: docs/reference/behaviour-storage.md, sa1, sd1, sd2, sg, so2, so3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from kubeletpy.base.api import quantity
from kubeletpy.base.structs import Struct, replace
from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.operations.model import (
    Expansion,
    Facts,
    Failure,
    Operation,
    OperationKind,
    OperationsPlan,
    PodDemand,
    PodMount,
    Presence,
    Tried,
    Volume,
)

REPUBLISH_S = 60.0
"""Between two publishes of a volume that needs republishing; the kubelet does it with each sync, 60
to 90 s apart.
"""


def plan(
    demands: Iterable[PodDemand], actual: Mapping[str, Volume], facts: Facts, now: float
) -> OperationsPlan:
    """The operations to start now, and what each volume waits for. ``now`` is event-loop time."""
    return _Planner(demands, actual, facts, now).plan()


def backs_off(about: str, failure: Failure) -> claims.Waits:
    """The wait for the next attempt of an operation that failed."""
    retry_at, cause = failure.retry_at, failure.cause
    return claims.Waits(
        claims.WaitCause.BACKOFF, about, failure.message, failure.call, retry_at, cause
    )


def under_way(about: str, operation: Operation) -> claims.Waits:
    """The wait for an operation in progress."""
    why = f"{operation.call} is under way"
    return claims.Waits(claims.WaitCause.BUSY, about, why, operation.call)


def is_published(volume: Volume | None, uid: str) -> bool:
    """Whether a pod has a volume for certain."""
    mount = volume.pods.get(uid) if volume is not None else None
    return mount is not None and mount.state is Presence.THERE


def pv_size(spec: claims.VolumeSpec) -> int:
    """The size that a volume should have by its PersistentVolume, in bytes; 0: unknown."""
    capacity = ((spec.pv or {}).get("spec") or {}).get("capacity") or {}
    return _bytes(capacity.get("storage"))


def claimed_size(spec: claims.VolumeSpec) -> int:
    """The size that a volume has by its claim's status, in bytes; 0: unknown."""
    capacity = ((spec.claim or {}).get("status") or {}).get("capacity") or {}
    return _bytes(capacity.get("storage"))


def requested_size(spec: claims.VolumeSpec) -> int:
    """Bytes that a claim's user requests; 0: none."""
    resources = ((spec.claim or {}).get("spec") or {}).get("resources") or {}
    return _bytes((resources.get("requests") or {}).get("storage"))


def expansion_of(spec: claims.VolumeSpec) -> Expansion:
    """The inputs of an expansion; while they stay the same, one expansion is enough."""
    status = (spec.claim or {}).get("status") or {}
    sizes, states = (
        str((status.get(key) or {}).get("storage") or "")
        for key in ("allocatedResources", "allocatedResourceStatuses")
    )
    return pv_size(spec), claimed_size(spec), sizes, states


def _bytes(text: object) -> int:
    try:
        return max(0, quantity.value(str(text)))  # None is no quantity either
    except ValueError:
        return 0


class _Planner:
    def __init__(
        self, demands: Iterable[PodDemand], actual: Mapping[str, Volume], facts: Facts, now: float
    ) -> None:
        self._demands = sorted(demands, key=lambda demand: demand.uid)
        self._ending = {demand.uid for demand in self._demands if demand.ending}
        self._actual = actual
        self._facts = facts
        self._now = now
        self._operations: list[Operation] = []
        self._waits: dict[tuple[str, str], claims.Waits] = {}
        self._forgotten: list[str] = []
        self._times: list[float] = []
        self._desired: dict[str, dict[str, claims.VolumeSpec]] = {}
        for demand in self._demands:
            for spec in () if demand.ending else demand.specs:
                self._desired.setdefault(spec.unique_name, {})[demand.uid] = spec
        self._unread = any(
            wait.cause is claims.WaitCause.UNREAD
            for demand in self._demands
            for wait in demand.waits.values()
        )

    def plan(self) -> OperationsPlan:
        for demand in self._demands:
            if not demand.ending:
                self._waits |= {(demand.uid, name): wait for name, wait in demand.waits.items()}
        for name in sorted(self._desired.keys() | self._actual.keys()):
            volume = self._actual.get(name)
            if volume is not None:
                self._take_down(volume)
            for uid, spec in self._desired.get(name, {}).items():
                there = volume or Volume(spec.unique_name, spec.plugin)
                wait = self._set_up(there, uid, spec)
                if wait is not None:
                    self._record_wait(uid, name, wait)
        return OperationsPlan(
            tuple(self._operations),
            self._waits,
            tuple(self._forgotten),
            min(self._times, default=None),
        )

    def _record_wait(self, uid: str, unique_name: str, wait: claims.Waits) -> None:
        """Record a wait for each of a pod's names for one volume."""
        for demand in self._demands:
            if demand.uid == uid:
                for spec in demand.specs:
                    if spec.unique_name == unique_name:
                        self._waits[(uid, spec.pod_volume)] = wait

    # -- taking down -------------------------------------------------------------------------

    def _take_down(self, volume: Volume) -> None:
        name = volume.unique_name
        for uid in sorted(volume.pods.keys() & self._ending):
            self._start(
                Operation(
                    OperationKind.UNPUBLISH,
                    name,
                    volume.plugin,
                    "the pod's containers have exited",
                    uid,
                    mount=volume.pods[uid].left,
                    whole=False,
                )
            )
        if volume.pods or any(key[0] == name for key in self._facts.running):
            return
        if name in self._desired:
            if all(_labeled_otherwise(volume, spec) for spec in self._desired[name].values()):
                self._unstage(volume, "a pod needs it with another SELinux label")
            return
        if volume.device is Presence.ABSENT or volume.staged is None:
            self._forgotten.append(name)
        elif not volume.device_found or (self._facts.leftovers_judged and not self._unread):
            self._unstage(volume, "no pod of this node has or needs the volume")

    def _unstage(self, volume: Volume, why: str) -> None:
        name, kind = volume.unique_name, OperationKind.UNSTAGE
        self._start(Operation(kind, name, volume.plugin, why, staged=volume.staged))

    # -- setting up --------------------------------------------------------------------------

    def _set_up(self, volume: Volume, uid: str, spec: claims.VolumeSpec) -> claims.Waits | None:
        """Plan the next step for a pod's volume; returns what it waits for, None: it is ready."""
        mount = volume.pods.get(uid)
        if mount is not None and mount.state is Presence.THERE:
            self._keep(volume, mount, uid, spec)
            return None
        if spec.access_modes == claims.SOLE_MODE and (other := _other(volume, uid)):
            # the kubelet's wording
            message = (
                "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
            )
            return claims.Waits(claims.WaitCause.SOLE_USER, f'pod with uid "{other}"', message)
        if (blocked := self._facts.blocked.get(spec.unique_name)) is not None:
            return blocked
        attachment = self._facts.attachments.get(spec.unique_name)
        if isinstance(attachment, claims.Waits):
            return attachment
        if mount is None and _labeled_otherwise(volume, spec):
            about = f'volume "{spec.unique_name}"'
            failure = self._facts.failures.get((OperationKind.UNSTAGE, (spec.unique_name, "")))
            if failure is not None and not volume.pods:
                return backs_off(about, failure)
            text = "waiting for unmount: it is mounted with a different SELinux label"
            return claims.Waits(claims.WaitCause.SELINUX_CONFLICT, about, text)
        if spec.device_mountable and volume.device is not Presence.THERE:
            why = "a pod needs the volume, and it is not staged"
            return self._start(self._operation(OperationKind.STAGE, mount, uid, spec, why))
        why = "the pod needs the volume"
        if mount is not None:
            why = "whether the pod has the volume is not certain"
        return self._start(self._operation(OperationKind.PUBLISH, mount, uid, spec, why))

    def _keep(self, volume: Volume, mount: PodMount, uid: str, spec: claims.VolumeSpec) -> None:
        """Expand or republish a volume that is ready."""
        target = pv_size(spec)
        held = volume.expansion_held or volume.expanded_for == expansion_of(spec)
        if 0 < volume.size < target and not held and not spec.read_only:
            why = f"the PersistentVolume has {target} bytes, the volume {volume.size}"
            self._start(self._operation(OperationKind.EXPAND, mount, uid, spec, why))
        if spec.unique_name not in self._facts.republished:
            return
        due = mount.at + REPUBLISH_S
        if self._now < due:
            self._times.append(due)
            return
        if spec.unique_name in self._facts.blocked:
            return
        if isinstance(self._facts.attachments.get(spec.unique_name), claims.Waits):
            return
        why = "the driver requests it periodically (requiresRepublish)"
        self._start(self._operation(OperationKind.REPUBLISH, mount, uid, spec, why))

    def _operation(
        self,
        kind: OperationKind,
        mount: PodMount | None,
        uid: str,
        spec: claims.VolumeSpec,
        why: str,
    ) -> Operation:
        whole = spec.device_mountable or spec.attachable or kind is OperationKind.EXPAND
        left = mount.left if mount is not None else None
        return Operation(kind, spec.unique_name, spec.plugin, why, uid, spec, left, whole=whole)

    # -- starting ----------------------------------------------------------------------------

    def _start(self, operation: Operation) -> claims.Waits:
        """Plan an operation unless it must wait; returns what it waits for."""
        about = f'volume "{operation.unique_name}"'
        other = next(self._conflicts(operation), None)
        if other is not None:
            return under_way(about, other)
        failure = self._facts.failures.get((operation.kind, operation.key))
        if failure is not None and self._now < failure.retry_at:
            self._times.append(failure.retry_at)
            return backs_off(about, failure)
        self._operations.append(operation)
        return under_way(about, operation)

    def _conflicts(self, operation: Operation) -> Iterator[Operation]:
        for other in (*self._facts.running.values(), *self._operations):
            if other.unique_name != operation.unique_name:
                continue
            if other.whole or operation.whole or other.pod_uid == operation.pod_uid:
                yield other


def _labeled_otherwise(volume: Volume, spec: claims.VolumeSpec) -> bool:
    """Whether a volume is, or may be, staged with another SELinux context than the desired one."""
    if volume.device is Presence.ABSENT or volume.staged is None:
        return False
    return volume.staged.selinux_context != (spec.selinux_context or "")


def _other(volume: Volume, uid: str) -> str:
    """Another pod that has, or may have, a volume."""
    return next((other for other in volume.pods if other != uid), "")


# The state of a volume after an operation on it ended (table sg).
#
# Something that may exist stays so until it is made or torn down for certain. The kubelet forgets
# it when a later attempt fails for good; but a later attempt that did nothing proves nothing
# about the earlier one.


class OperationDone(Struct, frozen=True):
    """The result of an operation that succeeded."""

    published: claims.Published | None = None
    size: int = 0
    """The volume's size in bytes now; 0: unknown."""
    held: bool = False
    """Its driver refuses to expand it while it is in use."""


class Left(Struct, frozen=True):
    """Where an operation puts its result, successful or not."""

    mount: claims.PublishedOnDisk | None = None
    staged: claims.StagedOnDisk | None = None


def after(
    volume: Volume | None,
    operation: Operation,
    result: OperationDone | claims.FailureOutcome,
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
            requested = expansion_of(operation.spec) if operation.spec is not None else None
            return replace(_sized(volume, result), expanded_for=requested)
        case OperationKind.PUBLISH | OperationKind.REPUBLISH:
            return _after_publish(volume, operation, result, left, now)


def _sized(volume: Volume, done: OperationDone) -> Volume:
    held = volume.expansion_held or done.held
    return replace(volume, size=done.size or volume.size, expansion_held=held)


def _after_stage(
    volume: Volume, result: OperationDone | claims.FailureOutcome, left: Left
) -> Volume:
    if isinstance(result, OperationDone):
        return replace(volume, device=Presence.THERE, staged=left.staged, device_found=False)
    if result is claims.FailureOutcome.UNCERTAIN:
        return replace(volume, device=Presence.UNCERTAIN, staged=left.staged)
    return volume


def _after_unpublish(
    volume: Volume, operation: Operation, result: OperationDone | claims.FailureOutcome
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
    result: OperationDone | claims.FailureOutcome,
    left: Left,
    now: float,
) -> Volume:
    pods, uid = dict(volume.pods), operation.pod_uid
    before = pods.get(uid)
    if isinstance(result, OperationDone):
        assert left.mount is not None, "a published volume has a path"
        pods[uid] = PodMount(left.mount, Presence.THERE, False, result.published, now)
        return replace(_sized(volume, result), pods=pods)
    if before is not None and before.state is Presence.THERE:
        return volume  # a running pod keeps its volume; it is retried later
    if result is claims.FailureOutcome.UNCERTAIN and left.mount is not None:
        found = before is not None and before.found
        pods[uid] = PodMount(left.mount, Presence.UNCERTAIN, found)
    return replace(volume, pods=pods)


def ending_waits(
    uid: str,
    actual: Mapping[str, Volume],
    running: Iterable[tuple[Operation, float]],
    failures: Mapping[Tried, Failure],
) -> Iterator[claims.VolumeWait]:
    """The volumes of a terminating pod that still wait to be torn down, and for which call.

    ``running``: each operation, and when it began in event-loop time.
    """
    begun = {each.key: (each, at) for each, at in running if each.kind is OperationKind.UNPUBLISH}
    for volume in actual.values():
        mount, key = volume.pods.get(uid), (volume.unique_name, uid)
        if mount is None:
            continue
        about = f'volume "{volume.unique_name}"'
        failure = failures.get((OperationKind.UNPUBLISH, key))
        if key in begun:
            operation, at = begun[key]
            wait = under_way(about, operation)
            yield claims.VolumeWait(mount.left.spec_name, wait, at, mount.left.driver)
        elif failure is not None:
            wait = backs_off(about, failure)
            yield claims.VolumeWait(mount.left.spec_name, wait, failure.at, mount.left.driver)


# Whether a volume is expanded on this node, and the status of its claim (tables so2, so3).

NOT_REQUIRED = "volume.kubernetes.io/node-expansion-not-required"
_ENDED = ("Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError")


class Flow(StrEnum):
    """The action to take for a claim."""

    LEGACY = "legacy"
    """Expand, then report it in the claim; nobody tracks the resize."""
    RECOVERY = "recovery"
    """Expand, with the states of recovery from expansion failure."""
    EXPAND_ONLY = "expand only"
    """Expand, and leave the claim unchanged: another node has reported it already."""
    NOTHING = "nothing"
    """It is done."""
    WAIT = "wait"
    """Not this node's turn."""


def flow(spec: claims.VolumeSpec) -> tuple[Flow, int]:
    """The action for a claim that shows less than its volume should have, and the size in bytes."""
    claim = spec.claim or {}
    status = claim.get("status") or {}
    states, sizes = status.get("allocatedResourceStatuses"), status.get("allocatedResources")
    if not states and not sizes:
        return Flow.LEGACY, pv_size(spec)
    size = pv_size(spec)
    if (allocated := (sizes or {}).get("storage")) is not None:
        size = _bytes(allocated)
    state = (states or {}).get("storage") or ""
    if not state and claimed_size(spec) >= size:
        notes = (claim.get("metadata") or {}).get("annotations") or {}
        if "ReadWriteMany" in spec.access_modes and NOT_REQUIRED not in notes:
            return Flow.EXPAND_ONLY, size
        return Flow.NOTHING, size
    if state in ("NodeResizePending", "NodeResizeInProgress"):
        return Flow.RECOVERY, size
    return Flow.WAIT, size


def in_progress(claim: Mapping[str, Any]) -> dict[str, Any]:
    """The patch for a claim whose file system is about to grow."""
    return {
        "metadata": {"resourceVersion": claim["metadata"].get("resourceVersion")},
        "status": {"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}},
    }


def finished(claim: Mapping[str, Any], size: str) -> dict[str, Any]:
    """The patch for a claim whose volume has ``size``, a quantity."""
    status: dict[str, Any] = {
        "capacity": {"storage": size},
        "conditions": [{"type": kind, "$patch": "delete"} for kind in _ENDED],
    }
    if (claim.get("status") or {}).get("allocatedResourceStatuses"):
        status["allocatedResourceStatuses"] = {"storage": None}
    return {
        "metadata": {"resourceVersion": claim["metadata"].get("resourceVersion")},
        "status": status,
    }


def failed(message: str, now: str, *, infeasible: bool) -> dict[str, Any]:
    """The patch for a claim whose volume could not grow; ``now`` as the API writes times."""
    condition = {
        "type": "NodeResizeError",
        "status": "True",
        "lastTransitionTime": now,
        "message": message,
    }
    status: dict[str, Any] = {"conditions": [condition]}
    if infeasible:
        status["allocatedResourceStatuses"] = {"storage": "NodeResizeInfeasible"}
    return {"status": status}
