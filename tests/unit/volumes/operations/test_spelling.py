"""One volume known under two names."""

from __future__ import annotations

import pytest

from kubeletpy.volumes.claims.model import PublishedOnDisk, StagedOnDisk
from kubeletpy.volumes.operations.model import PodMount, Presence, Volume, canonical, spelled

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
    ("names", "busy"),
    [([], []), (["x"], []), ([WRITTEN], [FOUND]), ([WRITTEN, FOUND], [])],
)
def test_volumes_that_keep_their_name(names: list[str], busy: list[str]) -> None:
    assert spelled({FOUND: volume(FOUND)}, names, busy) == {FOUND: volume(FOUND)}


def test_no_volume_replaces_another() -> None:
    both = {FOUND: volume(FOUND), WRITTEN: volume(WRITTEN)}
    assert spelled(both, [WRITTEN]) == both
