"""The DRA drivers of this node: each with its endpoints, one of which is used.

A driver that is being updated has two for a while. gRPC is not loaded before there is one. Source:
docs/reference/behaviour-resources.md, rv.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kubeletpy.base.tasks import run_together
from kubeletpy.metrics.resources import DraMetrics
from kubeletpy.resources.plugins.model import PluginInfo
from kubeletpy.resources.plugins.protocol import PluginRefused

if TYPE_CHECKING:
    from kubeletpy.resources.dra.client import DriverClient, OpenDriver

_NAME = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
_MAX_NAME = 63
MAX_ENDPOINTS = 8
"""Per driver: a rolling update has two."""


class DraDrivers:
    """The handler of type DRAPlugin."""

    def __init__(
        self,
        metrics: DraMetrics,
        calls: OpenDriver | None = None,
        heard: Callable[[str, Any], None] | None = None,
    ) -> None:
        """Args:
        calls: None: over sockets.
        heard: called with a driver's name and its report on its devices; None: none is queried.
        """
        self._heard = heard
        self._metrics = metrics
        self._calls = calls
        self._endpoints: dict[str, list[tuple[PluginInfo, DriverClient]]] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._closing: set[asyncio.Task[None]] = set()

    def on_change(self, notify: Callable[[str], None]) -> None:
        """Have ``notify(name)`` called when a driver's endpoint comes, goes, connects or
        disconnects."""
        self._listeners.append(notify)

    @property
    def names(self) -> list[str]:
        """The names of all registered drivers."""
        return sorted(self._endpoints)

    def get(self, name: str) -> DriverClient | None:
        """The endpoint to call a driver by: the newest that is connected, else the newest."""
        clients = [client for _, client in reversed(self._endpoints.get(name, []))]
        return next((each for each in clients if each.connected), clients[0] if clients else None)

    def connected(self, name: str) -> bool:
        """Whether any endpoint of a driver is connected."""
        return any(client.connected for _, client in self._endpoints.get(name, []))

    def validate(self, info: PluginInfo) -> None:
        """Raise PluginRefused when this driver cannot be used."""
        self._version(info)

    async def register(self, info: PluginInfo) -> None:
        """Use an endpoint from now on; raises PluginRefused."""
        from kubeletpy.resources.dra import answers
        from kubeletpy.resources.dra.client import DriverClient, over_sockets

        version = self._version(info)
        endpoints = self._endpoints.get(info.name, [])
        if any(known.endpoint == info.endpoint for known, _ in endpoints):
            raise PluginRefused(
                f"DRA driver {info.name}: endpoint {info.endpoint} is registered already"
            )
        if len(endpoints) >= MAX_ENDPOINTS:
            raise PluginRefused(f"DRA driver {info.name}: it has {MAX_ENDPOINTS} endpoints already")
        try:
            client = DriverClient(
                info.name,
                info.endpoint,
                version,
                self._metrics,
                self._changed,
                health=answers.health_service(info.versions),
                calls=self._calls or over_sockets,
                heard=self._heard,
            )
        except ValueError as error:
            raise PluginRefused(f"DRA driver {info.name}: {error}") from None
        self._endpoints.setdefault(info.name, []).append((info, client))
        self._changed(info.name)

    async def deregister(self, info: PluginInfo) -> None:
        """Stop using an endpoint."""
        endpoints = self._endpoints.get(info.name, [])
        gone = [client for known, client in endpoints if known == info]
        if not gone:
            return
        left = [(known, client) for known, client in endpoints if known != info]
        if left:
            self._endpoints[info.name] = left
        else:
            del self._endpoints[info.name]
        for client in gone:
            self._let_go(client)
        self._changed(info.name)

    async def close(self) -> None:
        """Close all endpoints."""
        for endpoints in self._endpoints.values():
            for _, client in endpoints:
                self._let_go(client)
        self._endpoints.clear()
        self._listeners.clear()
        await run_together(*self._closing)

    def _version(self, info: PluginInfo) -> str:
        from kubeletpy.resources.dra import answers

        if len(info.name) > _MAX_NAME or _NAME.fullmatch(info.name) is None:
            raise PluginRefused(f"{info.name!r} cannot be the name of a DRA driver")
        version = answers.service(info.versions)
        if version is None:
            offered = ", ".join(info.versions) or "none"
            known = ", ".join(answers.SERVICES)
            raise PluginRefused(
                f"DRA driver {info.name}: it has none of the services {known}: {offered}"
            )
        return version

    def _changed(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)

    def _let_go(self, client: DriverClient) -> None:
        task = asyncio.create_task(client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
