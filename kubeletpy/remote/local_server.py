"""A gRPC service of the agent's own on a unix socket: for programs of this node, run by root.

Sizes of messages and the number of calls at once are bounded. Messages come and go as bytes, so
that who serves loads their types when somebody calls. Must never listen on a network.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from kubeletpy.remote.endpoint import EndpointError, dial_target
from kubeletpy.remote.errors import Code

Request = TypeVar("Request", bound=Message)

MAX_REQUEST = 64 * 1024
"""Bytes of the largest request that is read."""
CLOSE_S = 0.2
"""How long calls under way may take yet when it ends."""
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_REQUEST),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.so_reuseport", 0),
)

Answer = Callable[[bytes], Awaitable[bytes]]
"""From a request to its answer; raises CallRefused."""


class CallRefused(Exception):
    """A call is answered with an error."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


class LocalServer:
    """Make it inside a running event loop."""

    def __init__(
        self, socket: Path, at_once: int, services: Mapping[str, Mapping[str, Answer]]
    ) -> None:
        """Args:
        at_once: calls under way; more are refused.
        services: by full name, the answers of each method.
        """
        self._socket = socket
        self._server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=at_once)
        for service, answers in services.items():
            methods = {name: _handler(answer) for name, answer in answers.items()}
            handler = grpc.method_handlers_generic_handler(service, methods)
            self._server.add_generic_rpc_handlers((handler,))

    async def start(self) -> None:
        """Listen, for root only. Raises OSError."""
        try:
            self._server.add_insecure_port(dial_target(str(self._socket)))
        except (RuntimeError, EndpointError) as error:
            raise OSError(f"can't listen on {self._socket}: {error}") from None
        self._socket.chmod(0o600)
        await self._server.start()

    async def close(self) -> None:
        """Listen no longer; the socket is removed."""
        await self._server.stop(CLOSE_S)


def parsed(message: type[Request], data: bytes) -> Request:
    """A request. Raises CallRefused."""
    try:
        return message.FromString(data)
    except DecodeError:
        raise CallRefused(Code.INVALID_ARGUMENT, "the request can't be read") from None


def _handler(answer: Answer) -> grpc.RpcMethodHandler[Any, Any]:
    async def serve(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        try:
            return await answer(request)
        except CallRefused as error:
            await context.abort(grpc.StatusCode[error.code.name], str(error))
            raise  # abort has

    return grpc.unary_unary_rpc_method_handler(serve)
