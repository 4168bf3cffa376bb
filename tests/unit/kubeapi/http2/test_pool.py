"""The pool and the client above it, against a server on loopback."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import h2.errors
import h2.settings
import pytest

from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi import http2_limits as limits
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.protocol import LEASES, NODES, PODS, WatchEvent
from kubeletpy.kubeapi.sessions import Session
from kubeletpy.kubeapi.transport import dial
from kubeletpy.kubeapi.watch_state import HTTP2, Usage
from kubeletpy.metrics.registry import Metrics
from tests.http2.certificates import Certificates
from tests.http2.server import Exchange, Handler, Server, serving_http2
from tests.kit.api import answer, serving
from tests.kit.costs import leaves_when_cancelled
from tests.kit.virtual_time import eventually

CODES = h2.settings.SettingCodes


async def node(exchange: Exchange) -> None:
    exchange.head()
    await exchange.write(b'{"kind": "Node"}', last=True)


async def watched(exchange: Exchange) -> None:
    """A watch sends an event and stays open; other requests are answered."""
    if "watch=true" not in exchange.path:
        await node(exchange)
        return
    exchange.head()
    event = {"type": "ADDED", "object": {"metadata": {"name": exchange.headers["authorization"]}}}
    await exchange.write(json.dumps(event).encode() + b"\n")
    await asyncio.Event().wait()


@asynccontextmanager
async def pool_of(
    handler: Handler,
    tls: Certificates,
    settings: Mapping[h2.settings.SettingCodes, int] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Server, KubeClient]]:
    """A server, and a client of it that is closed first."""
    async with serving_http2(handler, tls.server(), settings) as server:
        connection = Connection(server.url, tls.client(), "Bearer one")
        api = KubeClient(connection, qps=0, **options)
        try:
            yield server, api
        finally:
            await api.close()


def watch(api: KubeClient) -> AsyncIterator[WatchEvent]:
    return api.watch(PODS, resource_version="1", timeout_seconds=600)


async def opened(api: KubeClient) -> AsyncIterator[WatchEvent]:
    """A watch that has received its first event."""
    events = watch(api)
    assert [(await anext(events)).type for _ in range(2)] == ["BOOKMARK", "ADDED"]
    return events


async def test_a_burst_shares_one_handshake(tls: Certificates) -> None:
    async with pool_of(watched, tls) as (server, api):
        heartbeats = api.apart(qps=0, burst=0, timeout=60)
        watches = await asyncio.gather(*(opened(api) for _ in range(60)))
        await asyncio.gather(*(api.get(NODES, "n") for _ in range(40)))
        assert (server.accepted, len(server.peers)) == (1, 1)
        await asyncio.gather(*(heartbeats.get(LEASES, "n", "x") for _ in range(3)))
        assert server.accepted == 2, "heartbeats have their own"
        assert len(watches) == 60


async def test_an_ended_watch_is_freed_with_its_last_reference(tls: Certificates) -> None:
    async with pool_of(watched, tls) as (_, api):
        seen = asyncio.Event()

        async def follow() -> None:
            async for event in watch(api):
                if event.type == "ADDED":
                    seen.set()

        assert await leaves_when_cancelled(follow(), seen.wait())


async def test_watches_beyond_what_a_server_allows_open_more(tls: Certificates) -> None:
    allowed = {CODES.MAX_CONCURRENT_STREAMS: 8}
    async with pool_of(watched, tls, allowed) as (server, api):
        await api.get(NODES, "n")  # so that the server's limit is known
        kept = [await opened(api) for _ in range(13)]
        assert server.accepted == 3, "a quarter of all streams is for requests"
        await asyncio.gather(*(api.get(NODES, "n") for _ in range(6)))
        assert server.accepted == 3
        kept += [await opened(api) for _ in range(8 * limits.MAX_CONNECTIONS - 13 - 1)]
        assert server.accepted == limits.MAX_CONNECTIONS
        await api.get(NODES, "n")
        kept.append(await opened(api))
        asking = asyncio.ensure_future(api.get(NODES, "n"))
        await asyncio.sleep(0.05)
        assert not asking.done(), "it waits for a stream"
        await kept.pop().aclose()  # type: ignore[attr-defined]
        assert await asking == {"kind": "Node"}


async def test_a_server_that_allows_fewer_streams_than_assumed(tls: Certificates) -> None:
    """The first requests are sent before the server's settings arrive."""
    allowed = {CODES.MAX_CONCURRENT_STREAMS: 1}
    async with pool_of(node, tls, allowed) as (server, api):
        answers = await asyncio.gather(*(api.get(NODES, "n") for _ in range(10)))
        assert answers == [{"kind": "Node"}] * 10
        assert server.accepted <= limits.MAX_CONNECTIONS


