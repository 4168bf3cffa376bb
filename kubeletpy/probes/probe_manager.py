"""Runs the probes of all pods: keeps the state of each, its next run, and its settled result.

A task exists only while a probe runs; timers of the same times do the waiting, and a queue limits
how many run at once (:class:`ProbeSlots`). :mod:`.schedule` decides when to run and
what a result means, :mod:`.prober` runs it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, field
from kubeletpy.metrics.pods import ProbeMetrics
from kubeletpy.pods.pod import ContainerKind, Pod, is_sidecar
from kubeletpy.pods.runtime_status import ProbeOutcome, ProbeResults
from kubeletpy.probes import schedule
from kubeletpy.probes.handlers.outcome import LOOPBACK
from kubeletpy.probes.prober import Prober, Target

logger = logging.getLogger(__name__)

SLOT_S = 0.02
"""Seconds within which runs that are due start together, at most that much late: with a time each,
hundreds of probes would wake the event loop each time."""


class Probe:
    """One probe of one container: its definition and its state."""

    __slots__ = (
        *("container", "killed_with", "kind", "last", "last_at", "pod", "pod_ip"),
        *("queued", "spec", "state", "task", "timer"),
    )

    def __init__(
        self, pod: Pod, kind: ContainerKind, container: api.Container, spec: schedule.ProbeSpec
    ) -> None:
        self.pod = pod
        self.kind = kind
        self.container = container
        self.spec = spec
        self.state = schedule.ProbeState()
        self.pod_ip = ""
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[schedule.ProbeFinding] | None = None
        self.last: schedule.ProbeFinding | None = None
        self.last_at = 0.0
        self.killed_with: schedule.ProbeFinding | None = None
        self.queued = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the probe in metrics."""
        pod = self.pod
        return (self.spec.kind.value, self.container["name"], pod.name, pod.namespace, pod.uid)


def probes_of(pod: Pod) -> Iterator[Probe]:
    """Yield the probes of regular containers and sidecars."""
    for container_kind, container in pod.all_containers():
        if container_kind is ContainerKind.EPHEMERAL:
            continue
        if container_kind is ContainerKind.INIT and not is_sidecar(container):
            continue
        for kind, name in schedule.FIELDS.items():
            probe = container.get(name)
            if isinstance(probe, dict):
                yield Probe(
                    pod, container_kind, container, schedule.ProbeSpec.from_probe(kind, probe)
                )


def report(probe: Probe) -> schedule.ProbeReport:
    """Return the last finding and the settled result of a probe, for people."""
    state, spec = probe.state, probe.spec
    succeeded = state.last is ProbeOutcome.SUCCESS
    return schedule.ProbeReport(
        probe.container["name"],
        spec.kind,
        state.result,
        probe.last,
        probe.last_at,
        state.streak,
        spec.success_threshold if succeeded else spec.failure_threshold,
        state.due,
        probe.killed_with,
    )


HOLD_S = 1.0
"""Seconds after which a probe that still runs no longer keeps its slot."""


class ProbeSlots(Component):
    """Slots for runs of probes, granted in order of request.

    A command costs the machine a process, a connection costs little: each has its own limit. A slot
    is released after HOLD_S even while its probe still runs: a probe that takes so long is waiting,
    not working. So hanging probes delay others by that much, not by their timeouts. Each probe runs
    at most once at a time, which bounds all of them together.
    """

    free: int
    """Slots that are not taken."""

    def __post_init__(self) -> None:
        self._waiting: deque[Callable[[], bool]] = deque()

    @property
    def waiting(self) -> int:
        """Number of probes that wait for a slot."""
        return len(self._waiting)

    def start_when_free(self, start: Callable[[], bool]) -> None:
        """Call ``start`` as soon as a slot is free; it returns whether it took it."""
        self._waiting.append(start)
        self._next()

    def acquire(self) -> Callable[[], None]:
        """Keep the slot for the probe that was started; returns the function that releases it."""
        loop = asyncio.get_running_loop()
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                timer.cancel()
                self.free += 1
                self._next()

        timer = loop.call_later(HOLD_S, release)
        return release

    def _next(self) -> None:
        while self.free and self._waiting:
            self.free -= 1
            if not self._waiting.popleft()():
                self.free += 1


