"""The plain health endpoint: details on this machine, and only success or failure elsewhere."""

from __future__ import annotations

import aiohttp
import pytest

from kubeletpy.server.health import HealthServer


@pytest.mark.parametrize(
    ("address", "metrics", "why"),
    [("127.0.0.1", 200, "the runtime sulks"), ("0.0.0.0", 404, "reason withheld")],
)
async def test_reasons_and_metrics_are_served_on_loopback_only(
    address: str, metrics: int, why: str
) -> None:
    checks = {"ping": lambda: "", "runtime": lambda: "the runtime sulks"}
    server = HealthServer(
        address,
        0,
        checks=checks,
        render_metrics=lambda: (b"x 1\n", "text/plain"),
        render_probe_metrics=lambda: (b"y 1\n", "text/plain"),
    )
    await server.start()
    await server.serve()
    base = f"http://127.0.0.1:{server.port}"
    try:
        async with aiohttp.ClientSession(base) as session:
            for path in ("/metrics", "/metrics/probes"):
                async with session.get(path) as answer:
                    assert answer.status == metrics
            async with session.get("/healthz") as answer:
                assert answer.status == 500
                assert f"[-]runtime failed: {why}" in await answer.text()
            async with session.get("/healthz?exclude=runtime") as answer:
                assert await answer.text() == "ok"
            async with session.get("/healthz/runtime") as answer:
                assert answer.status == 500
                assert why in await answer.text()
    finally:
        await server.close()
