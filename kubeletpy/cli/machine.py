"""Facts about this machine that settings depend on, and settings that do not fit it. Only reads."""

from __future__ import annotations

from pathlib import Path

from kubeletpy import config
from kubeletpy.base.text import lines
from kubeletpy.config.rules import parse_cpuset
from kubeletpy.node.guards.kernel_settings import compare, refusal
from kubeletpy.node.guards.sysctls import read_sysctls


def cgroup_version(root: Path = Path("/sys/fs/cgroup")) -> int:
    """2 where the unified hierarchy is mounted at the root, else 1 (also for hybrid setups)."""
    return 2 if (root / "cgroup.controllers").exists() else 1


def swap_on(swaps: Path = Path("/proc/swaps")) -> bool:
    """Whether any swap is in use; the file's first line is its heading."""
    try:
        return len(lines(swaps.read_text(errors="replace"))) > 1
    except OSError:
        return False


def online_cpus(path: Path = Path("/sys/devices/system/cpu/online")) -> frozenset[int] | None:
    """The online CPUs; None when the kernel does not report them."""
    try:
        return parse_cpuset(path.read_text().strip())
    except OSError:
        return None


def wrong_kernel_settings(directory: Path = Path("/proc/sys")) -> str:
    """Which kernel settings do not suit a node, and what to do about it; ``""``: none."""
    return refusal(compare(read_sysctls(directory)))


def problems_here(
    settings: config.KubeletSettings, flags: config.NodeFlags
) -> list[config.Problem]:
    """The reasons why settings and flags can't work on this machine."""
    problems = config.check_host(
        settings,
        cgroup_version=cgroup_version(),
        swap_on=swap_on(),
        online_cpus=online_cpus(),
    )
    if settings.protect_kernel_defaults and (why := wrong_kernel_settings()):
        problems.append(config.Problem("protectKernelDefaults", "true", why))
    path, bootstrap = flags.kubeconfig, flags.bootstrap_kubeconfig
    if path and not Path(path).is_file() and not bootstrap:
        problems.append(config.Problem("--kubeconfig", path, "no such file"))
    if bootstrap and not path:
        allowed = "only with --kubeconfig, which names the file to write"
        problems.append(config.Problem("--bootstrap-kubeconfig", bootstrap, allowed))
    return problems