COMMANDS_PER_CORE = 8
CONNECTIONS = 256
CLOSE_S = 1.0

NO_RESULTS = ProbeResults()
_RESULT_LABELS = {
    ProbeOutcome.SUCCESS: "successful",
    ProbeOutcome.FAILURE: "failed",
    ProbeOutcome.UNKNOWN: "unknown",
}

OnResult = Callable[[str, schedule.ProbeKind, ProbeOutcome], None]
"""Called with the pod's uid, which probe, and its new settled result; must not block."""


class KubeProbeManager(Component):
    """Runs the probes of running pods and keeps their settled results."""

    prober: Prober
    clock: Clock
    get_status: Callable[[str], api.PodStatus | None]
    """Returns the newest API status kept for a pod."""
    on_result: OnResult
    metrics: ProbeMetrics
    agent_started_at: Callable[[], float]
    """In Unix seconds, as the wall clock is set now."""
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._pods: dict[str, tuple[Probe, ...]] = {}
        self._context = contextvars.copy_context()
        """The context of each run, which belongs to no sync of its pod."""
        self._commands = ProbeSlots(COMMANDS_PER_CORE * (os.cpu_count() or 1))
        self._connections = ProbeSlots(CONNECTIONS)

    def __len__(self) -> int:
        """The number of probes."""
        return sum(len(probes) for probes in self._pods.values())

    # -- what the pod workers report ---------------------------------------------------------

    def add_pod(self, pod: Pod) -> None:
        """Start probing a pod's containers; known ones go on."""
        if pod.uid in self._pods:
            return
        self._pods[pod.uid] = tuple(probes_of(pod))
        status = self.get_status(pod.uid)
        if status is not None:
            self.status_stored(pod, status)

    def status_stored(self, pod: Pod, status: api.PodStatus) -> None:
        """A pod's status was recomputed: what its probes wait for may have happened."""
        probes = self._pods.get(pod.uid)
        if not probes:
            return
        now, wall = asyncio.get_running_loop().time(), self.clock.now()
        for probe in probes:
            probe.pod = pod
            probe.pod_ip = status.get("podIP") or (LOOPBACK if pod.host_network else "")
            seen = schedule.container_state(
                pod, probe.container, status, now=wall, agent_started_at=self.agent_started_at()
            )
            self._set(
                probe,
                schedule.with_container_state(
                    probe.spec, probe.state, seen, now, self.rng.random()
                ),
            )

    def stop_liveness_and_startup(self, pod: Pod) -> None:
        """The pod is terminating: stop these probes of its regular containers."""
        for probe in self._pods.get(pod.uid, ()):
            if (
                probe.kind is ContainerKind.REGULAR
                and probe.spec.kind is not schedule.ProbeKind.READINESS
            ):
                self._set(probe, schedule.end(probe.state))

    def remove_pod(self, pod_uid: str) -> None:
        """Stop all probes of a pod and forget their results."""
        for probe in self._pods.pop(pod_uid, ()):
            self._set(probe, schedule.end(probe.state))
            self.metrics.removed(probe.labels)

    def forget_except(self, uids: Iterable[str]) -> None:
        """Remove all pods except these."""
        for uid in self._pods.keys() - set(uids):
            self.remove_pod(uid)

    def results(self, pod: Pod) -> ProbeResults:
        """The settled results for the containers of a pod."""
        probes = self._pods.get(pod.uid)
        if not probes:
            return NO_RESULTS
        found: dict[schedule.ProbeKind, dict[str, ProbeOutcome]] = {
            kind: {} for kind in schedule.ProbeKind
        }
        for probe in probes:
            if probe.state.result is not None:
                found[probe.spec.kind][probe.state.container_id] = probe.state.result
        return ProbeResults(
            liveness=found[schedule.ProbeKind.LIVENESS],
            startup=found[schedule.ProbeKind.STARTUP],
            readiness=found[schedule.ProbeKind.READINESS],
        )

    def reports(self, pod_uid: str) -> tuple[schedule.ProbeReport, ...]:
        """The last finding of each probe of a pod, for explain."""
        return tuple(report(probe) for probe in self._pods.get(pod_uid, ()))

    async def close(self) -> None:
        """Stop at once, abandoning running probes."""
        running = [probe.task for probes in self._pods.values() for probe in probes if probe.task]
        for uid in list(self._pods):
            self.remove_pod(uid)
        if running:
            await asyncio.wait(running, timeout=CLOSE_S)
        await self.prober.close(CLOSE_S)

    # -- running -----------------------------------------------------------------------------

    def _set(self, probe: Probe, state: schedule.ProbeState) -> None:
        """Adopt a new state: abandon a run for another container, and set the timer."""
        old, probe.state = probe.state, state
        if state.container_id != old.container_id:
            killed = old.on_hold and old.last is ProbeOutcome.FAILURE
            probe.killed_with = probe.last if killed else None
            probe.last = None
        if state.ended or state.container_id != old.container_id:
            if probe.task is not None:
                probe.task.cancel()
            self.prober.abandon(old.container_id, probe.spec.kind)
        self._arm(probe)

    def _arm(self, probe: Probe) -> None:
        due = probe.state.due
        at = None if due is None else max(due, math.ceil(due / SLOT_S) * SLOT_S)
        if probe.timer is not None:
            if probe.timer.when() == at:
                return
            probe.timer.cancel()
            probe.timer = None
        if at is not None and probe.task is None and not probe.queued:
            loop = asyncio.get_running_loop()
            probe.timer = loop.call_at(at, self._due, probe, context=self._context)

    def _due(self, probe: Probe) -> None:
        probe.timer = None
        probe.queued = True
        field = schedule.field_of(probe.container, probe.spec.kind)
        turns = self._commands if field.get("exec") else self._connections

        def start() -> bool:
            probe.queued = False
            if probe.state.due is None:
                return False
            if probe.task is not None or probe.state.due > asyncio.get_running_loop().time():
                self._arm(probe)
                return False
            self._start(probe, turns)
            return True

        turns.start_when_free(start)

    def _start(self, probe: Probe, turns: ProbeSlots) -> None:
        target = Target(
            probe.pod,
            probe.kind,
            probe.container,
            probe.state.container_id,
            probe.pod_ip,
            probe.spec,
        )
        loop = asyncio.get_running_loop()
        begun, release = loop.time(), turns.acquire()
        task = loop.create_task(self.prober.run(target, quietly=probe.state.early))
        probe.task = task

        def done(task: asyncio.Task[schedule.ProbeFinding]) -> None:
            release()
            probe.task = None
            self._ended(probe, task, target.container_id, loop.time() - begun)

        task.add_done_callback(done)

    def _ended(
        self,
        probe: Probe,
        task: asyncio.Task[schedule.ProbeFinding],
        container_id: str,
        seconds: float,
    ) -> None:
        if probe.pod.uid not in self._pods:
            return
        if task.cancelled() or container_id != probe.state.container_id:
            self._arm(probe)
            return
        now, found = asyncio.get_running_loop().time(), None
        if error := task.exception():
            # A probe that crashes on what a server sent must not stop others, nor itself.
            logger.error("probe broke", extra={"pod": probe.pod.key}, exc_info=error)
        else:
            probe.last, probe.last_at = task.result(), now
            found = probe.last.outcome
        if found is not None:
            self.metrics.probed(probe.labels, _RESULT_LABELS[found], seconds)
        before = probe.state.result
        self._set(probe, schedule.finished(probe.spec, probe.state, found, now))
        after = probe.state.result
        if after is not None and after is not before:
            self._settled(probe, after)

    def _settled(self, probe: Probe, result: ProbeOutcome) -> None:
        logger.debug(
            "probe result",
            extra={
                "pod": probe.pod.key,
                "container": probe.container["name"],
                "probe": probe.spec.kind,
                "result": result,
            },
        )
        self.on_result(probe.pod.uid, probe.spec.kind, result)
