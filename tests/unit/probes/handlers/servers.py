"""Servers for tests, honest and hostile, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Runs a server that handles each connection with ``talk``; yields its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.sleep(0.01)


def answering(response: bytes, heard: list[bytes] | None = None) -> Talk:
    """Reads a request, answers, closes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if heard is not None:
            heard.append(request)
        writer.write(response)
        await writer.drain()

    return talk


def redirecting(location: Callable[[int], str], code: int = 302) -> Talk:
    """Redirects the n-th request."""
    count = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        await reader.readuntil(b"\r\n\r\n")
        where = location(count)
        count += 1
        head = f"HTTP/1.1 {code} Found\r\nLocation: {where}\r\nContent-Length: 4\r\n\r\nover"
        writer.write(head.encode())
        await writer.drain()

    return talk


def dripping(start: bytes, drop: bytes = b"x", every: float = 0.02) -> Talk:
    """Sends a start, and then small pieces endlessly."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(every)

    return talk


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads and never answers."""
    await reader.read(-1)


def certificate(directory: Path) -> ssl.SSLContext:
    """A server's TLS context with a certificate that no client trusts."""
    pair = KeyPair.named(directory, "nobody")
    x509.make_self_signed(pair, Names("nobody"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    return context
