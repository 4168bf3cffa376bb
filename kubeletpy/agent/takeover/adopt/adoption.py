"""The order in which a node is taken over from its kubelet, or returned to it.

The front door: a command parses its options, lets a person confirm (:class:`Operator`) and prints.
Everything else about the node begins here; :mod:`.run` carries the steps out.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from kubeletpy.agent.takeover.adopt.host import (
    HostError,
    NodeSettings,
    SystemdHost,
    read_node,
    running_agent,
)
from kubeletpy.agent.takeover.adopt.run import (
    AdoptionTask,
    Answers,
    Journal,
    NodeObserver,
    Runner,
    Say,
    is_healthy,
)
from kubeletpy.agent.takeover.adopt.steps import (
    NAME,
    AdoptionStep,
    PodSeen,
    UnitProgram,
    WatchLimits,
    WatchVerdict,
    agent_command,
    drop_in_text,
    plain_pods,
    read_pods,
)
from kubeletpy.agent.takeover.preflight import findings
from kubeletpy.agent.takeover.preflight.checks import Process
from kubeletpy.agent.takeover.preflight.findings import HARMED, KubeletFound, PodOutcome, PodVerdict
from kubeletpy.agent.takeover.preflight.gather import DEFAULT_UNIT, Options, gather
from kubeletpy.agent.takeover.preflight.node import connect_api
from kubeletpy.agent.takeover.preflight.unit_file import is_kubelet
from kubeletpy.agent.takeover.preflight.unit_paths import exec_start, read_process
from kubeletpy.base.clock import Clock, SystemClock
from kubeletpy.base.structs import Struct
from kubeletpy.config.load import Check
from kubeletpy.config.version_choice import ResolvedVersion, VersionSource
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.node.server_version import write_version_record

MOST_NAMED = 10
"""Pods that are named in one sentence."""

RefusedStatuses = Callable[[Path, Clock, Sequence[str]], tuple[str, ...]]
"""Returns those pods (namespace/name) whose status the API does not accept, with the reason, by the
agent with that root directory."""


class AdoptionRefused(Exception):
    """The node is not taken over; nothing has been changed."""


class Operator(Struct, frozen=True):
    """The person who runs the command.

    Attributes:
        report: shows progress.
        confirm: has the person confirm, for a node's name, that it is taken over or given back.
            Raises AdoptionRefused.
    """

    report: Say
    confirm: Callable[[str, str], None]


class AdoptOptions(Struct, frozen=True):
    """The parameters of an adoption.

    Attributes:
        program: path of the program that the unit is to start.
        deployed: the drop-in of ``deploy/``.
        check: finds settings that do not fit the machine.
        refused: reads which statuses the API does not accept.
        unit: the kubelet's unit.
        watch_s: seconds for which the node is watched.
        despite_preflight: go on although preflight does not call it safe.
    """

    program: str
    deployed: str
    check: Check
    refused: RefusedStatuses
    unit: str = DEFAULT_UNIT
    watch_s: float = 600.0
    despite_preflight: bool = False


async def adopt(options: AdoptOptions, operator: Operator, journal: Journal) -> WatchVerdict:
    """Take the node over and watch it; returns the verdict of the watch.

    Raises:
        AdoptionRefused, UnitError, UnitMissing, DropInError: nothing has been changed.
        HostError: a step failed, and returning the node to its kubelet failed, too.
    """
    unit, program = options.unit, checked_program(options.program)
    host, clock = SystemdHost(unit), SystemClock()
    seen = await asyncio.to_thread(host.unit)
    command = agent_command(exec_start(unit, NAME), program)
    text = drop_in_text(options.deployed, command)
    harmed: frozenset[str] = frozenset()
    version: ResolvedVersion | None = None
    if seen.running is UnitProgram.NOTHING:
        raise AdoptionRefused(f"unit {unit} does not run: start it first")
    if seen.running is UnitProgram.KUBELET:
        # what a run left that was killed before it restarted the unit
        await Runner(host, not_checked, journal, clock, operator.report).give_back(
            "before adopting"
        )
        harmed, version = await preflight(options, operator)
    process = read_process(seen.pid)
    found = running_agent(seen.pid) if seen.running is UnitProgram.AGENT else _kubelet(process)
    node = await asyncio.to_thread(read_node, found)
    operator.confirm(node.name, "take it over")
    async with AsyncExitStack() as stack:
        kube_api, problem = await connect_api(node.config.node, stack)
        if kube_api is None:
            why = "it has no kubeconfig" if problem is None else problem.text
            raise AdoptionRefused(f"the node can't be watched: {why}")
        root = Path(node.config.node.root_dir)
        refused = partial(options.refused, root, clock)
        observer = NodeObserver(kube_api, node.name, host, clock, refused)
        try:
            pods = await observer.pods()
        except (ApiError, TimeoutError) as error:
            raise AdoptionRefused(
                f"the node can't be watched: its pods can't be listed: {error}"
            ) from error
        record_version(version, root)
        before = _baseline(journal, pods, harmed, resumed=seen.running is UnitProgram.AGENT)
        journal.write(clock.now(), "before", node=node.name, unit=unit, pods=plain_pods(before))
        back = [program, "give-back", "--yes", "--unconfirmed", f"--unit={unit}"]
        task = AdoptionTask(observer, text, back, before, WatchLimits(options.watch_s))
        return await Runner(host, _answers(node), journal, clock, operator.report).adopt(task)


async def give_back(
    unit: str, operator: Operator, journal: Journal, *, unconfirmed: bool = False
) -> bool:
    """Give the node back; returns whether the kubelet has it.

    Args:
        unconfirmed: only if no watch has confirmed the agent.

    Raises:
        AdoptionRefused: nothing has been changed.
        HostError: a step failed.
    """
    host = SystemdHost(unit)
    seen = await asyncio.to_thread(host.unit)
    check: Answers = not_checked
    name = os.uname().nodename
    if seen.running is UnitProgram.AGENT:
        try:
            node = await asyncio.to_thread(read_node, running_agent(seen.pid))
            name, check = node.name, _answers(node)
        except HostError as error:
            # the way back must not need them
            operator.report(f"the agent's settings can't be read: {error}")
    operator.confirm(name, "give it back")
    why = "no watch has confirmed the agent" if unconfirmed else "it was requested"
    runner = Runner(host, check, journal, SystemClock(), operator.report)
    steps = await runner.give_back(why, unconfirmed=unconfirmed)
    if AdoptionStep.RELOAD not in steps:
        operator.report("nothing to do")
        return True
    seen = await asyncio.to_thread(host.unit)
    operator.report(f"unit {unit} runs {seen.running}")
    return seen.running is UnitProgram.KUBELET


def checked_program(path: str) -> str:
    """The program that the unit is to start. Raises AdoptionRefused."""
    if is_kubelet(path) or path.endswith(".py") or not os.access(path, os.X_OK):
        raise AdoptionRefused(f"{path} is not the program kubeletpy: name it with --program")
    return path


async def preflight(
    options: AdoptOptions, operator: Operator
) -> tuple[frozenset[str], ResolvedVersion | None]:
    """The pods that may be restarted, as namespace/name, and the version that the agent is to have.

    Raises AdoptionRefused.
    """
    report = await gather(Options(options.unit), options.check)
    if report.safe:
        operator.report(findings.summary(report))
        return frozenset(), report.version
    operator.report(findings.text(report).removesuffix("\n"))
    if not options.despite_preflight or report.kubelet is None:
        raise AdoptionRefused(_why_unsafe(report.pods or ()))
    harmed = {
        f"{each.namespace}/{each.name}" for each in report.pods or () if each.outcome in HARMED
    }
    return frozenset(harmed), report.version


def _why_unsafe(pods: Sequence[PodVerdict]) -> str:
    """Why the node is not taken over, and what to do about pods that would not be admitted."""
    refused = [
        f"{each.namespace}/{each.name}" for each in pods if each.outcome is PodOutcome.REFUSED
    ]
    if not refused:
        return "preflight does not call it safe; nothing was changed"
    names = ", ".join(refused[:MOST_NAMED]) + (", ..." if len(refused) > MOST_NAMED else "")
    return (
        f"the agent would not admit {len(refused)} of the node's pods, which would end: {names}. "
        "A restart of the kubelet ends them, too. Correct what the report names for each, or use "
        "--despite-preflight to let them end; nothing was changed"
    )


def record_version(resolved: ResolvedVersion | None, root: Path) -> None:
    """Record the API server's version for the agent's first start, which waits 3 s for it.

    Without it, on a node that is slow or runs its own API server, the agent would be the oldest
    version until its next start.
    """
    if resolved is not None and resolved.source is VersionSource.SERVER:
        write_version_record(resolved.version, root)


def _kubelet(process: Process | None) -> KubeletFound:
    if process is None:
        raise AdoptionRefused("the kubelet has just exited")
    if process.contained:
        raise AdoptionRefused(
            f"process {process.pid} runs in a container: it can't be replaced by a unit"
        )
    source = f"process {process.pid}"
    return KubeletFound(source, process.command[0], process.command[1:], process.directory)


def _baseline(
    journal: Journal, pods: Mapping[str, PodSeen], harmed: frozenset[str], *, resumed: bool
) -> dict[str, PodSeen]:
    """The pods that must go on; those of the previous run if that was killed."""
    if resumed:
        last = next((each for each in reversed(journal.entries()) if "pods" in each), None)
        if last is not None:
            return read_pods(last["pods"])
    return {identity: pod for identity, pod in pods.items() if pod.key not in harmed}


def _answers(node: NodeSettings) -> Answers:
    """Whether the node's program answers its health check."""
    settings = node.config.settings
    return partial(is_healthy, settings.healthz_bind_address, settings.healthz_port)


async def not_checked() -> bool:
    """Count as an answer where nothing is restarted, or the settings are not known."""
    return True
