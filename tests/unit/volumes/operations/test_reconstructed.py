"""Volumes that an earlier agent has left, and their owners."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.volumes.claims.model import Found, PublishedOnDisk, StagedOnDisk
from kubeletpy.volumes.operations.model import PodMount, Presence, Volume, recognized, reconstructed

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
