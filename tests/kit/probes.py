"""Probes in memory on virtual time, and servers on loopback, honest and hostile."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from kubeletpy.base.api.times import format_time
from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ProbeOutcome
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.probes.prober import Target
from kubeletpy.probes.schedule import ProbeFinding, ProbeKind
from tests.kit.pods import make_pod
from tests.kit.virtual_time import LoopClock, close_at_the_end

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


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Runs a server that handles each connection with ``talk``; yields its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.sleep(0.01)


def answering(response: bytes, heard: list[bytes] | None = None) -> Talk:
    """Reads a request, answers, closes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if heard is not None:
            heard.append(request)
        writer.write(response)
        await writer.drain()

    return talk


def redirecting(location: Callable[[int], str], code: int = 302) -> Talk:
    """Redirects the n-th request."""
    count = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        await reader.readuntil(b"\r\n\r\n")
        where = location(count)
        count += 1
        head = f"HTTP/1.1 {code} Found\r\nLocation: {where}\r\nContent-Length: 4\r\n\r\nover"
        writer.write(head.encode())
        await writer.drain()

    return talk


def dripping(start: bytes, drop: bytes = b"x", every: float = 0.02) -> Talk:
    """Sends a start, and then small pieces endlessly."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(every)

    return talk


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads and never answers."""
    await reader.read(-1)


def certificate(directory: Path) -> ssl.SSLContext:
    """A server's TLS context with a certificate that no client trusts."""
    pair = KeyPair.named(directory, "nobody")
    x509.make_self_signed(pair, Names("nobody"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    return context
