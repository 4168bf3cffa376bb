"""httpGet probes over HTTP/2 in the clear, with prior knowledge: no upgrade, no HTTP/1.

A module of its own because a node without such probes never loads it: it must be imported only
when needed. Each request has a new connection, as over HTTP/1.1; what a server sends is bounded.
Source: docs/reference/behaviour.md, m3; RFC 9113, 3.3.
"""

from __future__ import annotations

import functools

from kubeletpy.base.tasks import Turns
from kubeletpy.base.wire import http2
from kubeletpy.base.wire.http2 import Bounds
from kubeletpy.probes.handlers import actions
from kubeletpy.probes.handlers.http_messages import HttpRequest
from kubeletpy.probes.handlers.outcome import KEPT_OUTPUT, host_port
from kubeletpy.remote.unary_call import carry_out

BOUNDS = Bounds(bytes=128 * 1024, frames=512, pieces=512, headers=64 * 1024, interim=64)
"""A response may have as large a head as over HTTP/1.1; of its body KEPT_OUTPUT bytes are read."""


def exchange(turns: Turns) -> actions.Exchange:
    """Return a function that sends requests over HTTP/2; all probes of the loop share ``turns``."""
    return functools.partial(_exchange, turns)


async def _exchange(
    turns: Turns, resolver: actions.Resolver, request: HttpRequest
) -> actions.Answered:
    if request.tls:
        raise actions.HandlerExchangeFailed(
            "a probe over HTTP/2 in the clear does not follow redirects to https"
        )
    transfer = http2.Exchange(request.http2_head(), b"", BOUNDS, enough=KEPT_OUTPUT)
    try:
        sock = await resolver.connected(request.host, request.port)
    except OSError as error:
        where = host_port(request.host, request.port)
        raise actions.HandlerExchangeFailed(
            f"dial tcp {where}: {actions.error_text(error)}"
        ) from error
    try:
        await carry_out(transfer, sock, turns)
    except http2.ExchangeFailed as error:
        raise actions.HandlerExchangeFailed(str(error)) from error
    except OSError as error:
        raise actions.HandlerExchangeFailed(f"read: {actions.error_text(error)}") from error
    response = actions.HandlerResponse(transfer.status, bytes(transfer.body[:KEPT_OUTPUT]))
    return response, actions.following(request, transfer.status, transfer.headers.get("location"))
