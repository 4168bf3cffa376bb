"""The order of a preflight: finds the kubelet, loads its settings, collects the findings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.agent.launch.runtime import resolve_auto
from kubeletpy.agent.takeover.preflight.checks import KubeletChoice, choose, with_flags
from kubeletpy.agent.takeover.preflight.findings import (
    Area,
    Finding,
    KubeletFound,
    PreflightReport,
    Severity,
)
from kubeletpy.agent.takeover.preflight.kubelets import (
    UnitMissing,
    find_kubelets,
    kubelet_units,
    read_process,
    read_unit,
    system_bus,
)
from kubeletpy.agent.takeover.preflight.node import connect_api, query_node
from kubeletpy.agent.takeover.preflight.settings import (
    check_credentials,
    load_settings,
    read_flags,
    read_state,
)
from kubeletpy.agent.takeover.preflight.unit_command import UnitError
from kubeletpy.base.clock import SystemClock
from kubeletpy.base.kubernetes_version import supported
from kubeletpy.base.structs import Struct
from kubeletpy.config import NodeFlags
from kubeletpy.config.load import Check
from kubeletpy.config.version_choice import ResolvedVersion, decide
from kubeletpy.kubeapi.protocol import KubeApi

if TYPE_CHECKING:
    from kubeletpy.base.host.dbus import Bus

DEFAULT_UNIT = "kubelet.service"
ANSWER_S = 30.0
"""Seconds for the API server's version. No start waits for it, as in :mod:`kubeletpy.agent.launch`,
and without it the report is unclear."""


class Options(Struct, frozen=True):
    """Options of the user.

    Attributes:
        unit: of the kubelet; empty: kubelet.service, else another unit that starts a kubelet.
        pid: the process of the kubelet; 0: the one that runs.
        flags: of the kubelet; they win over those found.
        only_flags: use these flags alone.
    """

    unit: str = ""
    pid: int = 0
    flags: tuple[str, ...] = ()
    only_flags: bool = False


async def gather(options: Options, check: Check | None = None) -> PreflightReport:
    """The report about this node. ``check``: finds settings that do not fit the machine."""
    choice = await find_kubelet(options)
    findings = [*choice.findings]
    if choice.kubelet is None:
        return PreflightReport(None, tuple(findings))
    flags, problems = read_flags(choice.kubelet)
    findings += problems
    if flags is None:
        return PreflightReport(choice.kubelet, tuple(findings))
    async with AsyncExitStack() as stack:
        kube_api, problem = await connect_api(flags.node, stack)
        findings += [] if problem is None else [problem]
        resolved = await resolve_version(flags.node, kube_api)
        loaded = await asyncio.to_thread(load_settings, flags, check, resolved.version)
        findings += loaded.findings
        if loaded.config is None:
            return PreflightReport(choice.kubelet, tuple(findings))
        settings, node, now = loaded.config.settings, loaded.config.node, SystemClock().now()
        findings += await asyncio.to_thread(check_credentials, settings, node, now)
        findings += await asyncio.to_thread(read_state, settings, node)
        answers = await query_node(loaded.config, resolved, kube_api, stack)
    findings += answers.findings
    return PreflightReport(choice.kubelet, tuple(findings), answers.pods, resolved)


async def resolve_version(flags: NodeFlags, kube_api: KubeApi | None) -> ResolvedVersion:
    """The version that the agent would run as."""
    requested = supported(flags.kubernetes_version)
    if requested is not None or kube_api is None:
        return decide(requested, None, None)
    return await resolve_auto(flags, kube_api, ANSWER_S)


async def find_kubelet(
    options: Options,
    root: Path = Path("/"),
    proc: Path = Path("/proc"),
    systemd: Callable[[], AbstractAsyncContextManager[Bus]] = system_bus,
) -> KubeletChoice:
    """The kubelet of this node. ``root``, ``proc``: where the machine's files are."""
    if options.only_flags:
        return with_flags(KubeletChoice(None), options.flags)
    if options.pid:
        process = read_process(options.pid, proc)
        if process is None:
            what = "there is no such process"
            lost = Finding(Area.KUBELET, Severity.UNCLEAR, f"--pid {options.pid}", what)
            return KubeletChoice(None, (lost,))
        processes = [process]
    else:
        processes = await asyncio.to_thread(find_kubelets, proc)
    name = options.unit or DEFAULT_UNIT
    if options.unit:
        processes = [each for each in processes if each.unit in ("", name)]
    unit, problem, others = None, "", list[str]()
    try:
        async with systemd() as bus:
            unit, problem = await _unit(bus, name, root, desired=bool(options.unit))
            if not options.unit and not options.pid:
                others = [each for each in await kubelet_units(bus) if each != name]
            if unit is None and not problem and len(others) == 1:
                unit, problem = await _unit(bus, others.pop(), root, desired=True)
    except UnitMissing as error:
        problem = str(error) if options.unit else ""
    except UnitError as error:
        problem = str(error)
    return with_flags(choose(processes, unit, problem, others), options.flags)


async def _unit(
    bus: Bus, name: str, root: Path, *, desired: bool
) -> tuple[KubeletFound | None, str]:
    try:
        return await read_unit(bus, name, root), ""
    except UnitMissing as error:
        return None, str(error) if desired else ""
    except UnitError as error:
        return None, str(error)
