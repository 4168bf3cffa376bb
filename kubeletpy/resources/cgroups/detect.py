"""Which cgroup hierarchies this machine has, and where. Reads only; must never mount anything."""

from __future__ import annotations

from pathlib import Path

from kubeletpy.resources.cgroups.errors import CgroupsUnavailable
from kubeletpy.resources.cgroups.filesystem import CgroupFilesystem

MOUNT_POINT = Path("/sys/fs/cgroup")


def detect(mount_point: Path = MOUNT_POINT) -> CgroupFilesystem:
    """The hierarchies below a mount point, with whatever layout it has.

    v1 mixed with an empty v2 tree ("hybrid") is v1.

    Raises:
        CgroupsUnavailable: none are mounted, or one that is needed is missing.
    """
    if (mount_point / "cgroup.controllers").is_file():
        version = 2
        others: tuple[Path, ...] = ()
        offered = (mount_point / "cgroup.controllers").read_text().split()
        found = dict.fromkeys(offered, mount_point)
    else:
        version = 1
        found, others = _hierarchies(mount_point)
    missing = [name for name in ("cpu", "memory") if name not in found]
    if missing:
        raise CgroupsUnavailable(
            f"no cgroup controller {' or '.join(missing)} at {mount_point}: mount the cgroup file "
            "systems, or set cgroupsPerQOS to false and enforceNodeAllocatable to [none]"
        )
    return CgroupFilesystem(version, found, others)


def _hierarchies(mount_point: Path) -> tuple[dict[str, Path], tuple[Path, ...]]:
    """v1: controller -> hierarchy, and the hierarchies without a controller (systemd, unified)."""
    found: dict[str, Path] = {}
    others: list[Path] = []
    try:
        entries = sorted(entry for entry in mount_point.iterdir() if entry.is_dir())
    except OSError:
        entries = []
    for entry in entries:
        if entry.is_symlink() or not (entry / "cgroup.procs").exists():
            continue
        if entry.name in ("systemd", "unified"):
            others.append(entry)
        for name in entry.name.split(","):
            found[name] = entry
    return found, tuple(others)
