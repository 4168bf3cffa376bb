"""Clients of a server that use the agent's own HTTP/2 client, through a proxy that ends HTTP/2."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kubeletpy.kubeapi.http2 import Stream
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.sessions import Session
from kubeletpy.kubeapi.transport import Attempt
from tests.contract.client import ANSWER_S, JSON, Answer, Client, _target, parsed
from tests.contract.server import Server
from tests.http2.certificates import Certificates
from tests.http2.front import in_front_of

T = TypeVar("T")
_WHO = "x-contract-who"


class Way:
    """The loop on a thread, with the server in front and the connection to it."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._stack = AsyncExitStack()
        self._server = server
        self._behind = dict(server._clients)
        self.pool = self.wait(self._open(Certificates.made(directory)))
        for who, client in self._behind.items():
            server._clients[who] = Http2Client(
                client.url, client.context, client.token, who=who, way=self
            )

    async def _open(self, certificates: Certificates) -> Session:
        front = await self._stack.enter_async_context(
            in_front_of(
                self._behind["admin"].url,
                certificates.server(),
                lambda headers: self._behind[headers[_WHO]].context,
            )
        )
        pool = Session(Connection(front.url, certificates.client()))
        self._stack.push_async_callback(pool.close)
        return pool

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(2 * ANSWER_S)

    def close(self) -> int:
        """Give the server its own clients back; returns how many connections there were."""
        self._server._clients.update(self._behind)
        count = len(self.pool._connections)
        self.wait(self._stack.aclose())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        return count


async def _lines(stream: Stream) -> AsyncGenerator[bytes, None]:
    rest = b""
    async for chunk in stream.chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


@dataclass(frozen=True, slots=True)
class Http2Client(Client):
    """The same identity, by way of HTTP/2."""

    who: str = ""
    way: Any = None

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        payload = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        data = payload.encode() if isinstance(payload, str) else payload
        headers = {"Accept": accept} | ({"Content-Type": content_type} if data else {})

        async def answered() -> Answer:
            stream = await self._open(method, _target(path, query), headers, data, ANSWER_S)
            text = await stream.read()
            supplied = {name.decode(): value.decode() for name, value in stream._headers}
            return Answer(stream.status, supplied, parsed(text))

        return self.way.wait(answered())  # type: ignore[no-any-return]

    def follow(
        self,
        path: str,
        until: Callable[[list[JSON]], bool] = lambda _: False,
        *,
        seconds: float = ANSWER_S,
        query: Mapping[str, object] | None = None,
        accept: str = "application/json",
        begun: Callable[[], object] = lambda: None,
    ) -> tuple[int, Any]:
        target = _target(path, {"watch": "true", **(query or {})})

        async def followed() -> tuple[int, Any]:
            stream = await self._open("GET", target, {"Accept": accept}, None, 2 * ANSWER_S)
            if stream.status != 200:
                return stream.status, parsed(await stream.read())
            # requests meanwhile wait for this loop
            await asyncio.to_thread(begun)
            events: list[JSON] = []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds), contextlib.aclosing(_lines(stream)) as lines:
                    while not until(events) and (line := await anext(lines, None)) is not None:
                        events.append(json.loads(line))
            stream.close()
            return 200, events

        return self.way.wait(followed())  # type: ignore[no-any-return]

    async def _open(
        self, method: str, target: str, headers: dict[str, str], data: bytes | None, seconds: float
    ) -> Stream:
        headers = {**headers, "User-Agent": "contract/1", _WHO: self.who}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        pool: Session = self.way.pool
        lasting = "watch=true" in target
        attempt = Attempt(method, target, headers, data, seconds, seconds, lasting)
        stream = await pool.request(attempt)
        assert isinstance(stream, Stream)
        return stream
