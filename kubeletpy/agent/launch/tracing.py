"""Tracing as configured: the tracer, or why no spans are sent."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack

from kubeletpy.config.effects import Notice
from kubeletpy.config.settings import Tracing
from kubeletpy.metrics.trace.tracer import NO_TRACER, Tracer

log = logging.getLogger(__name__)


def start_tracing(
    settings: Tracing, host_name: str, stack: AsyncExitStack
) -> tuple[Tracer, tuple[Notice, ...]]:
    """The tracer for a sampling rate above 0, closed by the stack; and what can't be honoured."""
    rate = settings.sampling_rate_per_million or 0
    try:
        from kubeletpy.metrics.trace.otlp import OtlpTracer
    except ImportError as error:
        text = f"no spans are sent: install kubeletpy[tracing] ({error})"
        log.warning("tracing.samplingRatePerMillion: %s", text)
        return NO_TRACER, (Notice("tracing.samplingRatePerMillion", str(rate), text),)
    endpoint = settings.endpoint
    if endpoint is not None and endpoint.startswith("dns://"):
        # the exporter takes a name server in front of the name for the collector
        endpoint = f"dns:///{endpoint.removeprefix('dns://').partition('/')[2]}"
    tracer = OtlpTracer(endpoint, rate, host_name)
    stack.push_async_callback(tracer.close)
    return tracer, ()
