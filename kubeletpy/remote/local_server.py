"""A gRPC service of the agent's own on a unix socket: for programs on this node, run by root.

Message sizes and the number of concurrent calls are bounded, and on request calls a second and how
long a stream may be left unread. Messages are passed as bytes, so that a server loads their types
only when it is called. Must never listen on a network.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.structs import Component, Struct
from kubeletpy.remote.connection import MAX_SOCKET_PATH, EndpointError, dial_target
from kubeletpy.remote.errors import Code


class Rate(Component):
    """A limit of calls per second, with a burst. Pure: time is an argument."""

    per_second: float
    burst: int

    def __post_init__(self) -> None:
        self._left = float(self.burst)
        self._at = float("-inf")

    def takes(self, now: float) -> bool:
        """Whether a call now is within the limit. ``now`` in seconds."""
        more = (now - self._at) * self.per_second
        self._left = min(self.burst, self._left + more)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


log = logging.getLogger(__name__)

Request = TypeVar("Request", bound=Message)

MAX_REQUEST = 64 * 1024
"""Bytes of the largest request that is read."""
CLOSE_S = 0.2
"""Seconds that calls in flight may still take when the server closes."""
TOO_FAST = "rejected by rate limit"
"""Clients written for the kubelet compare the whole text; nothing may be added."""
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_REQUEST),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.so_reuseport", 0),
)

Answer = Callable[[bytes], Awaitable[bytes]]
"""From a request to its answer; raises CallRefused."""
Stream = Callable[[bytes], AsyncGenerator[bytes]]
"""From a request to its answers, until the caller hangs up; raises CallRefused."""
Ended = Callable[[str, str, Code], None]
"""Called with the service's full name, the method and the status of a call that has ended."""


class StreamStall(Struct, frozen=True):
    """How long a caller of a stream may leave a message unread, and what happens then.

    Attributes:
        seconds: until the call ends with RESOURCE_EXHAUSTED.
        text: the message of that error.
        happened: called for each call that is ended so.
    """

    seconds: float
    text: str
    happened: Callable[[], None]


class CallRefused(Exception):
    """A call that is answered with an error."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


class LocalServer:
    """A server of some services on one socket. Make it inside a running event loop."""

    def __init__(
        self,
        path: Path,
        at_once: int,
        services: Mapping[str, Mapping[str, Answer]],
        *,
        streams: Mapping[str, Mapping[str, Stream]] | None = None,
        rate: Rate | None = None,
        ended: Ended = lambda service, method, code: None,
        stall: StreamStall | None = None,
    ) -> None:
        """Prepare the handlers; nothing listens at ``path`` before the server is started.

        Args:
            path: the socket.
            at_once: calls in flight at once; more are refused.
            services: by full name, the handlers of each method.
            streams: by the same names, the methods with any number of answers.
            rate: of the calls with one answer; more are refused.
            ended: called for each call that is not refused for its rate.
            stall: ends streams that are not read; None if they wait.
        """
        self._path = path
        self._server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=at_once)
        for service, answers in services.items():
            methods = {
                name: _handler(answer, rate, partial(ended, service, name))
                for name, answer in answers.items()
            }
            for name, stream in (streams or {}).get(service, {}).items():
                methods[name] = _stream_handler(stream, stall, partial(ended, service, name))
            handler = grpc.method_handlers_generic_handler(service, methods)
            self._server.add_generic_rpc_handlers((handler,))

    async def start(self) -> None:
        """Listen, for root only. Raises OSError."""
        long = len(os.fsencode(self._path))
        if long > MAX_SOCKET_PATH:
            raise OSError(
                f"its path has {long} bytes, and that of a unix socket {MAX_SOCKET_PATH} at most"
            )
        try:
            self._server.add_insecure_port(dial_target(str(self._path)))
        except (RuntimeError, EndpointError) as error:
            _try_to_bind(self._path)
            raise OSError(str(error)) from None
        self._path.chmod(0o600)
        await self._server.start()

    async def close(self) -> None:
        """Stop listening; the socket is removed."""
        await self._server.stop(CLOSE_S)


class NodeApi(Component):
    """An API for programs on this node, on a socket of its own; the node works without it.

    Create it inside a running event loop.
    """

    name: ClassVar[str]
    """The API's name in messages."""
    socket_name: ClassVar[str]

    directory: Path
    """Contains the socket alone."""

    def __post_init__(self) -> None:
        self._socket = self.directory / self.socket_name
        self._server: LocalServer | None = None
        self._problem = ""

    @abstractmethod
    def _made(self) -> LocalServer:
        """The server of the API's socket."""

    def problem(self) -> str:
        """Return why the API is not served, or "" if it is."""
        return f"the {self.name} API is not served: {self._problem}" if self._problem else ""

    async def start(self) -> None:
        """Listen on the socket; a failure is logged."""
        try:
            await asyncio.to_thread(self._prepare)
            server = self._made()
            await server.start()
            self._server = server
        except OSError as error:
            self._problem = str(error)
            extra = {"socket": str(self._socket), "why": str(error)}
            log.error(f"the {self.name} API is not served", extra=extra)

    async def close(self) -> None:
        """Stop listening and disconnect all clients."""
        if self._server is not None:
            await self._server.close()

    def _prepare(self) -> None:
        self._socket.parent.mkdir(0o750, parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)


