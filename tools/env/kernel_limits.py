"""Limits and usage of a cgroup as the kernel has them, with cgroup v1 and with v2."""

from __future__ import annotations

from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
VERSION = 2 if (CGROUPS / "cgroup.controllers").exists() else 1
NO_LIMIT = -1
MEMORY_LIMIT_FILE, QUOTA_FILE, SHARES_FILE = (
    ("memory.max", "cpu.max", "cpu.weight")
    if VERSION == 2
    else ("memory.limit_in_bytes", "cpu.cfs_quota_us", "cpu.shares")
)


def hierarchy(controller: str) -> Path:
    """Mount point of the hierarchy that has a controller."""
    return CGROUPS if VERSION == 2 else (CGROUPS / controller).resolve()


def hierarchies(*controllers: str) -> list[Path]:
    """Mount points of the hierarchies that have these controllers: with version 2 the one."""
    return list(dict.fromkeys(hierarchy(name) for name in controllers))


def file_in_container(name: str) -> str:
    """Path at which a container sees a file of its own cgroup, such as ``memory.max``."""
    folder = "" if VERSION == 2 else f"{name.partition('.')[0]}/"
    return f"/sys/fs/cgroup/{folder}{name}"


def cgroup_of(pid: int, controller: str = "memory") -> str:
    """Path of the cgroup in which a process is."""
    rows = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    desired = "" if VERSION == 2 else controller
    return next(path for _, names, path in rows if desired in names.split(","))


def read(path: str, name: str) -> str:
    """The text of a file of a cgroup."""
    return (hierarchy(name.partition(".")[0]) / path.strip("/") / name).read_text().strip()


def memory_limit(path: str) -> int:
    """Bytes; version 1 has a large number for no limit, version 2 -1."""
    text = read(path, MEMORY_LIMIT_FILE)
    return NO_LIMIT if text == "max" else int(text)


def working_set(path: str) -> int:
    """Bytes of memory in use, without file pages that the kernel reclaims first."""
    used, inactive = (
        ("memory.current", "inactive_file")
        if VERSION == 2
        else ("memory.usage_in_bytes", "total_inactive_file")
    )
    rows = dict(line.split(" ") for line in read(path, "memory.stat").splitlines())
    return int(read(path, used)) - int(rows[inactive])


def quota(path: str) -> int:
    """Microseconds of CPU in a period of 100 ms; -1: no limit."""
    text = read(path, QUOTA_FILE).split()[0]
    return NO_LIMIT if text == "max" else int(text)


def shares(path: str) -> int:
    """Its part of the CPUs, to compare with :func:`kept_shares`."""
    return int(read(path, SHARES_FILE))


def kept_shares(shares: int) -> int:
    """The kernel's number for shares: with version 2 a weight of 1 to 10,000.

    Source: KEP-2254, the runtimes' formula.
    """
    return 1 + (shares - 2) * 9_999 // 262_142 if VERSION == 2 else shares
