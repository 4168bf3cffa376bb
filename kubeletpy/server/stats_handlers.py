"""Handlers for the node's statistics: /stats/summary, /metrics/cadvisor, /metrics/resource."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from kubeletpy.metrics.families import CONTENT_TYPE
from kubeletpy.node.stats.collector import StatsViews
from kubeletpy.server.app import Handler


def handlers(stats: StatsViews) -> Mapping[str, Handler]:
    """Handlers by route name."""

    async def summary(request: web.Request) -> web.StreamResponse:
        only = request.query.getall("only_cpu_and_memory", []) == ["true"]
        body = await stats.summary(only_cpu_and_memory=only)
        return web.Response(body=body, content_type="application/json")

    async def cadvisor_metrics(_request: web.Request) -> web.StreamResponse:
        return _scrape(await stats.cadvisor_metrics())

    async def resource_metrics(_request: web.Request) -> web.StreamResponse:
        return _scrape(await stats.resource_metrics())

    return {
        "stats_summary": summary,
        "cadvisor_metrics": cadvisor_metrics,
        "resource_metrics": resource_metrics,
    }


def _scrape(body: bytes) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
