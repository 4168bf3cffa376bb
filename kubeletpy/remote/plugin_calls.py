"""Calls to a plugin on the node: a gRPC service behind a unix socket of unknown origin.

The answering program may be a driver, an old socket file or anything else. So messages are bounded,
each call has a deadline, and an unreadable answer is an error like any other. Never repeats a call.
Must never log or raise a request's content: requests carry secrets. Source:
docs/reference/behaviour-storage.md, sk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message

from kubeletpy.base.text import scrub
from kubeletpy.remote.connection import cancellation_requested, dial_target, stubs
from kubeletpy.remote.errors import Code, is_silence, no_answer

Answer = TypeVar("Answer", bound=Message)

MAX_ANSWER = 1024 * 1024
"""Bytes of the largest answer that is read."""
MAX_METADATA = 64 * 1024
"""Bytes of an answer's headers, which include an error's text."""
LARGE_ANSWER = 64 * 1024
"""Bytes above which an answer is parsed in a thread."""
_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_metadata_size", MAX_METADATA),
    ("grpc.absolute_max_metadata_size", MAX_METADATA),
    ("grpc.http2.max_frame_size", 16 * 1024),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)


class PluginCallFailed(Exception):
    """A call to a plugin failed; its text names the plugin and the call, and holds no secret.

    Attributes:
        code: gRPC's status.
        call: ``NodeStageVolume of driver x``.
        details: the plugin's message.
        answered: the plugin itself reported it; False: the call was lost, or its answer was
            nonsense.
    """

    def __init__(self, code: Code, call: str, details: str, *, answered: bool = True) -> None:
        self.code = code
        self.call = call
        self.details = scrub(details)
        self.answered = answered
        super().__init__(f"{call}: rpc error: code = {code.reported} desc = {self.details}")


async def _parsed(answer: type[Answer], data: bytes, call: str) -> Answer:
    """Parse an answer, in a thread if it is large. Raises PluginCallFailed."""
    try:
        if len(data) > LARGE_ANSWER:
            return await asyncio.to_thread(answer.FromString, data)
        return answer.FromString(data)
    except DecodeError:
        text = "the answer is not what the call returns"
        raise PluginCallFailed(Code.INTERNAL, call, text, answered=False) from None


class Calls(Protocol):
    """One service of one plugin: behind a socket, or simulated."""

    async def call(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        within: float,
        *,
        secrets: Iterable[str] = (),
    ) -> Answer:
        """Call ``method`` and wait at most ``within`` seconds. Raises PluginCallFailed."""

    async def close(self) -> None:
        """Let go of the plugin; calls in flight end with Canceled."""


class PluginCalls:
    """One service of one plugin, over a persistent connection that is restored when lost.

    Make it inside a running event loop and ``close`` it there.
    """

    def __init__(
        self,
        socket: str,
        service: ServiceDescriptor,
        plugin: str,
        max_answer: int = MAX_ANSWER,
        *,
        more: Iterable[ServiceDescriptor] = (),
    ) -> None:
        """Connect to ``socket`` in the background, whenever something listens there.

        Args:
            socket: the path of the plugin's socket.
            service: the one that it must have.
            plugin: names it in errors: ``driver x``.
            max_answer: bytes of the largest answer that is read.
            more: services that it may have in addition.

        Raises:
            EndpointError: nothing can listen there.
        """
        options = [*_OPTIONS, ("grpc.max_receive_message_length", max_answer)]
        self._channel = grpc.aio.insecure_channel(dial_target(socket), options=options)
        self._stubs = stubs(self._channel, service)
        for each in more:
            self._stubs |= stubs(self._channel, each)
        self._plugin = plugin
        self._closed = False

    async def connect(self, within: float) -> None:
        """Return once something listens; at most ``within`` seconds. Raises PluginCallFailed."""
        try:
            async with asyncio.timeout(within):
                await self._channel.channel_ready()
        except TimeoutError:
            call = f"connecting to {self._plugin}"
            raise PluginCallFailed(
                Code.UNAVAILABLE, call, no_answer(within), answered=False
            ) from None

    async def call(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        within: float,
        *,
        secrets: Iterable[str] = (),
    ) -> Answer:
        """Call ``method`` and wait at most ``within`` seconds for its answer.

        ``secrets`` are kept out of errors, whatever the plugin answers. Raises PluginCallFailed.
        """
        call = f"{method} of {self._plugin}"
        if self._closed:
            raise self._lost(call)
        try:
            # gRPC enforces the deadline too, but the wait must end even if it didn't
            async with asyncio.timeout(within + 1):
                data = await self._stubs[method](request, timeout=within)
        except grpc.aio.AioRpcError as error:
            code, details = Code[error.code().name], scrub(error.details() or "", secrets)
            if is_silence(code, details):
                code, details = Code.DEADLINE_EXCEEDED, no_answer(within)
            raise PluginCallFailed(code, call, details) from None
        except TimeoutError:
            raise PluginCallFailed(
                Code.DEADLINE_EXCEEDED, call, no_answer(within), answered=False
            ) from None
        except asyncio.CancelledError:
            if not self._closed or cancellation_requested():
                raise
            raise self._lost(call) from None
        return await _parsed(answer, data, call)

    async def follow(self, changed: Callable[[bool], None]) -> None:
        """Keep the connection up, and call ``changed`` with whether it is; until closed."""
        state = self._channel.get_state(try_to_connect=True)
        while not self._closed and state is not grpc.ChannelConnectivity.SHUTDOWN:
            changed(state is grpc.ChannelConnectivity.READY)
            await self._channel.wait_for_state_change(state)
            state = self._channel.get_state(try_to_connect=True)

    async def stream(
        self, method: str, request: Message, answer: type[Answer]
    ) -> AsyncIterator[Answer]:
        """Yield answers for as long as the plugin sends any; the next is read on demand.

        Raises PluginCallFailed, also when the connection is lost.
        """
        call = f"{method} of {self._plugin}"
        if self._closed:
            raise self._lost(call)
        try:
            async for data in self._stubs[method](request):
                yield await _parsed(answer, data, call)
        except grpc.aio.AioRpcError as error:
            details = scrub(error.details() or "")
            raise PluginCallFailed(Code[error.code().name], call, details) from None
        except asyncio.CancelledError:
            if not self._closed or cancellation_requested():
                raise
            raise self._lost(call) from None

    async def close(self) -> None:
        """Let go of the plugin; calls in flight end with Canceled. Idempotent."""
        if not self._closed:
            self._closed = True
            await self._channel.close(None)

    @staticmethod
    def _lost(call: str) -> PluginCallFailed:
        text = "the plugin has disconnected"
        return PluginCallFailed(Code.CANCELLED, call, text, answered=False)
