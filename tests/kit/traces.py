"""Where spans end: a collector that receives OTLP over gRPC, and a tracer that keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import grpc.aio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from kubeletpy.metrics.trace.model import Attributes, OpenSpan


class Collector(service.TraceServiceServicer):
    """``spans`` by name, in order of their ends; ``resource`` has the attributes of the sender."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.spans: list[Span] = []
        self.resource: dict[str, str] = {}
        self.refuses = False
        self._arrived = asyncio.Condition()

    async def Export(self, request: Any, context: Any) -> Any:
        """Receive a batch."""
        if self.refuses:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not you")
        for sender in request.resource_spans:
            self.resource = {
                each.key: each.value.string_value for each in sender.resource.attributes
            }
            for scope in sender.scope_spans:
                self.spans += scope.spans
        async with self._arrived:
            self._arrived.notify_all()
        return messages.ExportTraceServiceResponse()

    async def received(self, suffix: str, count: int) -> list[Span]:
        """Spans whose names end in ``suffix``, in order of start, once ``count`` have come."""

        def matching() -> list[Span]:
            return [each for each in self.spans if each.name.endswith(suffix)]

        async with self._arrived:
            await self._arrived.wait_for(lambda: len(matching()) >= count)
        return sorted(matching(), key=lambda span: span.start_time_unix_nano)

    def named(self, name: str) -> Span:
        """The only span of that name."""
        [found] = [each for each in self.spans if each.name == name]
        return found


def attributes(span: Span) -> dict[str, str | int]:
    """Attributes of a span whose values are texts or numbers."""
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """A collector on a port of the loopback interface."""
    collector, server = Collector(), grpc.aio.server()
    service.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    collector.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield collector
    finally:
        await asyncio.shield(server.stop(None))


@dataclass
class Recorded:
    """One span."""

    name: str
    attributes: dict[str, str | int]
    kind: str
    error: str | None = None
    ended: bool = False
    carrier: Mapping[str, str] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when an attribute is set."""

    def set(self, name: str, value: str | int) -> None:
        self.attributes[name] = value
        self.changed.set()

    def failed(self, why: str) -> None:
        self.error = why

    def __enter__(self) -> OpenSpan:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.ended = True
        if error is not None:
            self.error = str(error)


class Recording:
    """A :class:`~kubeletpy.metrics.trace.model.Tracer`."""

    def __init__(self) -> None:
        self.spans: list[Recorded] = []
        self.begun = asyncio.Event()

    def span(self, name: str, attributes: Attributes, *, client: bool = False) -> OpenSpan:
        return self._kept(Recorded(name, dict(attributes), "client" if client else "internal"))

    def request(self, name: str, attributes: Callable[[], Attributes]) -> OpenSpan:
        return self._kept(Recorded(name, dict(attributes()), "server"))

    def _kept(self, span: Recorded) -> OpenSpan:
        self.spans.append(span)
        self.begun.set()
        return span
