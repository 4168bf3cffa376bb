"""Volumes that an earlier agent has left, and their owners."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.volumes.claims.model import (
    FailureOutcome,
    Found,
    OperationFailed,
    PublishedOnDisk,
    StagedOnDisk,
)
from kubeletpy.volumes.operations.model import (
    Backoffs,
    Failure,
    Key,
    OperationKind,
    PodMount,
    Presence,
    Volume,
    canonical,
    recognized,
    reconstructed,
    spelled,
)

MOUNT = PublishedOnDisk("csi", "d^h", "u1", "pv", "/pods/u1/pv/mount", driver="d", handle="h")
STAGED = StagedOnDisk("csi", "d^h", "/key/globalmount", driver="d", handle="h")
NAMELESS = replace(MOUNT, unique_name="u1-pv", driver="", handle="", damaged="no file")
NAMELESS_STAGED = replace(STAGED, unique_name="d^key", driver="", handle="", damaged="no file")
HALF = Volume("d^h", "csi", {"u1": PodMount(MOUNT, Presence.UNCERTAIN, found=True)})


def left(*found: Any) -> dict[str, Volume]:
    published = tuple(each for each in found if isinstance(each, PublishedOnDisk))
    staged = tuple(each for each in found if isinstance(each, StagedOnDisk))
    return reconstructed({}, "csi", Found(published, staged))


def reported(actual: dict[str, Volume]) -> dict[str, tuple[list[str], bool]]:
    """Name -> the pods that have it, and whether it is staged; without those with nothing."""
    return {
        name: (sorted(volume.pods), volume.staged is not None)
        for name, volume in actual.items()
        if volume.pods or volume.staged
    }


@pytest.mark.parametrize(
    ("found", "is_then"),
    [
        ((NAMELESS,), {"d^h": (["u1"], False)}),
        ((NAMELESS_STAGED,), {"d^h": ([], True)}),
        ((NAMELESS, NAMELESS_STAGED), {"d^h": (["u1"], True)}),
        ((MOUNT, NAMELESS_STAGED), {"d^h": (["u1"], True)}),
        ((MOUNT, STAGED), {"d^h": (["u1"], True)}),
        ((replace(NAMELESS, pod_uid="u2"),), {"u1-pv": (["u2"], False)}),
        ((replace(NAMELESS, path="/another"),), {"u1-pv": (["u1"], False)}),
        ((replace(NAMELESS, damaged=""),), {"u1-pv": (["u1"], False)}),
        ((replace(NAMELESS_STAGED, path="/another"),), {"d^key": ([], True)}),
        ((replace(NAMELESS_STAGED, damaged=""),), {"d^key": ([], True)}),
    ],
)
def test_a_volume_without_a_name_is_recognized_by_its_path(found: Any, is_then: Any) -> None:
    assert reported(recognized(left(*found), MOUNT, STAGED)) == is_then


def test_a_recognized_volume_is_taken_down_by_its_driver() -> None:
    assert recognized(left(NAMELESS, NAMELESS_STAGED), MOUNT, STAGED) == {
        "u1-pv": Volume("u1-pv", "csi"),
        "d^key": Volume("d^key", "csi"),
        "d^h": replace(HALF, device=Presence.UNCERTAIN, staged=STAGED, device_found=True),
    }


def test_own_volumes_are_not_recognized_as_left_by_another_agent() -> None:
    own = PodMount(NAMELESS, Presence.UNCERTAIN)
    actual = {
        "u1-pv": Volume("u1-pv", "csi", {"u1": own}),
        "d^key": Volume("d^key", "csi", {}, Presence.UNCERTAIN, NAMELESS_STAGED),
    }
    assert recognized(actual, MOUNT, STAGED) == actual


def test_all_that_is_found_of_a_volume_is_one_volume() -> None:
    other = replace(MOUNT, pod_uid="u2")
    both = {
        "u1": PodMount(MOUNT, Presence.UNCERTAIN, found=True),
        "u2": PodMount(other, Presence.UNCERTAIN, found=True),
    }
    found = Volume("d^h", "csi", both, Presence.UNCERTAIN, STAGED, device_found=True)
    assert left(MOUNT, other, STAGED) == {"d^h": found}
    assert reconstructed(left(STAGED, MOUNT), "csi", Found((other,), ())) == {"d^h": found}


def test_known_volumes_stay() -> None:
    there = PodMount(MOUNT, Presence.THERE)
    actual = left(NAMELESS) | {"d^h": Volume("d^h", "csi", {"u1": there})}
    assert recognized(actual, MOUNT, STAGED)["d^h"].pods == {"u1": there}
    staged = Volume("d^h", "csi", {}, Presence.THERE, STAGED)
    actual = left(NAMELESS_STAGED) | {"d^h": staged}
    assert recognized(actual, MOUNT, STAGED) == {"d^key": Volume("d^key", "csi"), "d^h": staged}


# When an operation on a volume is retried (docs/reference/behaviour-storage.md, sd2).

ONE: Key = ("vol", "uid")
ERROR = OperationFailed(next(iter(FailureOutcome)), "disk is full", call="NodeStageVolume")


def test_each_wait_is_twice_the_one_before_up_to_two_minutes() -> None:
    backoffs = Backoffs()
    waits = []
    for _ in range(2000):
        backoffs.failed((OperationKind.STAGE, ONE), ERROR, "d", 10.0)
        waits.append(backoffs.failures[OperationKind.STAGE, ONE].retry_at - 10.0)
    assert waits[:10] == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122]
    assert set(waits[10:]) == {122.0}


def test_failures_are_counted_from_the_first_in_a_row() -> None:
    backoffs = Backoffs()
    backoffs.failed((OperationKind.STAGE, ONE), ERROR, "d", 10.0)
    backoffs.failed((OperationKind.STAGE, ONE), ERROR, "d", 20.0)
    assert backoffs.failures == {
        (OperationKind.STAGE, ONE): Failure("disk is full", "NodeStageVolume", 2, 21.0, 10.0)
    }
    # another operation on the volume resets all of them
    backoffs.failed((OperationKind.UNSTAGE, ONE), ERROR, "d", 30.0)
    assert backoffs.failures == {
        (OperationKind.UNSTAGE, ONE): Failure("disk is full", "NodeStageVolume", 1, 30.5, 30.0)
    }
    assert backoffs.ended(OperationKind.STAGE, ONE) is None
    assert backoffs.failures == {}


def test_a_driver_that_changed_may_be_tried_at_once() -> None:
    def failed() -> Backoffs:
        made = Backoffs()
        for name, driver in (("a", "d"), ("b", "e"), ("c", "d")):
            made.failed((OperationKind.STAGE, (name, "uid")), ERROR, driver, 0.0)
        return made

    for driver, left in (("d", ["b"]), ("e", ["a", "c"]), ("f", ["a", "b", "c"]), ("", [])):
        backoffs = failed()
        backoffs.driver_changed(driver)
        assert [name for _, (name, _) in backoffs.failures] == left
        backoffs.driver_changed("")
        assert backoffs.failures == {}


def test_why_a_volume_could_not_be_taken_from_a_pod() -> None:
    backoffs = Backoffs()
    backoffs.failed((OperationKind.UNSTAGE, ("a", "uid")), ERROR, "d", 0.0)
    backoffs.failed((OperationKind.UNPUBLISH, ("b", "other")), ERROR, "d", 0.0)
    assert backoffs.of_unpublish("uid") is None
    backoffs.failed((OperationKind.UNPUBLISH, ("c", "uid")), ERROR, "d", 5.0)
    assert backoffs.of_unpublish("uid") is backoffs.failures[OperationKind.UNPUBLISH, ("c", "uid")]


# One volume known under two names.

FOUND = "kubernetes.io/iscsi/10.0.0.1:3260:iqn.2026-01.test:one:2"
WRITTEN = "kubernetes.io/iscsi/10.0.0.1:iqn.2026-01.test:one:2"


@pytest.mark.parametrize(
    ("one", "same"),
    [
        (WRITTEN, FOUND),
        (FOUND, FOUND),
        (
            "kubernetes.io/iscsi/[fd00::1]:iqn.2026-01.test:one:2",
            "kubernetes.io/iscsi/[fd00::1]:3260:iqn.2026-01.test:one:2",
        ),
        (WRITTEN.replace("10.0.0.1", "10.0.0.1:99"), WRITTEN.replace("10.0.0.1", "10.0.0.1:99")),
        ("kubernetes.io/fc/[a b-c]", "kubernetes.io/fc/[a_b_c]"),
        ("kubernetes.io/fc/[a b]:1", "kubernetes.io/fc/[a_b]:1"),
        ("kubernetes.io/csi/d^a b:iqn.x", "kubernetes.io/csi/d^a b:iqn.x"),
    ],
)
def test_one_name_for_all(one: str, same: str) -> None:
    assert canonical(one) == same


def volume(name: str, *, with_stage: bool = True) -> Volume:
    left = PublishedOnDisk("kubernetes.io/iscsi", name, "u1", "pv1", "/pod")
    staged = StagedOnDisk("kubernetes.io/iscsi", name, "/global") if with_stage else None
    pods = {"u1": PodMount(left, Presence.UNCERTAIN, found=True)}
    return Volume(name, "kubernetes.io/iscsi", pods, Presence.UNCERTAIN, staged)


def test_a_found_volume_gets_the_name_from_the_spec() -> None:
    other = volume("other")
    there = spelled({FOUND: volume(FOUND), "other": other}, [WRITTEN])
    assert there == {WRITTEN: volume(WRITTEN), "other": other}
    assert there["other"] is other
    bare = spelled({FOUND: volume(FOUND, with_stage=False)}, [WRITTEN])
    assert bare == {WRITTEN: volume(WRITTEN, with_stage=False)}


@pytest.mark.parametrize(
    ("names", "busy"), [([], []), (["x"], []), ([WRITTEN], [FOUND]), ([WRITTEN, FOUND], [])]
)
def test_volumes_that_keep_their_name(names: list[str], busy: list[str]) -> None:
    assert spelled({FOUND: volume(FOUND)}, names, busy) == {FOUND: volume(FOUND)}


def test_no_volume_replaces_another() -> None:
    both = {FOUND: volume(FOUND), WRITTEN: volume(WRITTEN)}
    assert spelled(both, [WRITTEN]) == both