def _try_to_bind(path: Path) -> None:
    """Try to bind, as gRPC does not state why it can't. Raises OSError."""
    with complete_errors(path), socket.socket(socket.AF_UNIX) as tried:
        tried.bind(str(path))
    path.unlink()


def parsed(message: type[Request], data: bytes) -> Request:
    """A request, parsed. Raises CallRefused."""
    try:
        return message.FromString(data)
    except DecodeError:
        raise CallRefused(Code.INVALID_ARGUMENT, "the request can't be read") from None


def _handler(
    answer: Answer, rate: Rate | None, ended: Callable[[Code], None]
) -> grpc.RpcMethodHandler[Any, Any]:
    async def serve(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        try:
            if rate is not None and not rate.takes(asyncio.get_running_loop().time()):
                raise CallRefused(Code.RESOURCE_EXHAUSTED, TOO_FAST)
            with _counted(ended):
                return await answer(request)
        except CallRefused as error:
            await context.abort(grpc.StatusCode[error.code.name], str(error))
            raise  # abort has raised already

    return grpc.unary_unary_rpc_method_handler(serve)


def _stream_handler(
    stream: Stream, stall: StreamStall | None, ended: Callable[[Code], None]
) -> grpc.RpcMethodHandler[Any, Any]:
    async def serve(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        try:
            with _counted(ended):
                async with aclosing(stream(request)) as answers:
                    async for each in answers:
                        await _write(context, each, stall)
        except CallRefused as error:
            await context.abort(grpc.StatusCode[error.code.name], str(error))

    return grpc.unary_stream_rpc_method_handler(serve)


async def _write(
    context: grpc.aio.ServicerContext[Any, Any], answer: bytes, stall: StreamStall | None
) -> None:
    """Send an answer once the caller has read enough of those before. Raises CallRefused."""
    if stall is None:
        await context.write(answer)
        return
    try:
        async with asyncio.timeout(stall.seconds):
            await context.write(answer)
    except TimeoutError:
        stall.happened()
        raise CallRefused(Code.RESOURCE_EXHAUSTED, stall.text) from None


@contextmanager
def _counted(ended: Callable[[Code], None]) -> Iterator[None]:
    """Report how a call ends, however it does."""
    code = Code.UNKNOWN
    try:
        yield
        code = Code.OK
    except CallRefused as error:
        code = error.code
        raise
    except asyncio.CancelledError:
        code = Code.CANCELLED
        raise
    finally:
        ended(code)
