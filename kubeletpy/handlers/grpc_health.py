"""The grpc handler: grpc.health.v1.Health/Check on a connection of its own, in the clear.

gRPC's own library queues an answer to each frame of a server, without a bound; a container could
exhaust the node's memory with it. The call is one small HTTP/2 exchange instead, with bounds on
bytes, frames and time. Must never be imported before it is needed: a node without such probes never
loads it.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from google.protobuf.message import DecodeError

from kubeletpy.handlers.grpc_call import (
    CallFailed,
    Response,
    framed,
    head,
    read_message,
    reset_code,
)
from kubeletpy.handlers.http2_client import Turns, carry_out
from kubeletpy.handlers.network import must_have_been_asked
from kubeletpy.handlers.outcome import Answer, Reply, go_seconds
from kubeletpy.handlers.ports import host_port
from kubeletpy.remote.errors import Code
from kubeletpy.version import KUBERNETES_MINOR
from kubeletpy.wire.http2_exchange import Cause, Exchange, ExchangeFailed
from kubeletpy.wire.messages import Field, message_classes

__all__ = ["Turns", "check"]

METHOD = "/grpc.health.v1.Health/Check"
SERVING = 1
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 0.5
"""Pauses between attempts to connect, which double; they are repeated as long as a probe lasts."""

_STATUS = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_FIELDS = {
    "HealthCheckRequest": [Field(1, "service", "string")],
    # int32 reads the enum's wire format unchanged, including values of later versions
    "HealthCheckResponse": [Field(1, "status", "int32")],
}


async def check(
    host: str, port: int, service: str, timeout: float, turns: Turns | None = None
) -> Reply:
    """Success if the service reports SERVING; connecting and asking share ``timeout`` seconds.

    ``turns``: shared by all checks of the event loop; None: this is the only one.

    Raises:
        HandlerError: the machine has run out of something, such as descriptors.
    """
    where = host_port(host, port)
    call = _Check(host, port, service, timeout, turns or Turns())
    try:
        async with asyncio.timeout(timeout):
            status = await call.answer()
    except TimeoutError:
        limit = go_seconds(timeout)
        if call.connected:
            return _failed(f"timeout: health rpc did not complete within {limit}")
        return _failed(
            f'timeout: failed to connect service "{where}" within {limit}: '
            "context deadline exceeded"
        )
    except CallFailed as error:
        if not call.connected:
            return _failed(f'error: failed to connect service at "{where}": {error.details}')
        return _failed(_words(error, timeout))
    if status != SERVING:
        known = 0 <= status < len(_STATUS)
        name = _STATUS[status] if known else str(status)
        return _failed(f'service unhealthy (responded with "{name}")')
    return Reply(Answer.SUCCESS, "service healthy")


class _Check:
    """One health check; ``connected`` once a server has sent its HTTP/2 settings."""

    def __init__(self, host: str, port: int, service: str, timeout: float, turns: Turns) -> None:
        self.connected = False
        request, self._response = _messages()
        self._body = framed(request(service=service).SerializeToString())
        self._host, self._port, self._turns = host, port, turns
        self._deadline = asyncio.get_running_loop().time() + timeout

    async def answer(self) -> int:
        """The status that the service reports; connecting is repeated until cancelled.

        Raises:
            CallFailed: the server answered an error or what no answer is.
            HandlerError: the machine has run out of something.
        """
        pause = FIRST_RETRY_S
        while True:
            exchange = self._exchange()
            try:
                await carry_out(exchange, self._host, self._port, self._turns)
                return self._status(exchange)
            except OSError as error:
                must_have_been_asked(error)
                if exchange.greeted:
                    raise CallFailed(Code.UNAVAILABLE, f"connection lost: {error}") from None
            except ExchangeFailed as error:
                if exchange.greeted or error.cause is not Cause.CLOSED:
                    raise _failure(error) from None
            finally:
                self.connected = exchange.greeted
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_RETRY_S)

    def _exchange(self) -> Exchange:
        within = self._deadline - asyncio.get_running_loop().time()
        authority = host_port(self._host, self._port)
        asked = head(authority, METHOD, f"kube-probe/{KUBERNETES_MINOR}", within)
        return Exchange(asked, self._body)

    def _status(self, exchange: Exchange) -> int:
        response = Response(
            exchange.status, exchange.headers, bytes(exchange.body), exchange.trailers
        )
        try:
            return int(self._response.FromString(read_message(response)).status)
        except DecodeError:
            text = "grpc: failed to unmarshal the received message"
            raise CallFailed(Code.INTERNAL, text) from None


def _failure(error: ExchangeFailed) -> CallFailed:
    match error.cause:
        case Cause.RESET:
            text = f"stream terminated by RST_STREAM with error code: {error.reset}"
            return CallFailed(reset_code(error.reset), text)
        case Cause.BOUNDS:
            text = f"{error} in answer to one health check; it was disconnected"
            return CallFailed(Code.RESOURCE_EXHAUSTED, text)
        case _:
            return CallFailed(Code.UNAVAILABLE, str(error))


def _failed(text: str) -> Reply:
    return Reply(Answer.FAILURE, text)


def _words(error: CallFailed, timeout: float) -> str:
    if error.code is Code.UNIMPLEMENTED:
        return (
            "error: this server does not implement the grpc health protocol "
            f"(grpc.health.v1.Health): {error.details}"
        )
    if error.code is Code.DEADLINE_EXCEEDED:
        return f"timeout: health rpc did not complete within {go_seconds(timeout)}"
    code = error.code.shown
    return f"error: health rpc probe failed: rpc error: code = {code} desc = {error.details}"


@functools.cache
def _messages() -> tuple[Any, Any]:
    """HealthCheckRequest and HealthCheckResponse."""
    found = message_classes("grpc.health.v1", _FIELDS)
    return found["HealthCheckRequest"], found["HealthCheckResponse"]
