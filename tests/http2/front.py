"""Ends HTTP/2 in front of a server that speaks HTTP/1.1, so that its tests show both."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import aiohttp
import yarl

from tests.http2.server import Exchange, Server, serving_http2

_OWN = {"content-length", "connection", "keep-alive", "transfer-encoding", "host"}


@asynccontextmanager
async def in_front_of(
    url: str,
    tls: ssl.SSLContext,
    identity: Callable[[Mapping[str, str]], ssl.SSLContext | None] = lambda _: None,
) -> AsyncIterator[Server]:
    """Forward all requests.

    Args:
        url: of the server behind.
        identity: with which certificate a request with such headers is forwarded.
    """
    async with aiohttp.ClientSession(auto_decompress=False) as session:

        async def forward(exchange: Exchange) -> None:
            supplied = {k: v for k, v in exchange.headers.items() if k[0] != ":" and k not in _OWN}
            answer = await session.request(
                exchange.method,
                yarl.URL(url + exchange.path, encoded=True),
                headers=supplied,
                data=exchange.body or None,
                ssl=identity(exchange.headers) or True,
                allow_redirects=False,
            )
            try:
                headers = {k.lower(): v for k, v in answer.headers.items() if k.lower() not in _OWN}
                if answer.content_length is not None:
                    headers["content-length"] = str(answer.content_length)
                exchange.head(answer.status, headers)
                async for chunk in answer.content.iter_any():
                    await exchange.write(chunk)
                await exchange.write(b"", last=True)
            finally:
                answer.close()

        async with serving_http2(forward, tls) as server:
            yield server
