"""Facts about a container in the kernel's files: counters and its main process, v1 and v2."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.node.stats.group_files import GroupFiles
from kubeletpy.observe.explain.death_watch import CgroupCounters
from tests.kit.clocks import SetClock

POD, ID = "/kubepods/podu-1", "a" * 64


def counters(root: Path, version: int, name: str = ID) -> CgroupCounters:
    """A container with processes 41 (a shell's child), 40 (the main one) and 50 (an exec)."""
    group = root / "memory" / POD[1:] / name
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text("41\n40\n50\n")
    file = "memory.oom_control" if version == 1 else "memory.events"
    (group / file).write_text("low 0\nunder_oom 0\noom 7\noom_kill 3\n")
    for pid, parent, started in ((40, 9, 100), (41, 40, 90), (50, 9, 200)):
        stat = root / "proc" / str(pid) / "stat"
        stat.parent.mkdir(parents=True)
        rest = ["S", str(parent), *["0"] * 17, str(started), "0"]
        stat.write_text(f"{pid} (a) R 1 (b) {' '.join(rest)}")
    files = GroupFiles(version, {"memory": root / "memory"}, SetClock())
    return CgroupCounters(files, lambda uid: POD if uid == "u-1" else None, root / "proc")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", [ID, f"cri-containerd-{ID}.scope", f"crio-{ID}.scope"])
def test_the_counter_and_the_main_process(tmp_path: Path, version: int, name: str) -> None:
    found = counters(tmp_path, version, name)
    path = found.find("u-1", ID)
    assert path == f"{POD}/{name}"
    assert (found.oom_kills(path), found.main_process(path)) == (3, 40)
    assert found.alive(40)
    assert not found.alive(39)


def test_what_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    found = counters(tmp_path, 2)
    assert found.find("u-2", ID) == ""
    assert found.find("u-1", "b" * 64) == ""
    assert found.oom_kills("") is None
    assert found.main_process("/nowhere") is None
    none = CgroupCounters(None, lambda uid: POD)
    assert (none.find("u-1", ID), none.oom_kills(POD), none.main_process(POD)) == ("", None, None)
