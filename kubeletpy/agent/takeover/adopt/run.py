"""Carries out the steps that take a node over or give it back, watches it, and records each step.

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
from pathlib import Path
from typing import Any, Protocol

from kubeletpy.agent.takeover.adopt import steps as adopt_watch
from kubeletpy.agent.takeover.adopt.host import Host, HostError
from kubeletpy.agent.takeover.adopt.steps import (
    KEPT,
    TRIAL,
    AdoptionState,
    AdoptionStep,
    UnitProgram,
    plan_adopt,
    plan_give_back,
)
from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Struct
from kubeletpy.base.tasks import run_together
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import LEASES, NODES, PODS, KubeApi
from kubeletpy.node.lease import NAMESPACE

log = logging.getLogger(__name__)

# The record: one line of JSON for each entry, the oldest first. It decides nothing, and one that
# can't be written never keeps the node from its kubelet.

PATH = Path("/var/lib/kubeletpy/adopt.jsonl")
MAX_BYTES = 1 << 20
"""A longer record becomes FILE.old."""


class Journal:
    """The record in a file."""

    def __init__(self, path: Path = PATH) -> None:
        self.path = path

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
    details = [f"{key} {value}" for key, value in entry.items() if key not in ("at", "what")]
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

    async def observe(self) -> adopt_watch.WatchObservation:
        """Everything that is watched. Raises HostError."""
        ...


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
    before: Mapping[str, adopt_watch.PodSeen]
    limits: adopt_watch.WatchLimits


class Runner:
    """Takes a node over, or gives it back."""

    def __init__(
        self, host: Host, answers: Answers, journal: Journal, clock: Clock, say: Say
    ) -> None:
        """``say`` shows progress to a person."""
        self._host, self._answers = host, answers
        self._journal, self._clock, self._say = journal, clock, say
        self._switched = 0.0

    async def adopt(self, task: AdoptionTask) -> adopt_watch.WatchVerdict:
        """Take the node over; the verdict of the watch.

        Raises:
            HostError: a step failed, and returning the node to its kubelet failed, too.
        """
        state = await asyncio.to_thread(self._host.state)
        steps = plan_adopt(state)
        self._note("adopt", state=_state_text(state))
        self._switched = self._clock.now()
        verdict = adopt_watch.WatchVerdict(
            adopt_watch.WatchOutcome.CONFIRM, "the agent had this node already"
        )
        try:
            for step in steps:
                if step is not AdoptionStep.WATCH:
                    await self._carry_out(step, task)
                    continue
                verdict = await self._watch(task)
                if verdict.outcome is adopt_watch.WatchOutcome.GIVE_BACK:
                    break
        except HostError as error:
            verdict = adopt_watch.WatchVerdict(adopt_watch.WatchOutcome.GIVE_BACK, str(error))
        except BaseException as error:
            await self._back("it was interrupted" if _interrupted(error) else repr(error))
            raise
        if verdict.outcome is adopt_watch.WatchOutcome.GIVE_BACK:
            await self._back(verdict.why)
        self._note(str(verdict.outcome), why=verdict.why)
        return verdict

    async def give_back(self, why: str, *, unconfirmed: bool = False) -> tuple[AdoptionStep, ...]:
        """Give the node back; the steps that were needed. Raises HostError."""
        state = await asyncio.to_thread(self._host.state)
        steps = plan_give_back(state, unconfirmed=unconfirmed)
        self._note("give back", why=why, state=_state_text(state))
        for step in steps:
            await self._carry_out(step, None)
        return steps

    async def _back(self, why: str) -> None:
        self._say(f"giving the node back: {why}")
        await self.give_back(why)

    async def _carry_out(self, step: AdoptionStep, task: AdoptionTask | None) -> None:
        self._note(str(step))
        if step is AdoptionStep.RESTART:
            self._switched = self._clock.now()
        await asyncio.to_thread(self._change, step, task)
        if step is AdoptionStep.RESTART:
            await self._measure_gap()

    def _change(self, step: AdoptionStep, task: AdoptionTask | None) -> None:
        host = self._host
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
        gap = self._clock.now() - self._switched
        self._note("answers", seconds=round(gap, 1))
        self._say(f"{gap:.1f} s from the stop of the one program to an answer of the other")

    async def _answers_in_time(self) -> bool:
        """Whether the new program answers, without having exited before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(adopt_watch.WatchLimits(0).ready):
                for attempt in itertools.count(1):
                    if await self._answers():
                        return True
                    if attempt % EXIT_POLL == 0 and await self._has_exited():
                        return False
                    await asyncio.sleep(ANSWER_POLL_S)
        return False

    async def _has_exited(self) -> bool:
        seen = await asyncio.to_thread(self._host.unit)
        return seen.running is UnitProgram.NOTHING or bool(seen.restarts)

    async def _watch(self, task: AdoptionTask) -> adopt_watch.WatchVerdict:
        self._say(f"watching the node for {task.limits.watch:.0f} s")
        while True:
            now = await task.observer.observe()
            verdict = adopt_watch.judge(task.before, now, self._switched, task.limits)
            if verdict.outcome is not adopt_watch.WatchOutcome.GO_ON:
                return verdict
            await asyncio.sleep(POLL_S)

    def _note(self, what: str, **details: str | float) -> None:
        self._journal.write(self._clock.now(), what, **details)


def _interrupted(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError | KeyboardInterrupt)


def _state_text(state: AdoptionState) -> str:
    found = [text for text, there in (("trial", state.trial), ("kept", state.kept)) if there]
    runs = "nothing runs" if state.running is UnitProgram.NOTHING else f"{state.running} runs"
    return ", ".join([runs, *(f"drop-in: {each}" for each in found)])


# Observations through the API, the agent's socket and systemd.

ANSWER_S = 10.0
"""Seconds in which the API server must answer."""

Refused = Callable[[Sequence[str]], tuple[str, ...]]
"""Returns those pods (namespace/name) whose status the API does not accept, with the reason."""


class NodeObserver:
    """Observes one node through the API, the agent and systemd."""

    def __init__(
        self, kube_api: KubeApi, node_name: str, host: Host, clock: Clock, refused: Refused
    ) -> None:
        self._kube_api, self._name, self._host = kube_api, node_name, host
        self._clock, self._refused = clock, refused
        self._last: tuple[float, JSON, JSON, Mapping[str, adopt_watch.PodSeen]] = (0.0, {}, {}, {})

    async def pods(self) -> Mapping[str, adopt_watch.PodSeen]:
        """The pods of the node. Raises ApiError or TimeoutError."""
        async with asyncio.timeout(ANSWER_S):
            listed = await self._kube_api.list(PODS, field_selector=f"spec.nodeName={self._name}")
        return adopt_watch.pods_seen(listed.get("items") or ())

    async def observe(self) -> adopt_watch.WatchObservation:
        """Everything that is watched. Raises HostError."""
        unit = await asyncio.to_thread(self._host.unit)
        try:
            async with asyncio.timeout(ANSWER_S):
                node, lease, pods = await run_together(
                    self._kube_api.get(NODES, self._name),
                    self._kube_api.get(LEASES, self._name, NAMESPACE),
                    self.pods(),
                )
            self._last = self._clock.now(), node, lease, pods
        except (ApiError, TimeoutError):
            pass  # the last answer stays; its age is judged
        answered, node, lease, pods = self._last
        return adopt_watch.WatchObservation(
            self._clock.now(),
            unit.running,
            unit.restarts,
            adopt_watch.is_ready(node),
            adopt_watch.renewed_at(lease),
            pods,
            answered,
            await asyncio.to_thread(self._refused, [each.key for each in pods.values()]),
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
