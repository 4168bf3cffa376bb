"""Sends spans to an OpenTelemetry collector over OTLP/gRPC. Needs ``kubeletpy[tracing]``.

Sampling, batching and the connection are the OpenTelemetry SDK's, whose threads keep all of it off
the event loop. Its queue is bounded, and spans that a collector does not take in time are dropped.
Must never make anything wait for the collector. Source: k8s.io/component-base/tracing; there is no
encryption, as in the kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from types import TracebackType

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import wait_within
from kubeletpy.base.version import VERSION
from kubeletpy.metrics.trace.model import MAX_TEXT, Attributes, OpenSpan

log = logging.getLogger(__name__)

EXPORT_S = 5.0
"""How long one batch may take, retries included."""
CLOSE_S = 2.0
"""How long the agent's end waits for the last spans."""
_EXPORTER_LOG = logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter")
_QUEUE_LOG = logging.getLogger("opentelemetry.sdk._shared_internal")
"""Warns of a full queue, which is reported already."""
_WIRE = TraceContextTextMapPropagator()

_current: ContextVar[_Sent | None] = ContextVar("sent_span", default=None)


class _Sent(Component):
    """An open span of the SDK."""

    tracer: trace.Tracer
    name: str
    attributes: Attributes
    kind: SpanKind

    def __post_init__(self) -> None:
        self._token: Token[_Sent | None] | None = None
        self.span: trace.Span = trace.INVALID_SPAN
        self.carrier: dict[str, str] = {}
        self.ended = False

    def set(self, name: str, value: str | int) -> None:
        self.span.set_attribute(name, value)

    def failed(self, why: str) -> None:
        self.span.set_status(Status(StatusCode.ERROR, why[:MAX_TEXT]))

    def __enter__(self) -> OpenSpan:
        above = _current.get()
        # A task that was begun within a span may outlive it: what it does is no part of it.
        within = Context()
        if above is not None and not above.ended and self.kind is not SpanKind.SERVER:
            within = trace.set_span_in_context(above.span, within)
        self.span = self.tracer.start_span(self.name, within, self.kind, self.attributes)
        if self.kind is SpanKind.CLIENT:
            _WIRE.inject(self.carrier, trace.set_span_in_context(self.span, within))
        else:
            self._token = _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            _current.reset(self._token)
        if error is not None and kind is not GeneratorExit:
            cut = kind is asyncio.CancelledError
            self.failed("cut short" if cut else str(error) or repr(error))
        self.ended = True
        self.span.end()


class OtlpTracer(Component):
    """A :class:`~kubeletpy.metrics.trace.model.Tracer`; ``close`` sends what is left.

    Args:
        endpoint: gRPC's name of the collector; None: OTEL_EXPORTER_OTLP_ENDPOINT, or this
            machine's port 4317.
        per_million: how many of a million traces are sent.
        host_name: the node's, an attribute of every span.
    """

    endpoint: str | None
    per_million: int
    host_name: str

    def __post_init__(self) -> None:
        self._exporter = _Reported(
            OTLPSpanExporter(self.endpoint, insecure=True, timeout=EXPORT_S), self.endpoint
        )
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(self.per_million / 1_000_000)),
            resource=Resource.create({"service.name": "kubelet", "host.name": self.host_name}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("kubeletpy", VERSION)

    def span(self, name: str, attributes: Attributes, *, client: bool = False) -> OpenSpan:
        """A span below the current one, or of a trace of its own; sampled."""
        kind = SpanKind.CLIENT if client else SpanKind.INTERNAL
        return _Sent(self._tracer, name, attributes, kind)

    def request(self, name: str, attributes: Callable[[], Attributes]) -> OpenSpan:
        """A request from another process: a trace of its own; sampled."""
        return _Sent(self._tracer, name, attributes(), SpanKind.SERVER)

    async def close(self) -> None:
        """Send the last spans, within CLOSE_S seconds."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def flush() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=flush, name="last spans", daemon=True).start()
        for _ in range(2):
            if await wait_within(done, CLOSE_S):
                break
            self._exporter.shutdown()  # it gives up what it is sending


class _Reported(SpanExporter):
    """Logs when spans begin to be lost and when they arrive again, not every batch."""

    def __init__(self, exporter: SpanExporter, endpoint: str | None) -> None:
        self._exporter = exporter
        self._endpoint = endpoint or "the default endpoint"
        self._lost = False
        self._closed = False
        self._parts = _LastParts()
        _EXPORTER_LOG.filters.insert(0, self._parts)
        _QUEUE_LOG.setLevel(logging.ERROR)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; called by the SDK's thread only."""
        result = self._exporter.export(spans)
        lost = result is not SpanExportResult.SUCCESS
        extra = {"collector": self._endpoint}
        if lost and not self._lost and not self._closed:
            log.warning(
                "the collector takes no spans: they are dropped until it does",
                extra={**extra, "why": self._parts.text},
            )
        elif self._lost and not lost:
            log.info("the collector takes spans again", extra=extra)
        self._lost = lost
        return result

    def shutdown(self) -> None:
        """Close the connection; called from any thread, and twice."""
        if not self._closed:
            self._closed = True
            self._exporter.shutdown()
            _EXPORTER_LOG.removeFilter(self._parts)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is held back here."""
        return True


class _LastParts(logging.Filter):
    """Keeps the exporter's lines out of the log, and the last of them as a reason."""

    text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self.text = record.getMessage()[:MAX_TEXT]
        return False
