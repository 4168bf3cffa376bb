"""The endpoints that settings switch on and off: node logs, checkpoints, debugging.

What is off answers 405 and says so where the kubelet does, and is not there at all otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from kubeletpy.clock import Clock
from kubeletpy.server import checkpoint
from kubeletpy.server.app import Handler
from kubeletpy.server.debug import log_sinks, pprof, zpages
from kubeletpy.server.debug.zpages import Program
from kubeletpy.server.node_logs import handler as node_logs
from kubeletpy.server.node_view import NodeView
from kubeletpy.server.routes import ROUTES

_SECRET_FLAG = "manifest-url-header"


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """What is served, by the settings of the same names, and where its files are.

    Attributes:
        checkpoint_dir: None: there are no checkpoints (gate ContainerCheckpoint).
        flagz, statusz: gates ComponentFlagz and ComponentStatusz.
        split_log_streams: gate PodLogsQuerySplitStreams.
    """

    system_logs: bool = True
    system_log_query: bool = False
    profiling: bool = True
    debug_flags: bool = True
    flagz: bool = True
    statusz: bool = True
    split_log_streams: bool = False
    log_dir: str = "/var/log"
    checkpoint_dir: Path | None = None


def handlers(
    view: NodeView,
    settings: EndpointSettings,
    program: Program,
    clock: Clock,
    *,
    write_timeout: float,
) -> Mapping[str, Handler]:
    """Handlers by route name."""
    found: dict[str, Handler] = {
        "logs": node_logs.handler(
            settings.log_dir, queries=settings.system_log_query, write_timeout=write_timeout
        )
        if settings.system_logs
        else _disabled("logs endpoint is disabled.\n"),
        "pprof": pprof.handler(_shown(sys.argv), clock)
        if settings.profiling
        else _disabled("profiling endpoint is disabled.\n"),
        "log_level": log_sinks.set_verbosity
        if settings.debug_flags
        else _disabled("flags endpoint is disabled.\n"),
    }
    if settings.checkpoint_dir is not None:
        found["checkpoint"] = checkpoint.handler(view, settings.checkpoint_dir, clock)
    if settings.flagz:
        found["flagz"] = zpages.flagz(program)
    if settings.statusz:
        found["statusz"] = zpages.statusz(program, zpages.folders(ROUTES), clock)
    return found


def _disabled(text: str) -> Handler:
    async def disabled(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=405, text=text)

    return disabled


def _shown(arguments: Sequence[str]) -> list[str]:
    """A command line without what may be a credential."""
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
