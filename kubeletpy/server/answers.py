"""All that the agent's server answers: the handlers of its routes, and what they need.

With it aiohttp is loaded: together a quarter of what all imports take.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack

from kubeletpy.base.clock import Clock
from kubeletpy.metrics.node import HttpMetrics
from kubeletpy.server import endpoints, objects
from kubeletpy.server.access import Access
from kubeletpy.server.app import AgentServer, Handler
from kubeletpy.server.debug.program import RunningProgram
from kubeletpy.server.explained import Explained
from kubeletpy.server.explained import handlers as explained_handlers
from kubeletpy.server.logs import handler as log_handler
from kubeletpy.server.logs.follow import LogStreams
from kubeletpy.server.node_view import NodeView
from kubeletpy.server.settings import ServerSettings
from kubeletpy.server.stats_handlers import handlers as stats_handlers
from kubeletpy.server.streaming.handlers import StreamHandlers
from kubeletpy.server.streaming.link import RuntimeLink

__all__ = ["Access", "AgentServer", "answers"]


def answers(
    view: NodeView,
    settings: ServerSettings,
    stack: AsyncExitStack,
    *,
    program: RunningProgram,
    explained: Explained | None,
    metrics: HttpMetrics,
    clock: Clock,
) -> Mapping[str, Handler]:
    """Handlers by route name. Resources that must be closed are pushed onto ``stack``."""
    streams = LogStreams(view.pod_logs_dir, view.cache)
    stack.callback(streams.close)
    link = RuntimeLink(settings.idle_timeout, metrics)
    logs = log_handler.handler(
        view,
        streams,
        clock,
        write_timeout=settings.idle_timeout,
        split_streams=settings.endpoints.split_log_streams,
    )
    return {
        **objects.handlers(view),
        **(stats_handlers(view.stats) if view.stats is not None else {}),
        **StreamHandlers(view, link).by_route,
        **endpoints.handlers(
            view, settings.endpoints, program, clock, write_timeout=settings.idle_timeout
        ),
        "container_logs": logs,
        **(explained_handlers(explained) if explained is not None else {}),
    }
