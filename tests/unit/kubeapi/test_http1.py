"""Behavior on HTTP/1.1 alone, where each pending request occupies a connection."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.protocol import PODS

from .api_server import answer, serving

POD = {"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}


async def test_heartbeats_do_not_wait_for_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods had a watch for each object, until no connections were left."""
    monkeypatch.setattr("kubeletpy.kubeapi.http1.MAX_CONNECTIONS", 3)
    arrived = asyncio.Semaphore(0)

    async def hold(_request: web.Request) -> web.StreamResponse:
        arrived.release()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async with serving(hold, hold, hold, answer(POD)) as server:

        async def reconnect() -> Connection:
            return Connection(server.url, authorization="Bearer new")

        api = KubeClient(Connection(server.url), qps=0, reconnect=reconnect)
        heartbeats = api.apart(qps=0, burst=0, timeout=1)
        asking = [asyncio.create_task(api.get(PODS, "p", "n")) for _ in range(4)]
        for _ in range(3):
            await arrived.acquire()
        assert await heartbeats.get(PODS, "p", "n") == POD
        assert len(server.requested) == 4, "the fourth of the others has no connection"
        await api.renew_credentials()
        assert await heartbeats.get(PODS, "p", "n") == POD
        assert server.requested[-1].headers["Authorization"] == "Bearer new"
        for each in asking:
            each.cancel()
        await api.close()
        with pytest.raises(errors.Unavailable, match="the client is closed"):
            await heartbeats.get(PODS, "p", "n")
