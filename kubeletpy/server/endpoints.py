"""The endpoints that settings switch on and off: node logs, checkpoints, debugging.

An endpoint that is off answers 405 with a message where the kubelet does; otherwise it does not
exist. Rarely used endpoints are loaded by their first request.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from aiohttp import web

from kubeletpy.base.clock import Clock
from kubeletpy.server.app import Handler
from kubeletpy.server.debug import log_level, zpages
from kubeletpy.server.debug.program import RunningProgram
from kubeletpy.server.node_view import NodeView
from kubeletpy.server.objects import allocated_handlers
from kubeletpy.server.routes import ROUTES
from kubeletpy.server.settings import EndpointSettings

_SECRET_FLAG = "manifest-url-header"


def handlers(
    view: NodeView,
    settings: EndpointSettings,
    program: RunningProgram,
    clock: Clock,
    *,
    write_timeout: float,
) -> Mapping[str, Handler]:
    """Handlers by route name."""

    def node_logs() -> Handler:
        from kubeletpy.server.node_logs import handler

        queries = settings.system_log_query
        return handler.handler(settings.log_dir, queries=queries, write_timeout=write_timeout)

    def pprof() -> Handler:
        from kubeletpy.server.debug import pprof

        return pprof.handler(_shown(sys.argv), clock)

    def checkpoint(directory: Path) -> Handler:
        from kubeletpy.server import checkpoint

        return checkpoint.handler(view, directory, clock)

    found: dict[str, Handler] = {
        "logs": _on_first_request(node_logs)
        if settings.system_logs
        else _disabled("logs endpoint is disabled.\n"),
        "pprof": _on_first_request(pprof)
        if settings.profiling
        else _disabled("profiling endpoint is disabled.\n"),
        "log_level": log_level.set_verbosity
        if settings.debug_flags
        else _disabled("flags endpoint is disabled.\n"),
    }
    if settings.checkpoint_dir is not None:
        found["checkpoint"] = _on_first_request(partial(checkpoint, settings.checkpoint_dir))
    if settings.allocated_pods:
        found |= allocated_handlers(view)
    if settings.flagz:
        found["flagz"] = zpages.flagz(program)
    if settings.statusz:
        found["statusz"] = zpages.statusz(program, zpages.folders(ROUTES), clock)
    return found


def _on_first_request(make: Callable[[], Handler]) -> Handler:
    """A handler that is created by its first request."""
    made = cache(make)

    async def handle(request: web.Request) -> web.StreamResponse:
        return await made()(request)

    return handle


def _disabled(text: str) -> Handler:
    async def disabled(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=405, text=text)

    return disabled


def _shown(arguments: Sequence[str]) -> list[str]:
    """A command line without possible credentials."""
    shown: list[str] = []
    for argument in arguments:
        name, equals, _ = argument.lstrip("-").replace("_", "-").partition("=")
        before = shown[-1].lstrip("-").replace("_", "-") if shown else ""
        if before == _SECRET_FLAG:
            shown.append("<masked>")
        elif name == _SECRET_FLAG and equals:
            shown.append(argument.partition("=")[0] + "=<masked>")
        else:
            shown.append(argument)
    return shown
