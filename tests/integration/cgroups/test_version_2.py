"""The kernel's own cgroup v2: groups, controllers handed down, limits, processes, the end.

Machines that use v1 have an empty v2 hierarchy beside it, with the controllers that no hierarchy of
v1 took (hugetlb for one). The unit tests compare the files of the others with an imitation of the
tree.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.resources.cgroups.filesystem import DELEGATED, CgroupFilesystem
from kubeletpy.resources.cgroups.values import CgroupBusy, CgroupResources
from tools.env.sweep import remove_cgroup
from tools.env.waiting import wait_until


@pytest.fixture
def hierarchy() -> Iterator[Path]:
    """Mount point of cgroup v2; its controllers are handed down as before when the test is over."""
    rows = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = next(Path(point) for _, point, kind, *_ in rows if kind == "cgroup2")
    control = found / "cgroup.subtree_control"
    before = control.read_text().split()
    yield found
    for name in set(control.read_text().split()) - set(before):
        control.write_text(f"-{name}")


@pytest.fixture
def root(hierarchy: Path) -> Iterator[str]:
    name = f"/kpt-v2-{os.urandom(3).hex()}"
    yield name
    assert remove_cgroup(name, kill=True) == []


def test_a_pods_group_from_its_making_to_its_end(hierarchy: Path, root: str) -> None:
    offered = (hierarchy / "cgroup.controllers").read_text().split()
    supplied = {name for name in offered if name in DELEGATED}
    assert supplied, "this machine's v2 hierarchy has no controller that pods get"
    files = CgroupFilesystem(2, dict.fromkeys(offered, hierarchy), ())
    group, pod = f"{root}/kubepods/burstable", f"{root}/kubepods/burstable/pod1"
    files.create(group, CgroupResources(), group=True)
    limits = CgroupResources(hugepages={"2MB": 4 << 20}, pids=50, memory=64 << 20, shares=100)
    files.create(pod, limits)
    for path in (root, f"{root}/kubepods", group):
        handed = (hierarchy / path.strip("/") / "cgroup.subtree_control").read_text().split()
        assert set(handed) == supplied
    assert files.children(group) == {"pod1"}
    if "hugetlb" in offered:
        assert files.read_file(pod, "hugetlb", "hugetlb.2MB.max") == str(4 << 20)
    container = f"{pod}/container"  # as a runtime makes it
    files.create(container, CgroupResources())
    directory = hierarchy / container.strip("/")
    process = subprocess.Popen(["sleep", "600"])
    try:
        (directory / "cgroup.procs").write_text(str(process.pid))
        assert files.remove(container) is False
        wait_until(lambda: _removed(files, pod), "the pod's cgroup is removed", timeout=5)
        assert process.wait(10) == -9
    finally:
        process.kill()
    assert not directory.parent.exists()
    assert files.children(group) == set()


def _removed(files: CgroupFilesystem, path: str) -> bool:
    try:
        files.remove_tree(path)
    except CgroupBusy:
        return False
    return True
