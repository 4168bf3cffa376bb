"""The API server's name is resolved on a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiohttp import web

from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.sessions import Sessions
from kubeletpy.kubeapi.transport import NameLookup
from kubeletpy.kubeapi.watch_state import NoObserver


async def test_a_request_by_name_is_sent_while_all_threads_hang() -> None:
    async def ok(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/healthz", ok)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    assert host == "127.0.0.1"
    over = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(threads)
        hanging = loop.run_in_executor(None, over.wait)
        sessions = Sessions(Connection(f"http://localhost:{port}"), None, NoObserver())
        try:
            async with sessions.request(
                "GET", "/healthz", seconds=10, connect_seconds=10, data=None, headers={}
            ) as answer:
                assert await answer.read() == b"ok"
        finally:
            over.set()
            await hanging
            await sessions.close()
            await runner.cleanup()


async def test_addresses_of_names() -> None:
    found = await NameLookup().resolve("localhost", 6443)
    assert [(each["host"], each["port"]) for each in found] == [("127.0.0.1", 6443)]
    assert found[0]["family"] == socket.AF_INET
    with pytest.raises(OSError, match="no such host"):
        await NameLookup().resolve("a" * 70 + ".example", 1)
