"""Runs the probes of all pods: keeps the state of each, its next run, and its settled result.

A task exists only while a probe runs; one timer does all the waiting. :mod:`.schedule` decides when
to run and what a result means, :mod:`.prober` runs it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Iterable

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.metrics.pods import ProbeMetrics
from kubeletpy.pods.pod import ContainerKind, Pod
from kubeletpy.pods.runtime_status import ProbeOutcome, ProbeResults
from kubeletpy.probes.handlers.ports import LOOPBACK
from kubeletpy.probes.probe import Probe, field_of, probes_of, report
from kubeletpy.probes.prober import Prober, Target
from kubeletpy.probes.report import ProbeFinding, ProbeReport
from kubeletpy.probes.schedule import ProbeKind, ProbeState, end, finished, with_container_state
from kubeletpy.probes.seen import container_state
from kubeletpy.probes.timetable import Timetable
from kubeletpy.probes.turns import ProbeSlots

logger = logging.getLogger(__name__)

COMMANDS_PER_CORE = 8
CONNECTIONS = 256
CLOSE_S = 1.0

NO_RESULTS = ProbeResults()
_WORDS = {
    ProbeOutcome.SUCCESS: "successful",
    ProbeOutcome.FAILURE: "failed",
    ProbeOutcome.UNKNOWN: "unknown",
}

OnResult = Callable[[str, ProbeKind, ProbeOutcome], None]
"""Called with the pod's uid, which probe, and its new settled result; must not block."""


class KubeProbeManager:
    """Runs the probes of running pods and keeps their settled results."""

    def __init__(
        self,
        prober: Prober,
        *,
        clock: Clock,
        get_status: Callable[[str], api.PodStatus | None],
        on_result: OnResult,
        metrics: ProbeMetrics,
        agent_started_at: Callable[[], float],
        rng: random.Random | None = None,
    ) -> None:
        """``get_status`` returns the newest API status kept for a pod. ``agent_started_at`` is in
        Unix seconds, as the wall clock is set now.
        """
        self._prober = prober
        self._clock = clock
        self._get_status = get_status
        self._on_result = on_result
        self._metrics = metrics
        self._agent_started_at = agent_started_at
        self._rng = rng or random.Random()
        self._pods: dict[str, tuple[Probe, ...]] = {}
        self._timetable: Timetable[Probe] = Timetable(self._due)
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
        status = self._get_status(pod.uid)
        if status is not None:
            self.status_stored(pod, status)

    def status_stored(self, pod: Pod, status: api.PodStatus) -> None:
        """A pod's status was recomputed: what its probes wait for may have happened."""
        probes = self._pods.get(pod.uid)
        if not probes:
            return
        now, wall = asyncio.get_running_loop().time(), self._clock.now()
        for probe in probes:
            probe.pod = pod
            probe.pod_ip = status.get("podIP") or (LOOPBACK if pod.host_network else "")
            seen = container_state(
                pod,
                probe.container,
                status,
                now=wall,
                agent_started_at=self._agent_started_at(),
            )
            self._set(
                probe, with_container_state(probe.spec, probe.state, seen, now, self._rng.random())
            )

    def stop_liveness_and_startup(self, pod: Pod) -> None:
        """The pod is terminating: stop these probes of its regular containers."""
        for probe in self._pods.get(pod.uid, ()):
            if probe.kind is ContainerKind.REGULAR and probe.spec.kind is not ProbeKind.READINESS:
                self._set(probe, end(probe.state))

    def remove_pod(self, pod_uid: str) -> None:
        """Stop all probes of a pod and forget their results."""
        for probe in self._pods.pop(pod_uid, ()):
            self._set(probe, end(probe.state))
            self._metrics.gone(probe.labels)

    def forget_except(self, uids: Iterable[str]) -> None:
        """Remove all pods except these."""
        for uid in self._pods.keys() - set(uids):
            self.remove_pod(uid)

    def results(self, pod: Pod) -> ProbeResults:
        """The settled results for the containers of a pod."""
        probes = self._pods.get(pod.uid)
        if not probes:
            return NO_RESULTS
        found: dict[ProbeKind, dict[str, ProbeOutcome]] = {kind: {} for kind in ProbeKind}
        for probe in probes:
            if probe.state.result is not None:
                found[probe.spec.kind][probe.state.container_id] = probe.state.result
        return ProbeResults(
            liveness=found[ProbeKind.LIVENESS],
            startup=found[ProbeKind.STARTUP],
            readiness=found[ProbeKind.READINESS],
        )

    def reports(self, pod_uid: str) -> tuple[ProbeReport, ...]:
        """The last finding of each probe of a pod, for explain."""
        return tuple(report(probe) for probe in self._pods.get(pod_uid, ()))

    async def close(self) -> None:
        """Stop at once, abandoning running probes."""
        self._timetable.close()
        running = [probe.task for probes in self._pods.values() for probe in probes if probe.task]
        for uid in list(self._pods):
            self.remove_pod(uid)
        if running:
            await asyncio.wait(running, timeout=CLOSE_S)
        await self._prober.close(CLOSE_S)

    # -- running -----------------------------------------------------------------------------

    def _set(self, probe: Probe, state: ProbeState) -> None:
        """Adopt a new state: abandon a run for another container, and set the timer."""
        old, probe.state = probe.state, state
        if state.container_id != old.container_id:
            killed = old.on_hold and old.last is ProbeOutcome.FAILURE
            probe.killed_with = probe.last if killed else None
            probe.last = None
        if state.ended or state.container_id != old.container_id:
            if probe.task is not None:
                probe.task.cancel()
            self._prober.abandon(old.container_id, probe.spec.kind)
        self._arm(probe)

    def _arm(self, probe: Probe) -> None:
        due = probe.state.due
        if probe.entry is not None:
            if probe.entry.item is not None and probe.entry.at == due:
                return
            self._timetable.take_back(probe.entry)
            probe.entry = None
        if due is not None and probe.task is None and not probe.queued:
            probe.entry = self._timetable.add(due, probe)

    def _due(self, probe: Probe) -> None:
        probe.entry = None
        probe.queued = True
        turns = self._commands if field_of(probe).get("exec") else self._connections

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
        task = loop.create_task(self._prober.run(target, quietly=probe.state.early))
        probe.task = task

        def done(task: asyncio.Task[ProbeFinding]) -> None:
            release()
            probe.task = None
            self._ended(probe, task, target.container_id, loop.time() - begun)

        task.add_done_callback(done)

    def _ended(
        self,
        probe: Probe,
        task: asyncio.Task[ProbeFinding],
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
            self._metrics.probed(probe.labels, _WORDS[found], seconds)
        before = probe.state.result
        self._set(probe, finished(probe.spec, probe.state, found, now))
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
        self._on_result(probe.pod.uid, probe.spec.kind, result)
