"""Volumes that the end of a pod waits for."""

from __future__ import annotations

from kubeletpy.base.structs import replace
from kubeletpy.volumes.claims.model import PublishedOnDisk, VolumeWait, WaitCause, Waits
from kubeletpy.volumes.operations.model import (
    Failure,
    Operation,
    OperationKind,
    PodMount,
    Presence,
    Volume,
)
from kubeletpy.volumes.operations.plan import ending_waits

ABOUT, CALL = 'volume "d^h"', "NodeUnpublishVolume of driver d"
MOUNT = PublishedOnDisk("csi", "d^h", "u1", "pv", "/p", driver="d")
VOLUME = Volume("d^h", "csi", {"u1": PodMount(MOUNT, Presence.THERE)})
TAKEN = Operation(OperationKind.UNPUBLISH, "d^h", "csi", "", "u1", mount=MOUNT, whole=False)
FAILED = Failure("busy", CALL, 2, 30.0, 20.0)


def waits(
    *under_way: tuple[Operation, float], failures: dict[OperationKind, Failure] | None = None
) -> list[VolumeWait]:
    known = {(kind, ("d^h", "u1")): failure for kind, failure in (failures or {}).items()}
    return list(ending_waits("u1", {"d^h": VOLUME}, under_way, known))


def test_a_wait_for_a_running_operation() -> None:
    busy = Waits(WaitCause.BUSY, ABOUT, f"{CALL} is under way", CALL)
    expected = [VolumeWait("pv", busy, 7.0, "d")]
    assert waits((TAKEN, 7.0)) == expected
    assert waits((TAKEN, 7.0), failures={OperationKind.UNPUBLISH: FAILED}) == expected


def test_a_wait_for_a_failed_operation() -> None:
    later = Waits(WaitCause.BACKOFF, ABOUT, "busy", CALL, 30.0)
    assert waits(failures={OperationKind.UNPUBLISH: FAILED}) == [VolumeWait("pv", later, 20.0, "d")]


def test_other_operations_and_pods_are_no_wait() -> None:
    assert waits() == []
    assert waits(failures={OperationKind.PUBLISH: FAILED}) == []
    assert waits((replace(TAKEN, kind=OperationKind.PUBLISH), 7.0)) == []
    assert waits((replace(TAKEN, pod_uid="u2"), 7.0)) == []
    assert list(ending_waits("u2", {"d^h": VOLUME}, [(TAKEN, 7.0)], {})) == []
    removed = [(replace(TAKEN, pod_uid="u2"), 7.0)]
    assert list(ending_waits("u2", {"d^h": VOLUME}, removed, {})) == []
