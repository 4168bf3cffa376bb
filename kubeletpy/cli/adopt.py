"""``kubeletpy adopt``: takes over the node of a running kubelet, and watches it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
from collections.abc import Mapping, Sequence
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
    entry_text,
    is_healthy,
)
from kubeletpy.agent.takeover.adopt.steps import (
    NAME,
    DropInError,
    UnitProgram,
    agent_command,
    drop_in_text,
)
from kubeletpy.agent.takeover.adopt.watch import (
    PodSeen,
    WatchLimits,
    WatchOutcome,
    plain_pods,
    read_pods,
)
from kubeletpy.agent.takeover.preflight import findings
from kubeletpy.agent.takeover.preflight.checks import Process
from kubeletpy.agent.takeover.preflight.findings import HARMED, KubeletFound, PodOutcome, PodVerdict
from kubeletpy.agent.takeover.preflight.gather import DEFAULT_UNIT, Options, gather
from kubeletpy.agent.takeover.preflight.node import connect_api
from kubeletpy.agent.takeover.preflight.unit_file import UnitError, is_kubelet
from kubeletpy.agent.takeover.preflight.unit_paths import UnitMissing, exec_start, read_process
from kubeletpy.base.api.times import parse_duration
from kubeletpy.base.clock import Clock, SystemClock
from kubeletpy.cli import agent_socket
from kubeletpy.cli.deploy_files import deploy_files
from kubeletpy.cli.endings import STOP_SIGNALS, interruptible, run_until_signalled
from kubeletpy.cli.process import problems_here
from kubeletpy.config.version_choice import ResolvedVersion, VersionSource
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.node.server_version import write_version_record
from kubeletpy.observe.explain.model import WaitKind

DEPLOYED = "kubelet.service.d/20-kubeletpy.conf"
MAX_WATCH_S = 7 * 24 * 3600.0
REFUSED = PodOutcome.REFUSED
MOST_NAMED = 10
"""Pods that are named in one sentence."""
REFUSED_S = 20.0
"""Seconds after which a status that the API does not accept counts."""


class AdoptionRefused(Exception):
    """The node is not taken over; nothing has been changed."""


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 0 if the agent has the node."""
    supplied = parser().parse_args(arguments)
    journal = Journal()
    if supplied.record:
        return show(journal)
    if os.geteuid() != 0:
        return _fail("run it as root")
    logging.getLogger("kubeletpy").setLevel(logging.ERROR)
    try:
        # another signal must not interrupt the way back; the end of the terminal begins it, too
        signals = (*STOP_SIGNALS, signal.SIGHUP)
        return run_until_signalled(_adopt(supplied, journal), numbers=signals, patience=math.inf)
    except (AdoptionRefused, HostError, DropInError, UnitError, UnitMissing) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("interrupted: the node has been returned to the kubelet")


def show(journal: Journal) -> int:
    """Print the record; returns the exit code."""
    try:
        for entry in journal.entries():
            print(entry_text(entry))
    except OSError as error:
        return _fail(f"{journal.path} can't be read: {error.strerror}")
    return 0


async def _adopt(supplied: argparse.Namespace, journal: Journal) -> int:
    unit, program = supplied.unit, checked_program(supplied.program)
    host, clock = SystemdHost(unit), SystemClock()
    seen = await asyncio.to_thread(host.unit)
    command = agent_command(exec_start(unit, NAME), program)
    text = drop_in_text(deploy_files()[DEPLOYED], command)
    harmed: frozenset[str] = frozenset()
    version: ResolvedVersion | None = None
    if seen.running is UnitProgram.NOTHING:
        raise AdoptionRefused(f"unit {unit} does not run: start it first")
    if seen.running is UnitProgram.KUBELET:
        # what a run left that was killed before it restarted the unit
        await Runner(host, not_checked, journal, clock, print_progress).give_back("before adopting")
        harmed, version = await _preflight(supplied)
    process = read_process(seen.pid)
    found = running_agent(seen.pid) if seen.running is UnitProgram.AGENT else _kubelet(process)
    node = await asyncio.to_thread(read_node, found)
    confirm(supplied, node.name, "take it over")
    async with AsyncExitStack() as stack:
        kube_api, problem = await connect_api(node.config.node, stack)
        if kube_api is None:
            why = "it has no kubeconfig" if problem is None else problem.text
            raise AdoptionRefused(f"the node can't be watched: {why}")
        socket = Path(node.config.node.root_dir) / agent_socket.SOCKET_NAME
        refused = partial(refused_statuses, socket, clock)
        observer = NodeObserver(kube_api, node.name, host, clock, refused)
        try:
            pods = await observer.pods()
        except (ApiError, TimeoutError) as error:
            raise AdoptionRefused(
                f"the node can't be watched: its pods can't be listed: {error}"
            ) from error
        record_version(version, Path(node.config.node.root_dir))
        before = _baseline(journal, pods, harmed, resumed=seen.running is UnitProgram.AGENT)
        journal.write(clock.now(), "before", node=node.name, unit=unit, pods=plain_pods(before))
        back = [program, "give-back", "--yes", "--unconfirmed", f"--unit={unit}"]
        task = AdoptionTask(observer, text, back, before, WatchLimits(supplied.watch))
        runner = Runner(host, answers(node), journal, clock, print_progress)
        verdict = await runner.adopt(task)
    print_progress(f"{verdict.outcome}: {verdict.why}")
    return 0 if verdict.outcome is WatchOutcome.CONFIRM else 1


