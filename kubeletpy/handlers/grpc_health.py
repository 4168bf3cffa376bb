"""The grpc handler: grpc.health.v1.Health/Check on a connection of its own, in the clear.

The two messages are defined here, so that no package is needed for them. Must never be imported
before it is needed: a node without such probes never loads it.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import grpc
import grpc.aio

from kubeletpy.handlers.network import must_have_been_asked, new_socket
from kubeletpy.handlers.outcome import Answer, Reply, go_seconds
from kubeletpy.handlers.ports import host_port
from kubeletpy.remote.errors import code_in_words
from kubeletpy.version import KUBERNETES_MINOR
from kubeletpy.wire.messages import Field, message_classes

METHOD = "/grpc.health.v1.Health/Check"
SERVING = 1
MAX_ANSWER = 64 * 1024
"""Bytes."""

_STATUS = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_FIELDS = {
    "HealthCheckRequest": [Field(1, "service", "string")],
    # int32 reads the enum's wire format unchanged, including values of later versions
    "HealthCheckResponse": [Field(1, "status", "int32")],
}
_OPTIONS = (
    ("grpc.primary_user_agent", f"kube-probe/{KUBERNETES_MINOR}"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", MAX_ANSWER),
    ("grpc.max_metadata_size", MAX_ANSWER),
    # The probe's own period is the backoff; connecting is retried as long as the probe lasts.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


async def check(host: str, port: int, service: str, timeout: float) -> Reply:
    """Success if the service reports SERVING; connecting and asking share ``timeout`` seconds.

    Raises:
        HandlerError: the machine has run out of something, such as descriptors.
    """
    where = host_port(host, port)
    request, response = _messages()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    target = f"ipv6:{where}" if ":" in host else f"ipv4:{where}"
    async with grpc.aio.insecure_channel(target, options=list(_OPTIONS)) as channel:
        try:
            async with asyncio.timeout(timeout):
                await channel.channel_ready()
        except TimeoutError:
            _must_have_sockets(host)
            limit = go_seconds(timeout)
            return _failed(
                f'timeout: failed to connect service "{where}" within {limit}: '
                "context deadline exceeded"
            )
        stub = channel.unary_unary(
            METHOD,
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        try:
            answer = await stub(
                request(service=service), timeout=max(0.001, deadline - loop.time())
            )
        except grpc.aio.AioRpcError as error:
            _must_have_sockets(host)
            return _failed(_words(error, timeout))
    if answer.status != SERVING:
        known = 0 <= answer.status < len(_STATUS)
        name = _STATUS[answer.status] if known else str(answer.status)
        return _failed(f'service unhealthy (responded with "{name}")')
    return Reply(Answer.SUCCESS, "service healthy")


def _must_have_sockets(host: str) -> None:
    """gRPC does not say that it could make none. Raises HandlerError."""
    try:
        new_socket(host).close()
    except OSError as error:
        must_have_been_asked(error)


def _failed(text: str) -> Reply:
    return Reply(Answer.FAILURE, text)


def _words(error: grpc.aio.AioRpcError, timeout: float) -> str:
    details = (error.details() or "")[:1024]
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return (
            "error: this server does not implement the grpc health protocol "
            f"(grpc.health.v1.Health): {details}"
        )
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"timeout: health rpc did not complete within {go_seconds(timeout)}"
    code = code_in_words(error.code().name)
    return f"error: health rpc probe failed: rpc error: code = {code} desc = {details}"


@functools.cache
def _messages() -> tuple[Any, Any]:
    """HealthCheckRequest and HealthCheckResponse."""
    found = message_classes("grpc.health.v1", _FIELDS)
    return found["HealthCheckRequest"], found["HealthCheckResponse"]
