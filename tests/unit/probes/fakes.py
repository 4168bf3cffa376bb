"""Probes in memory: containers with scripted answers, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from kubeletpy.base.api.times import format_time
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ProbeOutcome
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.probes.prober import Target
from kubeletpy.probes.schedule import ProbeFinding, ProbeKind
from tests.unit.podworkers.builders import make_pod
from tests.virtual_time import LoopClock, close_at_the_end

OK, BAD = ProbeOutcome.SUCCESS, ProbeOutcome.FAILURE
HTTP: Any = {"httpGet": {"port": 80}}


def probed_pod(name: str = "web", *, sidecar: bool = False, **probes: dict[str, Any]) -> Pod:
    """A pod whose one container has these probes (startupProbe=..., fields added to HTTP)."""
    container: dict[str, Any] = {"name": "main", "image": "img"}
    container |= {kind: {**HTTP, **fields} for kind, fields in probes.items()}
    if sidecar:
        side = {**container, "name": "side", "restartPolicy": "Always"}
        return make_pod(name, initContainers=[side], containers=[{"name": "main", "image": "img"}])
    return make_pod(name, containers=[container])


class World:
    """A probe manager, and a status writer that behaves as the one of the pod workers."""

    def __init__(self, *, agent_started_at: float | None = None, seed: int = 1) -> None:
        self.clock = LoopClock()
        self.answer: Callable[[Target], ProbeOutcome | None] = lambda target: OK
        self.takes: Callable[[Target], float] = lambda target: 0.0
        self.runs: dict[tuple[str, ProbeKind], list[float]] = defaultdict(list)
        self.quiet: list[bool] = []
        self.parts = ""
        self.notified: list[tuple[float, str, ProbeKind, ProbeOutcome]] = []
        self.on_result: Callable[[str, ProbeKind, ProbeOutcome], None] = lambda *result: None
        self.statuses: dict[str, Any] = {}
        self.pods: dict[str, Pod] = {}
        self.pod_ip: str | None = "10.0.0.9"
        """Shown by statuses."""
        self.running = self.most = 0
        self.metrics = Metrics()
        began = self.clock.now() if agent_started_at is None else agent_started_at
        self.manager = KubeProbeManager(
            self,  # type: ignore[arg-type]
            clock=self.clock,
            get_status=self.statuses.get,
            on_result=self._settled,
            metrics=self.metrics.probes,
            agent_started_at=lambda: began,
            rng=random.Random(seed),
        )
        close_at_the_end(self.manager.close)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    # the prober
    def abandon(self, container_id: str, kind: ProbeKind) -> None:
        """Nothing to do: no probe hangs here."""

    async def close(self, seconds: float) -> None:
        """Nothing to do: no probe hangs here."""

    async def run(self, target: Target, *, quietly: bool) -> ProbeFinding:
        self.runs[target.pod.uid, target.spec.kind].append(self.now)
        self.quiet.append(quietly)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.takes(target))
            return ProbeFinding(self.answer(target), self.parts)
        finally:
            self.running -= 1

    # the status writer
    def start(self, pod: Pod, container_id: str = "c1", *, ran: float = 0.0, **more: Any) -> None:
        """The pod's container has been running for ``ran`` seconds."""
        at = format_time(self.clock.now() - ran)
        entry = {"containerID": f"containerd://{container_id}", **more}
        self.write(pod, {**entry, "state": {"running": {"startedAt": at}}})

    def stop(self, pod: Pod, code: int = 1, container_id: str = "c1") -> None:
        """The pod's container has ended."""
        state = {"terminated": {"exitCode": code}}
        self.write(pod, {"containerID": f"containerd://{container_id}", "state": state})

    def write(self, pod: Pod, entry: dict[str, Any], phase: str = "Running") -> None:
        """Store a status as the pod workers do, with `started` from the probe results."""
        self.pods[pod.uid] = pod
        container = next(iter(pod.init_containers or pod.containers))
        entry = {"name": container["name"], **entry}
        if "running" in entry["state"] and "started" not in entry:
            container_id = entry["containerID"].partition("://")[2]
            outcome = self.manager.results(pod).startup.get(container_id)
            unprobed = outcome is None and "startupProbe" not in container
            entry["started"] = outcome is OK or unprobed
        status: Any = {"phase": phase, "podIP": self.pod_ip}
        status["initContainerStatuses" if pod.init_containers else "containerStatuses"] = [entry]
        self.statuses[pod.uid] = status
        self.manager.status_stored(pod, status)

    def _settled(self, uid: str, kind: ProbeKind, result: ProbeOutcome) -> None:
        self.notified.append((self.now, uid, kind, result))
        if kind is ProbeKind.STARTUP:
            status = self.statuses[uid]
            (entry,) = status.get("initContainerStatuses") or status["containerStatuses"]
            self.write(self.pods[uid], {**entry, "started": result is OK})
        self.on_result(uid, kind, result)