async def _preflight(
    supplied: argparse.Namespace,
) -> tuple[frozenset[str], ResolvedVersion | None]:
    """The pods that may be restarted, as namespace/name, and the version that the agent is to have.

    Raises AdoptionRefused.
    """
    report = await gather(Options(supplied.unit), problems_here)
    if report.safe:
        print_progress(findings.summary(report))
        return frozenset(), report.version
    sys.stdout.write(findings.text(report))
    if not supplied.despite_preflight or report.kubelet is None:
        raise AdoptionRefused(_why_unsafe(report.pods or ()))
    harmed = {
        f"{each.namespace}/{each.name}" for each in report.pods or () if each.outcome in HARMED
    }
    return frozenset(harmed), report.version


def _why_unsafe(pods: Sequence[PodVerdict]) -> str:
    """Why the node is not taken over, and what to do about pods that would not be admitted."""
    refused = [f"{each.namespace}/{each.name}" for each in pods if each.outcome is REFUSED]
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


def checked_program(path: str) -> str:
    """The program that the unit is to start. Raises Refused."""
    if is_kubelet(path) or path.endswith(".py") or not os.access(path, os.X_OK):
        raise AdoptionRefused(f"{path} is not the program kubeletpy: name it with --program")
    return path


def confirm(supplied: argparse.Namespace, name: str, what: str) -> None:
    """Have the node's name typed unless --yes was given. Raises Refused."""
    if supplied.yes:
        return
    if not sys.stdin.isatty():
        raise AdoptionRefused("name the node on a terminal, or use --yes; nothing was changed")
    try:
        with interruptible():
            typed = input(f"Type the name of this node ({name}) to {what}: ")
    except (EOFError, KeyboardInterrupt) as error:
        raise AdoptionRefused("interrupted; nothing was changed") from error
    if typed.strip() != name:
        raise AdoptionRefused("that is another name; nothing was changed")


def _baseline(
    journal: Journal, pods: Mapping[str, PodSeen], harmed: frozenset[str], *, resumed: bool
) -> dict[str, PodSeen]:
    """The pods that must go on; those of the run before if that was killed."""
    if resumed:
        last = next((each for each in reversed(journal.entries()) if "pods" in each), None)
        if last is not None:
            return read_pods(last["pods"])
    return {identity: pod for identity, pod in pods.items() if pod.key not in harmed}


def refused_statuses(path: Path, clock: Clock, pods: Sequence[str]) -> tuple[str, ...]:
    """Those of ``pods`` whose status the API does not accept, with the agent's reason."""
    found = []
    for key in pods:
        try:
            reported = agent_socket.get_json(path, "pods", *key.split("/", 1))
        except agent_socket.NoSuchPod:
            continue
        except agent_socket.NoAgent:
            return ()  # the unit and the node's lease show whether it runs
        found += [
            f"pod {key}: {each['why']}"
            for each in reported.get("waits") or ()
            if each["kind"] == WaitKind.API_WRITE
            and (each.get("since") or clock.now()) < clock.now() - REFUSED_S
        ]
    return tuple(found)


def answers(node: NodeSettings) -> Answers:
    """Whether the node's program answers its health check."""
    settings = node.config.settings
    return partial(is_healthy, settings.healthz_bind_address, settings.healthz_port)


async def not_checked() -> bool:
    """Counts as an answer where nothing is restarted, or the settings are not known."""
    return True


def print_progress(text: str) -> None:
    """Show progress; a closed terminal is no reason to stop."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


def _fail(problem: str) -> int:
    with contextlib.suppress(OSError):
        print(f"kubeletpy adopt: {problem}", file=sys.stderr)
    return 1


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy adopt",
        description="On a node where a kubelet runs, have the kubelet's systemd unit start this "
        "agent, and watch the node. If it is not Ready in time, a container restarts, a pod loses "
        "its readiness or the API does not accept a status, the node returns to the kubelet. Until "
        "the watch has ended, a reboot does the same.",
        epilog="To give the node back later: kubeletpy give-back.",
    )
    made.add_argument("--watch", type=duration, default=600.0, metavar="TIME", help="10m")
    made.add_argument("--yes", action="store_true", help="do not have the node's name typed")
    made.add_argument("--unit", default=DEFAULT_UNIT, help=f"the kubelet's unit ({DEFAULT_UNIT})")
    this = str(Path(sys.argv[0]).absolute())
    made.add_argument(
        "--program", metavar="PATH", default=this, help=f"what the unit starts ({this})"
    )
    made.add_argument(
        "--despite-preflight",
        action="store_true",
        help="go on although preflight does not call it safe; pods that it calls restarted, "
        "stopped or refused may be",
    )
    made.add_argument("--record", action="store_true", help="print what was done on this node")
    return made


def duration(text: str) -> float:
    """A positive time such as 10m, in seconds. Raises ValueError."""
    seconds = parse_duration(text)
    if not 0 < seconds <= MAX_WATCH_S:
        raise ValueError(text)
    return seconds
