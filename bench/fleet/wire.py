"""Connection of an agent to the server of a fleet, with latency and with broken connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from bench.fleet.server import RETRY_AFTER, Asked, FleetServer, Lost
from kubeletpy.kubeapi.transport import MAX_ANSWER_BYTES, Attempt, Response, TransportError
from kubeletpy.kubeapi.watch_state import MAX_WATCHES, Usage
from kubeletpy_up.storage.watch import Subscription

LATENCY_S = (0.0005, 0.002)
"""One way."""
HANDSHAKE_S = 0.005


class FleetWire:
    """One HTTP/2 connection of one node (:class:`kubeletpy.kubeapi.transport.Transport`)."""

    def __init__(self, server: FleetServer, node: str) -> None:
        self._server = server
        self._node = node
        self._connected_in = -1
        self._open = 0

    async def request(self, attempt: Attempt) -> FleetResponse:
        """One attempt. Raises TransportError."""
        kind, seconds = attempt.headers.get("Content-Type", ""), attempt.seconds
        requested = Asked(attempt.method, attempt.path, kind, attempt.data)
        try:
            async with asyncio.timeout(attempt.connect_seconds if attempt.lasting else seconds):
                await self._connect()
                await asyncio.sleep(self._server.rng.uniform(*LATENCY_S))
                status, answer = await self._server.answer(self._node, requested)
                await asyncio.sleep(self._server.rng.uniform(*LATENCY_S))
        except Lost as lost:
            self._connected_in = -1
            raise TransportError(str(lost)) from lost
        except TimeoutError:
            raise TransportError(f"no answer in {seconds:g} s") from None
        return FleetResponse(self._server, status, answer, seconds)

    async def _connect(self) -> None:
        if self._connected_in == self._server.generation:
            return
        self._connected_in = self._server.generation
        self._server.connections[int(asyncio.get_running_loop().time())] += 1
        await asyncio.sleep(HANDSHAKE_S)

    @property
    def watch_capacity(self) -> int:
        """Pods of a fleet share few objects."""
        return MAX_WATCHES

    @property
    def usage(self) -> Usage:
        """The server counts connections."""
        return Usage({})

    @property
    def idle(self) -> bool:
        """Always true: it matters only when credentials change."""
        return True

    def retire(self) -> None:
        """Nothing to do: credentials never change."""

    async def close(self) -> None:
        """Nothing is held open here: a watch ends with its reader."""


class FleetResponse(Response):
    """An answer."""

    content_length = None

    def __init__(self, server: FleetServer, status: int, answer: object, seconds: float) -> None:
        self._server = server
        self.status = status
        self._answer = answer
        self._seconds = seconds

    def header(self, name: str) -> str:
        """The Retry-After header; agents read no other."""
        return RETRY_AFTER if name == "retry-after" and self.status == 429 else ""

    async def read(self, limit: int = MAX_ANSWER_BYTES) -> bytes:
        """The complete body."""
        return json.dumps(self._answer).encode()

    async def encoded_chunks(self) -> AsyncIterator[bytes]:
        """The lines of a watch. Raises TransportError when the server goes down."""
        assert isinstance(self._answer, Subscription)
        try:
            async with asyncio.timeout(self._seconds):
                async for line in self._server.lines(self._answer):
                    await asyncio.sleep(self._server.rng.uniform(*LATENCY_S))
                    yield line
        except (Lost, TimeoutError) as error:
            raise TransportError(str(error) or "timeout") from error

    def close(self) -> None:
        """Drop what has not been read."""
        if isinstance(self._answer, Subscription):
            self._answer.close()
