"""Processes that are moved into systemCgroups and kubeletCgroups, by the kernel.

All daemons of this machine are in no cgroup, and a test must not move them: cgroups of the test's
own stand for the roots of the hierarchies.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.node.guards.at_start import DaemonCgroups
from kubeletpy.resources.cgroups.filesystem import CgroupFilesystem, ProcessGroups
from tools.env import kernel_limits as kernel

NAMES = ("cpu", "memory", "pids")


@pytest.fixture
def roots() -> Iterator[dict[str, Path]]:
    """A cgroup in each hierarchy, and what was made in it removed."""
    found = {name: kernel.hierarchy(name) / f"kpt-roots-{os.getpid()}" for name in NAMES}
    for path in set(found.values()):
        path.mkdir()
    try:
        yield found
    finally:
        for path in set(found.values()):
            for made in (*path.iterdir(), path):
                if made.is_dir():
                    made.rmdir()


@contextlib.contextmanager
def _daemon(roots: dict[str, Path], below: str = "") -> Iterator[int]:
    child = subprocess.Popen(["sleep", "60"])
    try:
        for root in roots.values():
            (root / below).mkdir(exist_ok=True)
            (root / below / "cgroup.procs").write_text(str(child.pid))
        yield child.pid
    finally:
        child.kill()
        child.wait()


def _members(roots: dict[str, Path], below: str) -> list[set[int]]:
    texts = [(root / below / "cgroup.procs").read_text() for root in roots.values()]
    return [{int(pid) for pid in text.split()} for text in texts]


def test_only_processes_in_no_cgroup_are_moved(roots: dict[str, Path]) -> None:
    groups = ProcessGroups(CgroupFilesystem(kernel.VERSION, roots, ()))
    with _daemon(roots) as one, _daemon(roots) as agent, _daemon(roots, "others") as kept:
        daemons = DaemonCgroups(
            groups, kubelet="/agent", system="/system", proc=Path("/proc"), own=agent
        )
        daemons.move_system()
        assert _members(roots, "system") == [{one}] * len(NAMES)
        assert _members(roots, "") == [{agent}] * len(NAMES)
        daemons.move_own()
        daemons.move_system()
        assert _members(roots, "agent") == [{agent}] * len(NAMES)
        assert _members(roots, "system") == [{one}] * len(NAMES)
        assert _members(roots, "others") == [{kept}] * len(NAMES)
        assert groups.in_none() == set()
