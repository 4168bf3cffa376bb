"""The kernel's cgroup limits on this machine, read once at the start. Reads files only."""

from __future__ import annotations

from pathlib import Path

from kubeletpy.cgroups.detect import MOUNT_POINT
from kubeletpy.host import selinux
from kubeletpy.host.kernel_text import number
from kubeletpy.structs import Struct

_UNITS = ((1 << 20, "GB"), (1 << 10, "MB"), (1, "KB"))
"""Kibibytes -> unit, as cgroups name page sizes."""


class KernelFacts(Struct, frozen=True):
    """Facts that sandbox and container configs and pods' cgroups depend on."""

    cgroup_v2: bool = False
    swap_controller: bool = False
    """Whether memory cgroups can limit swap."""
    hugepage_sizes: tuple[str, ...] = ()
    """``2MB``, ``1GB``; none where no controller counts them."""
    thermal_throttle_paths: tuple[str, ...] = ()
    max_pids: int = 0
    """The maximum number of processes; 0: unknown."""
    apparmor: bool = False
    selinux_label: str = ""
    """The SELinux label that files of containers have; empty: the kernel labels nothing."""


def read_kernel_facts(root: Path = Path("/")) -> KernelFacts:
    """Read the facts below ``root``; anything unreadable counts as absent."""
    mounted = root / MOUNT_POINT.relative_to("/")
    controllers = _text(mounted / "cgroup.controllers")
    v2 = (mounted / "cgroup.controllers").is_file()
    if v2:
        swap = any(mounted.glob("*/memory.swap.max"))
        counts_pages = "hugetlb" in controllers.split()
    else:
        swap = (mounted / "memory" / "memory.memsw.limit_in_bytes").exists()
        counts_pages = (mounted / "hugetlb").is_dir()
    throttles = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle"))
    return KernelFacts(
        cgroup_v2=v2,
        swap_controller=swap,
        hugepage_sizes=_page_sizes(root) if counts_pages else (),
        thermal_throttle_paths=tuple(f"/{path.relative_to(root)}" for path in throttles),
        max_pids=_max_pids(root),
        apparmor=_text(root / "sys/module/apparmor/parameters/enabled").startswith("Y"),
        selinux_label=selinux.file_label(root),
    )


def _page_sizes(root: Path) -> tuple[str, ...]:
    found = []
    for entry in (root / "sys/kernel/mm/hugepages").glob("hugepages-*kB"):
        kibibytes = entry.name.removeprefix("hugepages-").removesuffix("kB")
        if (size := number(kibibytes)) is not None:
            found.append(size)
    return tuple(_page_size(size) for size in sorted(found))


def _page_size(kibibytes: int) -> str:
    unit, name = next((u, n) for u, n in _UNITS if kibibytes >= u and kibibytes % u == 0)
    return f"{kibibytes // unit}{name}"


def _max_pids(root: Path) -> int:
    reported = [
        number(_text(root / "proc/sys/kernel" / name)) for name in ("threads-max", "pid_max")
    ]
    return min((limit for limit in reported if limit is not None), default=0)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
