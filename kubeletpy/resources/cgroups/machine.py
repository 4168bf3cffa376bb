"""The kernel's cgroup limits on this machine, read once at the start. Reads files only."""

from __future__ import annotations

from pathlib import Path

from kubeletpy.base.host import machine
from kubeletpy.base.structs import Struct
from kubeletpy.base.text import number
from kubeletpy.pods.resources import page_size_name
from kubeletpy.resources.cgroups.detect import MOUNT_POINT


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
        selinux_label=machine.file_label(root),
    )


def _page_sizes(root: Path) -> tuple[str, ...]:
    entries = (root / "sys/kernel/mm/hugepages").glob("hugepages-*kB")
    kibibytes = (
        number(each.name.removeprefix("hugepages-").removesuffix("kB")) for each in entries
    )
    sizes = sorted(each * 1024 for each in kibibytes if each is not None)
    return tuple(map(page_size_name, sizes))


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