@pytest.mark.parametrize("protocols", [(), ("http/1.1",)])
async def test_a_server_of_http1_is_detected_once(
    tls: Certificates, protocols: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    async def counted(*supplied: Any) -> Any:
        made.append(1)
        return await dial(*supplied)

    monkeypatch.setattr("kubeletpy.kubeapi.sessions.dial", counted)
    async with serving(answer({"kind": "Node"}), tls=tls.server(*protocols)) as server:
        api = KubeClient(Connection(server.url, tls.client()), qps=0)
        await asyncio.gather(*(api.get(NODES, "n") for _ in range(5)))
        await api.get(NODES, "n")
        assert len(made) == 1
        assert len(server.requested) == 6
        await api.close()


async def test_renewed_credentials_leave_watches_alone(tls: Certificates) -> None:
    async with serving_http2(watched, tls.server()) as server:

        async def reconnect() -> Connection:
            return Connection(server.url, tls.client(), "Bearer two")

        connection = Connection(server.url, tls.client(), "Bearer one")
        api = KubeClient(connection, qps=0, reconnect=reconnect)
        first = await opened(api)
        await api.renew_credentials()
        second = watch(api)
        await anext(second)
        assert (await anext(second)).object["metadata"]["name"] == "Bearer two"
        assert len(server.peers) == 2
        reading = asyncio.ensure_future(anext(first))
        await api.get(NODES, "n")
        assert not reading.done()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await eventually(lambda: len(server.peers) == 1, within=5)
        assert await api.get(NODES, "n") == {"kind": "Node"}
        assert server.accepted == 2
        await api.close()


async def test_a_refused_request_is_sent_again(tls: Certificates) -> None:
    requested = []

    async def refuse(exchange: Exchange) -> None:
        requested.append(exchange.body)
        if len(requested) <= refusals:
            exchange.reset(h2.errors.ErrorCodes.REFUSED_STREAM)
            return
        await node(exchange)

    async with pool_of(refuse, tls) as (server, api):
        refusals = limits.MAX_REFUSALS
        assert await api.create(PODS, {"a": 1}, "n") == {"kind": "Node"}
        assert requested == [b'{"a":1}'] * 4
        refusals = 100
        with pytest.raises(errors.Unavailable, match="refused the stream"):
            await api.create(PODS, {"a": 1}, "n")
        assert server.accepted == 1


async def test_a_server_that_restarts(tls: Certificates) -> None:
    async with pool_of(watched, tls) as (server, api):
        events = await opened(api)
        (peer,) = server.peers
        assert peer.transport is not None
        peer.transport.abort()
        with pytest.raises(errors.Unavailable, match="HTTP/2 connection lost"):
            await anext(events)
        assert await api.get(NODES, "n") == {"kind": "Node"}
        assert server.accepted == 2


async def test_usage_and_losses_are_counted(tls: Certificates) -> None:
    metrics = Metrics()
    async with pool_of(watched, tls, observer=metrics.rest_client) as (server, api):
        metrics.rest_client.show(
            lambda protocol: api.usage.protocols.get(protocol, 0),
            lambda: api.usage.watches,
            lambda: api.usage.streams,
        )
        assert api.usage == Usage({})
        heartbeats = api.apart(qps=0, burst=0, timeout=60)
        await heartbeats.get(LEASES, "n", "x")
        events, more = await opened(api), await opened(api)
        usage = api.usage
        assert (usage.protocols, usage.streams, usage.watches) == ({HTTP2: 2}, 2, 2)
        assert usage.since is not None
        assert (usage.lost, usage.lost_at, usage.lost_why) == (0, None, "")
        reported = metrics.render().decode()
        assert 'kubeletpy_api_connections{protocol="HTTP/2"} 2' in reported
        assert 'kubeletpy_api_connections{protocol="HTTP/1.1"} 0' in reported
        assert 'kubeletpy_api_requests_in_flight{kind="watch"} 2' in reported
        assert 'kubeletpy_api_requests_in_flight{kind="request"} 0' in reported
        peer = server.peers[-1]
        assert peer.transport is not None
        peer.transport.abort()
        for each in (events, more):
            with pytest.raises(errors.Unavailable):
                await anext(each)
        usage = api.usage
        assert (usage.protocols, usage.watches, usage.lost) == ({HTTP2: 1}, 0, 1)
        assert usage.lost_at is not None
        assert usage.lost_why
        events = await opened(api)
        # a GOAWAY for new streams; open ones continue
        peer = server.peers[-1]
        assert peer.transport is not None
        peer.transport.write(b"\0\0\x08\x07\0\0\0\0\0" + b"\x7f\xff\xff\xff" + bytes(4))
        await eventually(lambda: api.usage.lost == 2, within=5)
        assert api.usage.lost_why == "the server ended it (NO_ERROR)"
        assert "kubeletpy_api_connections_lost_total 2" in metrics.render().decode()
        await api.close()
        assert (api.usage.protocols, api.usage.lost) == ({}, 2), "what we close is not lost"


async def test_many_goaways_leave_few_connections(tls: Certificates) -> None:
    """A server that ends connections at times, so that its load balancer can spread them."""
    async with pool_of(watched, tls) as (server, api):
        readers = []
        for _ in range(limits.MAX_ENDING + 3):
            events = await opened(api)
            readers.append(asyncio.ensure_future(anext(events)))
            peer = server.peers[-1]
            assert peer.transport is not None
            peer.transport.write(b"\0\0\x08\x07\0\0\0\0\0" + b"\x7f\xff\xff\xff" + bytes(4))
            await eventually(lambda: _ending(api), within=5)
        await opened(api)
        assert server.accepted == limits.MAX_ENDING + 4
        done, _ = await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
        assert {readers.index(each) for each in done} <= {0, 1, 2}, "the oldest ones are given up"
        await api.close()
        await asyncio.gather(*readers, return_exceptions=True)


def _ending(api: KubeClient) -> bool:
    session = api._sessions._session
    assert isinstance(session, Session)
    return all(each.ending for each in session._connections)


async def test_a_large_answer(tls: Certificates) -> None:
    text = json.dumps({"data": "x" * (20 << 20)}).encode()

    async def large(exchange: Exchange) -> None:
        exchange.head(200, {"content-length": str(len(text))})
        await exchange.write(text, last=True)

    async with pool_of(large, tls, timeout=600) as (_, api):
        assert len((await api.get(NODES, "n"))["data"]) == 20 << 20


async def test_waiting_readers_get_an_error_on_close(tls: Certificates) -> None:
    async with pool_of(watched, tls) as (_, api):
        events = await opened(api)
        reading = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        await api.close()
        async with asyncio.timeout(60):
            with pytest.raises(errors.Unavailable, match="closed"):
                await reading


async def test_a_certificate_that_is_not_trusted(tls: Certificates) -> None:
    async with serving_http2(node, tls.server()) as server:
        api = KubeClient(Connection(server.url, ssl.create_default_context()))
        with pytest.raises(errors.Unavailable, match="certificate verify failed"):
            await api.get(NODES, "n")
        named = Connection(server.url, tls.client(), server_hostname="other.test")
        other = KubeClient(named)
        with pytest.raises(errors.Unavailable, match=r"other\.test"):
            await other.get(NODES, "n")
        right = KubeClient(Connection(server.url, tls.client(), server_hostname="api.test"))
        assert await right.get(NODES, "n") == {"kind": "Node"}
        for each in (api, other, right):
            await each.close()
