"""A DRA driver for tests as a server; it registers as CSI drivers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import grpc.aio

from tests.csi_driver.faults import Faults
from tests.csi_driver.running import handler, registered
from tests.dra_driver.services import VERSIONS, Services

Handler: TypeAlias = "grpc.GenericRpcHandler[Any, Any]"


@dataclass(slots=True)
class RunningDriver:
    """A driver that answers.

    Attributes:
        told: the agent's reports of the registration: whether it worked, and the error.
    """

    socket: Path
    services: Services
    faults: Faults
    notified: list[tuple[bool, str]] = field(default_factory=list)
    changes: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        """The name under which it registers."""
        return self.services.name


@asynccontextmanager
async def running(socket: Path, services: Services, *more: Handler) -> AsyncIterator[RunningDriver]:
    """A driver that listens at ``socket``; ``more``: services it has besides."""
    driver = RunningDriver(socket, services, Faults())
    described = VERSIONS[services.version].DESCRIPTOR.services_by_name["DRAPlugin"]
    handlers = {
        method.name: handler(method, getattr(services, method.name), driver.faults)
        for method in described.methods
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(described.full_name, handlers), *more)
    )
    driver.socket.unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield driver
    finally:
        await server.stop(None)
        driver.socket.unlink(missing_ok=True)


@asynccontextmanager
async def driver_on_node(
    registry: Path, socket: Path, services: Services, *more: Handler
) -> AsyncIterator[RunningDriver]:
    """A driver that listens and has its registration socket in ``plugins_registry``."""
    async with running(socket, services, *more) as driver:
        versions = (services.version,)
        async with registered(driver, registry, kind="DRAPlugin", versions=versions):
            yield driver
