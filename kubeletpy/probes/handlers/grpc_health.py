"""The grpc handler: grpc.health.v1.Health/Check on a new connection for each call.

gRPC's own library queues an answer to each frame of a server, without a bound; a container could
exhaust the node's memory with it. The call is one small HTTP/2 exchange instead, with bounds on
bytes, frames and time. Must never be imported before it is needed: a node without such probes never
loads it.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from typing import Any

from google.protobuf.message import DecodeError

from kubeletpy.base.api.times import format_duration
from kubeletpy.base.tasks import Turns
from kubeletpy.base.wire.api_messages import MessageField, message_classes
from kubeletpy.base.wire.listener import curves
from kubeletpy.probes.handlers.actions import connected, raise_if_not_probed, unchecked_context
from kubeletpy.probes.handlers.outcome import HandlerResult, Reply, host_port
from kubeletpy.remote.errors import Code
from kubeletpy.remote.grpc_message import CallFailed
from kubeletpy.remote.unary_call import UnaryCall

METHOD = "/grpc.health.v1.Health/Check"
SERVING = 1

_STATUS = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_FIELDS = {
    "HealthCheckRequest": [MessageField(1, "service", "string")],
    # int32 reads the enum's wire format unchanged, including values of later versions
    "HealthCheckResponse": [MessageField(1, "status", "int32")],
}


async def check(
    host: str,
    port: int,
    service: str,
    timeout: float,
    turns: Turns | None = None,
    *,
    tls: bool = False,
    agent: str = "kube-probe",
) -> Reply:
    """Success if the service reports SERVING; connecting and the call share ``timeout`` seconds.

    Args:
        host: an address.
        port: of the server.
        service: whose health is queried; empty: that of the whole server.
        timeout: in seconds.
        turns: shared by all checks of the event loop; None: this is the only one.
        tls: over TLS, without verifying the server; it must agree on HTTP/2 (ALPN).
        agent: the User-Agent.

    Raises:
        HandlerError: the machine has run out of something, such as descriptors.
    """
    where = host_port(host, port)
    request, response = _messages()

    async def connect() -> socket.socket:
        return await _connected(host, port)

    requested = request(service=service).SerializeToString()
    contexts = [unchecked_context(curve, "h2") for curve in curves()] if tls else [None]
    call = UnaryCall(connect, where, METHOD, agent, turns or Turns(), tls=contexts)
    try:
        async with asyncio.timeout(timeout):
            status = _status(response, await call.answer(requested, timeout))
    except TimeoutError:
        limit = format_duration(int(timeout))
        if call.connected:
            return _failed(f"timeout: health rpc did not complete within {limit}")
        return _failed(
            f'timeout: failed to connect service "{where}" within {limit}: '
            "context deadline exceeded"
        )
    except CallFailed as error:
        if not call.connected:
            return _failed(f'error: failed to connect service at "{where}": {error.details}')
        return _failed(_parts(error, timeout))
    if status != SERVING:
        known = 0 <= status < len(_STATUS)
        name = _STATUS[status] if known else str(status)
        return _failed(f'service unhealthy (responded with "{name}")')
    return Reply(HandlerResult.SUCCESS, "service healthy")


async def _connected(host: str, port: int) -> socket.socket:
    """A connection. Raises OSError, and HandlerError when the machine has run out of something."""
    try:
        return await connected(host, port)
    except OSError as error:
        raise_if_not_probed(error)
        raise


def _status(response: Any, message: bytes) -> int:
    """The status in a HealthCheckResponse. Raises CallFailed."""
    try:
        return int(response.FromString(message).status)
    except DecodeError:
        text = "grpc: failed to unmarshal the received message"
        raise CallFailed(Code.INTERNAL, text) from None


def _failed(text: str) -> Reply:
    return Reply(HandlerResult.FAILURE, text)


def _parts(error: CallFailed, timeout: float) -> str:
    if error.code is Code.UNIMPLEMENTED:
        return (
            "error: this server does not implement the grpc health protocol "
            f"(grpc.health.v1.Health): {error.details}"
        )
    if error.code is Code.DEADLINE_EXCEEDED:
        return f"timeout: health rpc did not complete within {format_duration(int(timeout))}"
    code = error.code.reported
    return f"error: health rpc probe failed: rpc error: code = {code} desc = {error.details}"


@functools.cache
def _messages() -> tuple[Any, Any]:
    """HealthCheckRequest and HealthCheckResponse."""
    found = message_classes("grpc.health.v1", _FIELDS)
    return found["HealthCheckRequest"], found["HealthCheckResponse"]
