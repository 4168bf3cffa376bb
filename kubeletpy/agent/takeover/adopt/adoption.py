"""The order in which a node is taken over from its kubelet, watched, or returned to it.

The front door: a command parses its options, lets a person confirm (:class:`Operator`) and prints.
A failure, an interruption or a bad observation after the timer was armed gives the node back.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from kubeletpy.agent.takeover.adopt.host import (
    HostError,
    NodeSettings,
    SystemdHost,
    read_node,
    running_agent,
)
from kubeletpy.agent.takeover.adopt.steps import (
    AT_BOOT,
    KEPT,
    TRIAL,
    AdoptionState,
    AdoptionStep,
    PodSeen,
    UnitProgram,
    WatchLimits,
    WatchObservation,
    WatchOutcome,
    WatchVerdict,
    agent_command,
    drop_in_text,
    judge,
    plain_pods,
    plan_adopt,
    plan_give_back,
    pods_seen,
    read_pods,
    renewed_at,
)
from kubeletpy.agent.takeover.preflight import findings
from kubeletpy.agent.takeover.preflight.checks import Process
from kubeletpy.agent.takeover.preflight.findings import HARMED, KubeletFound, PodOutcome, PodVerdict
from kubeletpy.agent.takeover.preflight.gather import DEFAULT_UNIT, Options, gather
from kubeletpy.agent.takeover.preflight.kubelets import load_service, read_process, system_bus
from kubeletpy.agent.takeover.preflight.node import connect_api
from kubeletpy.agent.takeover.preflight.unit_command import UnitCommand, is_kubelet, last_command
from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock, SystemClock
from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.tasks import run_together
from kubeletpy.config.load import Check
from kubeletpy.config.version_choice import ResolvedVersion, VersionSource
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import LEASES, NODES, PODS, KubeApi
from kubeletpy.node.lease import NAMESPACE
from kubeletpy.node.server_version import write_version_record
from kubeletpy.status.conditions import is_ready

log = logging.getLogger(__name__)

# The record: one line of JSON for each entry, the oldest first. It decides nothing, and one that
# can't be written never keeps the node from its kubelet.

PATH = Path("/var/lib/kubeletpy/adopt.jsonl")
MAX_BYTES = 1 << 20
"""A longer record becomes FILE.old."""


class Journal(Component):
    """The record in a file."""

    path: Path = PATH

    def write(self, at: float, what: str, **details: Any) -> None:
        """Append an entry; flushed before this returns."""
        line = json.dumps({"at": format_time(at), "what": what, **details}) + "\n"
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size > MAX_BYTES:
                self.path.replace(self.path.with_name(f"{self.path.name}.old"))
            with self.path.open("a") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            log.error("record not written", extra={"path": str(self.path), "error": str(error)})

    def entries(self) -> list[Mapping[str, Any]]:
        """The entries written so far; an incomplete last line is left out. Raises OSError."""
        found = []
        try:
            lines = self.path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


def entry_text(entry: Mapping[str, Any]) -> str:
    """An entry for people."""
    shown = {key: value for key, value in entry.items() if key not in ("at", "what")}
    if pods := shown.get("pods"):
        shown["pods"] = ", ".join(sorted(each["key"] for each in pods.values()))
    details = [f"{key} {value}" for key, value in shown.items()]
    return f"{entry.get('at')}  {entry.get('what')}" + (f" ({', '.join(details)})" * bool(details))


POLL_S = 2.0
ANSWER_POLL_S = 0.1
EXIT_POLL = 10
"""Attempts after which it is checked whether the program has exited."""
MARGIN_S = 120.0
"""Seconds beyond the watch after which the timer gives the node back."""

Say = Callable[[str], None]
Answers = Callable[[], Awaitable[bool]]
"""Whether the program of the unit answers its health check."""


class Observer(Protocol):
    """Observes the node through the API, the agent and systemd."""

    async def observe(self) -> WatchObservation:
        """Everything that is watched. Raises HostError."""


class AdoptionTask(Struct, frozen=True):
    """The parameters of an adoption.

    Attributes:
        observer: of the watch.
        drop_in: its text.
        give_back: the command that the timer runs.
        before: the pods before the switch that must go on.
        limits: of the watch.
    """

    observer: Observer
    drop_in: str
    give_back: Sequence[str]
    before: Mapping[str, PodSeen]
    limits: WatchLimits


class Runner(Component):
    """Takes a node over, or gives it back."""

    host: SystemdHost
    answers: Answers
    journal: Journal
    clock: Clock
    say: Say
    """Shows progress to a person."""

    def __post_init__(self) -> None:
        self._switched = 0.0

    async def adopt(self, task: AdoptionTask) -> WatchVerdict:
        """Take the node over; the verdict of the watch.

        Raises:
            HostError: a step failed, and returning the node to its kubelet failed, too.
        """
        state = await asyncio.to_thread(self.host.state)
        steps = plan_adopt(state)
        self._note("adopt", state=_state_text(state))
        self._switched = self.clock.now()
        verdict = WatchVerdict(WatchOutcome.CONFIRM, "the agent had this node already")
        try:
            for step in steps:
                if step is not AdoptionStep.WATCH:
                    await self._carry_out(step, task)
                    continue
                verdict = await self._watch(task)
                if verdict.outcome is WatchOutcome.GIVE_BACK:
                    break
        except HostError as error:
            verdict = WatchVerdict(WatchOutcome.GIVE_BACK, str(error))
        except BaseException as error:
            await self._back("it was interrupted" if _interrupted(error) else repr(error))
            raise
        if verdict.outcome is WatchOutcome.GIVE_BACK:
            await self._back(verdict.why)
        self._note(str(verdict.outcome), why=verdict.why)
        return verdict

    async def give_back(self, why: str, *, unconfirmed: bool = False) -> tuple[AdoptionStep, ...]:
        """Give the node back; the steps that were needed. Raises HostError."""
        state = await asyncio.to_thread(self.host.state)
        steps = plan_give_back(state, unconfirmed=unconfirmed)
        self._note("give back", why=why, state=_state_text(state))
        for step in steps:
            await self._carry_out(step, None)
        return steps

    async def _back(self, why: str) -> None:
        self.say(f"giving the node back: {why}")
        await self.give_back(why)

    async def _carry_out(self, step: AdoptionStep, task: AdoptionTask | None) -> None:
        self._note(str(step))
        if step is AdoptionStep.RESTART:
            self._switched = self.clock.now()
            if task is not None and await asyncio.to_thread(self.host.shutting_down):
                raise HostError(AT_BOOT)
        await asyncio.to_thread(self._change, step, task)
        if step is AdoptionStep.RESTART:
            await self._measure_gap()

    def _change(self, step: AdoptionStep, task: AdoptionTask | None) -> None:
        host = self.host
        match step:
            case AdoptionStep.ARM:
                assert task is not None, "only adopting arms the timer"
                host.arm(task.limits.watch + task.limits.ready + MARGIN_S, task.give_back)
            case AdoptionStep.WRITE_TRIAL | AdoptionStep.KEEP:
                assert task is not None, "only adopting writes a drop-in"
                host.write(TRIAL if step is AdoptionStep.WRITE_TRIAL else KEPT, task.drop_in)
            case AdoptionStep.REMOVE_TRIAL:
                host.remove(TRIAL)
            case AdoptionStep.REMOVE_KEPT:
                host.remove(KEPT)
            case AdoptionStep.RELOAD:
                host.reload()
            case AdoptionStep.RESTART:
                host.restart()
            case AdoptionStep.DISARM:
                host.disarm()
            case AdoptionStep.WATCH:
                raise AssertionError("the watch changes nothing")

    async def _measure_gap(self) -> None:
        """Wait until the new program answers, and record how long nothing did."""
        if not await self._answers_in_time():
            self._note("the new program does not answer its health check")
            return
        gap = self.clock.now() - self._switched
        self._note("answers", seconds=round(gap, 1))
        self.say(f"{gap:.1f} s from the stop of the one program to an answer of the other")

    async def _answers_in_time(self) -> bool:
        """Whether the new program answers, without having exited before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WatchLimits(0).ready):
                for attempt in itertools.count(1):
                    if await self.answers():
                        return True
                    if attempt % EXIT_POLL == 0 and await self._has_exited():
                        return False
                    await asyncio.sleep(ANSWER_POLL_S)
        return False

    async def _has_exited(self) -> bool:
        seen = await asyncio.to_thread(self.host.unit)
        return seen.running is UnitProgram.NOTHING or bool(seen.restarts)

    async def _watch(self, task: AdoptionTask) -> WatchVerdict:
        self.say(f"watching the node for {task.limits.watch:.0f} s")
        while True:
            now = await task.observer.observe()
            verdict = judge(task.before, now, self._switched, task.limits)
            if verdict.outcome is not WatchOutcome.GO_ON:
                return verdict
            await asyncio.sleep(POLL_S)

    def _note(self, what: str, **details: str | float) -> None:
        self.journal.write(self.clock.now(), what, **details)


