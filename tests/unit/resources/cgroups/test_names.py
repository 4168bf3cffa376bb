"""Paths of pod cgroups for both drivers, and names that are refused in a path."""

from __future__ import annotations

import pytest

from kubeletpy.pods.resources import QoSClass
from kubeletpy.resources.cgroups.values import (
    CgroupDriver,
    InvalidCgroupName,
    PodCgroupNames,
    parse_existing,
    parse_root,
    to_systemd,
)

UID = "8a1f-22"
TABLE = [
    ("cgroupfs", "/", QoSClass.GUARANTEED, "/kubepods/pod8a1f-22"),
    ("cgroupfs", "", QoSClass.BURSTABLE, "/kubepods/burstable/pod8a1f-22"),
    ("cgroupfs", "/a/b", QoSClass.BEST_EFFORT, "/a/b/kubepods/besteffort/pod8a1f-22"),
    ("systemd", "/", QoSClass.GUARANTEED, "/kubepods.slice/kubepods-pod8a1f_22.slice"),
    (
        "systemd",
        "/",
        QoSClass.BURSTABLE,
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8a1f_22.slice",
    ),
    (
        "systemd",
        "/my-nodes",
        QoSClass.BEST_EFFORT,
        "/my_nodes.slice/my_nodes-kubepods.slice/my_nodes-kubepods-besteffort.slice"
        "/my_nodes-kubepods-besteffort-pod8a1f_22.slice",
    ),
]


@pytest.mark.parametrize(("driver", "root", "quality", "path"), TABLE)
def test_the_path_of_a_pod_by_driver_and_class(
    driver: str, root: str, quality: QoSClass, path: str
) -> None:
    names = PodCgroupNames(CgroupDriver(driver), parse_root(root))
    assert names.pod(UID, quality) == path
    assert path.startswith(f"{names.group(quality)}/")
    assert names.pod_uid(path.rpartition("/")[2]) == UID


def test_the_groups() -> None:
    assert PodCgroupNames().kubepods == "/kubepods"
    assert PodCgroupNames(CgroupDriver.SYSTEMD).kubepods == "/kubepods.slice"
    assert to_systemd(()) == "/"


@pytest.mark.parametrize(
    "uid", ["", "..", "../x", "a/b", "a b", "a_b", "\0", "x" * 300, "-a", ".a"]
)
def test_a_hostile_uid_is_refused(uid: str) -> None:
    for driver in CgroupDriver:
        with pytest.raises(InvalidCgroupName):
            PodCgroupNames(driver).pod(uid, QoSClass.BURSTABLE)


@pytest.mark.parametrize("root", ["/..", "/a/../b", "/a b", "/x.slice"])
def test_an_invalid_root_is_refused(root: str) -> None:
    with pytest.raises(InvalidCgroupName):
        parse_root(root)


@pytest.mark.parametrize("path", ["", "/", "/..", "/a/../../b", "a/./b", "/a/b\0c"])
def test_a_reserved_cgroup_stays_in_the_hierarchy(path: str) -> None:
    with pytest.raises(InvalidCgroupName):
        parse_existing(path)
    assert parse_existing("system.slice/x") == "/system.slice/x"


@pytest.mark.parametrize(
    ("driver", "directory"),
    [
        ("cgroupfs", "burstable"),
        ("cgroupfs", "pod"),
        ("cgroupfs", "pod..%2f"),
        ("systemd", "kubepods-burstable.slice"),
        ("systemd", "kubepods-podX"),
        ("systemd", "crio-abc.scope"),
    ],
)
def test_other_directories_are_not_pod_cgroups(driver: str, directory: str) -> None:
    assert PodCgroupNames(CgroupDriver(driver)).pod_uid(directory) is None
