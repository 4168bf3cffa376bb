"""A driver for tests as a server, and its registration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from kubeletpy.remote.generated import csi_pb2 as csi
from kubeletpy.remote.generated import pluginregistration_pb2 as registration
from tests.csi_driver.faults import Faults, end
from tests.csi_driver.services import Options, Refused, Services

Context = grpc.aio.ServicerContext[Any, Any]


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
        return self.services.options.name

    async def until_told(self, *, registered: bool = True, within: float = 30.0) -> None:
        """Wait for the agent's report of the registration."""
        async with asyncio.timeout(within):
            while not (self.notified and self.notified[-1][0] is registered):
                self.changes.clear()
                await self.changes.wait()


@asynccontextmanager
async def running(
    directory: Path, options: Options | None = None, faults: Faults | None = None
) -> AsyncIterator[RunningDriver]:
    """A driver that listens at ``{directory}/csi.sock``; its volumes are below, too."""
    services = Services(directory / "volumes", options or Options())
    driver = RunningDriver(directory / "csi.sock", services, faults or Faults())
    server = grpc.aio.server()
    for name in ("Controller", "Node"):
        described = csi.DESCRIPTOR.services_by_name[name]
        handlers = {
            method.name: handler(method, getattr(services, method.name), driver.faults)
            for method in described.methods
            if hasattr(services, method.name)
        }
        generic = grpc.method_handlers_generic_handler(described.full_name, handlers)
        server.add_generic_rpc_handlers((generic,))
    driver.socket.unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{driver.socket}")
    await server.start()
    try:
        yield driver
    finally:
        await server.stop(None)
        driver.socket.unlink(missing_ok=True)


class Registrable(Protocol):
    """The part of a driver that a registrar needs, for CSI and for DRA."""

    socket: Path
    notified: list[tuple[bool, str]]
    changes: asyncio.Event

    @property
    def name(self) -> str: ...


@asynccontextmanager
async def registered(
    driver: Registrable,
    registry: Path,
    *,
    kind: str = "CSIPlugin",
    versions: tuple[str, ...] = ("1.0.0",),
    name: str = "",
) -> AsyncIterator[Path]:
    """The driver's registration socket in ``plugins_registry``, as its registrar makes it."""
    name = name or driver.name

    async def info(_: Any, __: Context) -> registration.PluginInfo:
        return registration.PluginInfo(
            type=kind, name=name, endpoint=str(driver.socket), supported_versions=versions
        )

    async def notify(
        status: registration.RegistrationStatus, _: Context
    ) -> registration.RegistrationStatusResponse:
        driver.notified.append((status.plugin_registered, status.error))
        driver.changes.set()
        return registration.RegistrationStatusResponse()

    calls: dict[str, Callable[..., Any]] = {"GetInfo": info, "NotifyRegistrationStatus": notify}
    described = registration.DESCRIPTOR.services_by_name["Registration"]
    handlers = {
        method.name: grpc.unary_unary_rpc_method_handler(
            calls[method.name],
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
        for method in described.methods
    }
    server = grpc.aio.server()
    generic = grpc.method_handlers_generic_handler(described.full_name, handlers)
    server.add_generic_rpc_handlers((generic,))
    socket = registry / f"{name}-reg.sock"
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield socket
    finally:
        await server.stop(None)
        socket.unlink(missing_ok=True)


def handler(
    method: MethodDescriptor, work: Callable[[Any], Any], faults: Faults
) -> grpc.RpcMethodHandler[Any, Any]:
    """A method that does its work on a thread, unless ``faults`` have it do otherwise."""

    async def answer(request: Any, context: Context) -> Any:
        fault = faults.take(method.name, request)
        if fault.before:
            await asyncio.sleep(fault.before)
        if fault.code and not fault.done:
            await end(fault, context)
        if fault.skip:
            return b""
        try:
            response = await asyncio.to_thread(work, request)
        except Refused as refused:
            await context.abort(refused.code, str(refused))
        await end(fault, context)
        return fault.answer if fault.answer is not None else response.SerializeToString()

    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=GetMessageClass(method.input_type).FromString
    )