def _interrupted(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError | KeyboardInterrupt)


def _state_text(state: AdoptionState) -> str:
    found = [text for text, there in (("trial", state.trial), ("kept", state.kept)) if there]
    runs = "nothing runs" if state.running is UnitProgram.NOTHING else f"{state.running} runs"
    runs += ", the machine shuts down" * state.shutting_down
    return ", ".join([runs, *(f"drop-in: {each}" for each in found)])


# Observations through the API, the agent's socket and systemd.

ANSWER_S = 10.0
"""Seconds in which the API server must answer."""

Refused = Callable[[Sequence[str]], tuple[str, ...]]
"""Returns those pods (namespace/name) whose status the API does not accept, with the reason."""


class NodeObserver(Component):
    """Observes one node through the API, the agent and systemd."""

    kube_api: KubeApi
    node_name: str
    host: SystemdHost
    clock: Clock
    refused: Refused

    def __post_init__(self) -> None:
        self._last: tuple[float, JSON, JSON, Mapping[str, PodSeen]] = (0.0, {}, {}, {})

    async def pods(self) -> Mapping[str, PodSeen]:
        """The pods of the node. Raises ApiError or TimeoutError."""
        async with asyncio.timeout(ANSWER_S):
            listed = await self.kube_api.list(
                PODS, field_selector=f"spec.nodeName={self.node_name}"
            )
        return pods_seen(listed.get("items") or ())

    async def observe(self) -> WatchObservation:
        """Everything that is watched. Raises HostError."""
        unit = await asyncio.to_thread(self.host.unit)
        try:
            async with asyncio.timeout(ANSWER_S):
                node, lease, pods = await run_together(
                    self.kube_api.get(NODES, self.node_name),
                    self.kube_api.get(LEASES, self.node_name, NAMESPACE),
                    self.pods(),
                )
            self._last = self.clock.now(), node, lease, pods
        except (ApiError, TimeoutError):
            pass  # the last answer stays; its age is judged
        answered, node, lease, pods = self._last
        return WatchObservation(
            self.clock.now(),
            unit.running,
            unit.restarts,
            is_ready(node.get("status") or {}),
            renewed_at(lease),
            pods,
            answered,
            await asyncio.to_thread(self.refused, [each.key for each in pods.values()]),
            await asyncio.to_thread(self.host.shutting_down),
        )


async def is_healthy(address: str, port: int) -> bool:
    """Whether a program answers the kubelet's health check; port 0: it has none."""
    return not port or await asyncio.to_thread(_healthy, address, port)


def _healthy(address: str, port: int) -> bool:
    connection = http.client.HTTPConnection(address, port, timeout=2.0)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


# Adoption and return.

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
    command = agent_command(await exec_start(unit), program)
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
        operator.report(AT_BOOT if len(steps) > 1 else "nothing to do")
        return True
    seen = await asyncio.to_thread(host.unit)
    operator.report(f"unit {unit} runs {seen.running}")
    return seen.running is UnitProgram.KUBELET


async def exec_start(unit: str) -> UnitCommand:
    """The command that a unit starts. Raises UnitMissing or UnitError."""
    async with system_bus() as bus:
        return last_command(await load_service(bus, unit), f"unit {unit}")


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
