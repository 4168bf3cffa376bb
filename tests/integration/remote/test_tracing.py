"""A runtime that sends spans too: what it does for a pod is a part of the pod's trace."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeletpy.metrics.trace.otlp import OtlpTracer
from kubeletpy.remote.client import RemoteRuntime
from tests.kit.traces import collecting
from tools.env.containerd import Containerd, programs


async def test_containerd_continues_our_trace(
    session_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{collector.endpoint}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        containerd = Containerd(session_dir / "traced", programs(2))
        try:
            await asyncio.to_thread(containerd.start)
            tracer = OtlpTracer(collector.endpoint, 1_000_000, "n1")
            client = RemoteRuntime(containerd.endpoint, tracer=tracer)
            with tracer.span("syncPod", {}):
                await client.version()
            await client.close()
            await tracer.close()
            # The runtime sends a batch when it is due; what waits at its end is lost.
            async with asyncio.timeout(30):
                ours, theirs = await collector.received("/Version", 2)
        finally:
            await asyncio.to_thread(containerd.stop)
            await asyncio.to_thread(containerd.remove)
    assert ours.trace_id == collector.named("syncPod").trace_id == theirs.trace_id
    assert (theirs.parent_span_id, theirs.kind) == (ours.span_id, theirs.SPAN_KIND_SERVER)
