"""Whether settings fit the machine: rules over facts that other code has read. Pure."""

from __future__ import annotations

from kubeletpy.config.problems import Problem
from kubeletpy.config.rules import parse_cpuset
from kubeletpy.config.settings import KubeletSettings


def check_host(
    settings: KubeletSettings,
    *,
    cgroup_version: int,
    swap_on: bool = False,
    online_cpus: frozenset[int] | None = None,
) -> list[Problem]:
    """The reasons why these settings can't work on this machine; empty: none.

    Args:
        settings: the agent's.
        cgroup_version: 1 (also for hybrid set-ups) or 2.
        swap_on: whether any swap is in use.
        online_cpus: the machine's CPUs; None when not known.

    Source: docs/reference/config.csv: failCgroupV1, singleProcessOOMKill, memorySwap.swapBehavior,
    failSwapOn, reservedSystemCPUs.
    """
    problems = []
    if cgroup_version == 1:
        if settings.fail_cgroup_v1:
            allowed = "this machine uses cgroup v1: boot it with cgroup v2, or set it to false"
            problems.append(Problem("failCgroupV1", "true", allowed))
        if settings.single_process_oom_kill is False:
            allowed = "must not be false on cgroup v1"
            problems.append(Problem("singleProcessOOMKill", "false", allowed))
        if settings.memory_swap.swap_behavior == "LimitedSwap":
            problems.append(Problem("memorySwap.swapBehavior", "LimitedSwap", "needs cgroup v2"))
    if swap_on and settings.fail_swap_on:
        allowed = "this machine has swap on: turn it off (swapoff -a), or set it to false"
        problems.append(Problem("failSwapOn", "true", allowed))
    if settings.reserved_system_cpus and online_cpus is not None:
        missing = (parse_cpuset(settings.reserved_system_cpus) or frozenset()) - online_cpus
        if missing:
            names = ",".join(str(cpu) for cpu in sorted(missing))
            value, allowed = settings.reserved_system_cpus, f"CPUs not online here: {names}"
            problems.append(Problem("reservedSystemCPUs", value, allowed))
    return problems
