"""Faults of a soak: the agent is killed, its runtime or API is down for a while.

Each fault runs to its end, even if the churn is over before. All randomness comes from the seed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.stand import Stand


class Health:
    """Counts the time without faults, which may overlap."""

    def __init__(self) -> None:
        self._faults = 0
        self._sum = 0.0
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        """Total healthy seconds so far."""
        running = 0.0 if self._faults else time.monotonic() - self._since
        return self._sum + running

    @contextmanager
    def fault(self) -> Iterator[None]:
        """Mark a fault until the end of the block."""
        self._sum = self.seconds
        self._faults += 1
        try:
            yield
        finally:
            self._faults -= 1
            self._since = time.monotonic()


class ConnectionLimiter:
    """Relays bytes to a port on this machine."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Accept connections; always on the same port."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Refuse new connections and cut existing ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(far_writer)
            try:
                there = asyncio.create_task(_copy(reader, far_writer))
                await _copy(far_reader, writer)
                there.cancel()
            finally:
                self._writers.discard(far_writer)
                far_writer.transport.abort()
        except OSError:
            pass  # nothing listens there: this side is closed below, which the client notices
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass  # one of the two was cut: the other ends next
    finally:
        writer.transport.abort()


OTHERS_EVERY = 14.0
LONGEST = 8.0
"""Default duration of a fault, in seconds."""
RESTARTED = "containerd restarted"
KILLED = f"agent {signal.SIGKILL.name}"
READY_WITHIN = 60.0
LOOK = 0.1
_SOON = 0.05


class Faults:
    """Run :meth:`kills`, :meth:`others` and :meth:`guard` as tasks.

    Attributes:
        counts: how often each happened.
        violations: an agent that died or did not come back.
    """

    def __init__(
        self,
        stand: Stand,
        limiter: ConnectionLimiter,
        kubeconfig: Path,
        health: Health,
        draw: random.Random,
        *,
        longest: float,
    ) -> None:
        """Take the parts of a soak and the seed. A fault lasts at most ``longest`` seconds."""
        self._stand, self._limiter, self._kubeconfig = stand, limiter, kubeconfig
        self._health = health
        self._draw = draw
        self._agent = asyncio.Lock()
        self._longest = longest
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.done: list[str] = []
        """Faults with their times, for people."""

    async def kills(self, every: float) -> None:
        """kill -9 the agent, about every ``every`` seconds; sometimes SIGTERM it instead."""
        while True:
            await asyncio.sleep(self._draw.uniform(0.6, 1.4) * every)
            number = self._draw.choice([signal.SIGKILL] * 4 + [signal.SIGTERM])
            self.counts[f"agent {number.name}"] += 1
            await _finished(asyncio.ensure_future(self._kill(number)))

    async def others(self) -> None:
        """Restart the runtime, pause the API, and refuse its port."""
        kinds: dict[str, Callable[[float], Awaitable[None]]] = {
            RESTARTED: self._containerd,
            "API paused": self._pause,
            "API refused": self._refuse,
        }
        while True:
            await asyncio.sleep(self._draw.uniform(0.6, 1.4) * OTHERS_EVERY)
            kind = self._draw.choice(list(kinds))
            seconds = self._draw.uniform(0.1, self._longest)
            self.counts[kind] += 1
            with self._health.fault(), self._noted(kind):
                await _finished(asyncio.ensure_future(kinds[kind](seconds)))
                await self.ready()

    async def guard(self) -> None:
        """Report when the agent dies by itself, and restart it."""
        while True:
            await asyncio.sleep(1)
            async with self._agent:
                died = self._stand.agent_process.died()
                if died:
                    self.violations.append(f"the agent died: {died}")
                    await self.start_agent()

    async def _kill(self, number: int) -> None:
        async with self._agent:
            with self._health.fault(), self._noted(f"agent {signal.Signals(number).name}"):
                await asyncio.to_thread(self._stand.agent_process.kill, number)
                await asyncio.sleep(self._draw.choice([0, 0, _SOON, 2]))
                await self.start_agent()

    @contextmanager
    def _noted(self, kind: str) -> Iterator[None]:
        begun = time.strftime("%H:%M:%S", time.gmtime())
        try:
            yield
        finally:
            self.done.append(f"{begun} to {time.strftime('%H:%M:%S', time.gmtime())}: {kind}")

    async def start_agent(self) -> None:
        """Start the agent's process and wait until it reports that it is healthy."""
        await asyncio.to_thread(self._stand.launch_agent, self._kubeconfig)
        await self.ready()

    async def ready(self) -> None:
        """Wait until the agent reports that it is healthy."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_WITHIN
        while not await asyncio.to_thread(self._healthy):
            if loop.time() > deadline:
                self.violations.append(f"the agent was not healthy for {READY_WITHIN:g} s")
                return
            await asyncio.sleep(LOOK)

    def _healthy(self) -> bool:
        url = f"http://127.0.0.1:{self._stand.health_port}/healthz"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    async def _containerd(self, seconds: float) -> None:
        runtime = self._stand.agent_runtime
        killed = self._draw.random() < 0.5
        self.counts["containerd killed"] += killed
        await asyncio.to_thread(runtime.kill if killed else runtime.stop)
        await asyncio.sleep(seconds / 4)
        await asyncio.to_thread(runtime.start)

    async def _pause(self, seconds: float) -> None:
        pid = self._stand.api_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    async def _refuse(self, seconds: float) -> None:
        self._limiter.close()
        try:
            await asyncio.sleep(seconds)
        finally:
            await self._limiter.open()


async def _finished(task: asyncio.Future[None]) -> None:
    """Wait until it has ended, even if the waiting task is cancelled."""
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
