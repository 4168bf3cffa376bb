"""Silent connections keep nobody out."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubeletpy.base.wire.listener import Connection, ConnectionLimiter, Listener
from kubeletpy.server.settings import AccessSettings
from tests.unit.base.wire.echo import Echo
from tests.unit.kubeletpy_up.serving import serving as serving_api
from tests.unit.server.helpers import Pki, make_view, serving

ALLOW = AccessSettings(always_allow=True)
MANY = 300


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates, made once."""
    directory: Path = tmp_path_factory.mktemp("pki")
    return Pki(directory)


def silent(port: int, many: int = MANY) -> list[socket.socket]:
    """Connections that do not even begin with TLS."""
    return [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(many)]


async def test_silent_connections_to_the_node(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.server.app.MAX_CONNECTIONS", 40)
    async with serving(make_view(tmp_path), None, pki, ALLOW) as server:
        held = await asyncio.to_thread(silent, server.port)
        async with asyncio.timeout(10):
            assert (await server.request("GET", "/healthz", client=pki.client))[0] == 200
        for each in held:
            each.close()


async def test_silent_connections_to_the_embedded_api(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy_up.http.server.MAX_CONNECTIONS", 40)
    keys = tmp_path_factory.mktemp("keys")
    async with serving_api(tmp_path, keys) as (_, admin, _node):
        port = int(admin.url.rpartition(":")[2])
        held = await asyncio.to_thread(silent, port)
        async with asyncio.timeout(10):
            assert (await admin.ask("GET", "/api/v1/namespaces"))[0] == 200
        for each in held:
            each.close()


@pytest.mark.parametrize("many", range(40, 50))
async def test_a_burst_of_unidentified_peers_is_accepted_in_rounds(many: int) -> None:
    """All connections exist before the first is accepted; the last client is honest."""
    async with echo(limit=8) as (_, listener, port):
        held = await asyncio.to_thread(silent, port, many)
        honest = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port), 5)
        honest.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(honest, b"x")
        listener.start()
        async with asyncio.timeout(10):
            assert await loop.sock_recv(honest, 1) == b"x"
        for each in (*held, honest):
            each.close()


async def test_a_refused_connection_ends_the_round_of_accepting() -> None:
    """Those that wait longer find room once the unidentified ones being closed have left."""
    async with echo(limit=2) as (limiter, listener, port):
        clients = await asyncio.to_thread(silent, port, 4)
        listener._accept()
        for each in limiter._inside.values():
            limiter._send_away(each)  # they leave when the loop sees their end
        listener._accept()
        ended = select.select(clients, [], [], 0)[0]
        assert ended == clients[:3], "the last one still waits"
        for sock in clients:
            sock.close()


async def test_an_identified_client_is_never_closed_for_an_unidentified_peer() -> None:
    async with echo(limit=4) as (_, listener, port):
        listener.start()
        known = []
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            known.append((reader, writer))
            writer.write(b"k")
            assert await reader.readexactly(1) == b"k"
        late, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"k")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await late.readexactly(1)
        for reader, each in known:
            each.write(b"x")
            assert await reader.readexactly(1) == b"x"
            each.close()
        writer.close()


def test_an_identity_has_three_times_what_is_free() -> None:
    sockets = [socket.socketpair() for _ in range(16)]
    limiter = ConnectionLimiter(16)
    loop = asyncio.new_event_loop()

    async def knock(who: str, pair: tuple[socket.socket, socket.socket]) -> Connection | None:
        guest = Connection(pair[0], "", limiter)
        assert limiter.enter(guest)
        if limiter.admit_identity(Transport(guest), who):
            return guest
        guest.close()
        return None

    async def knocks() -> None:
        greedy = [g for pair in sockets[:14] if (g := await knock("greedy", pair))]
        assert len(greedy) == 12  # of 16, with 4 free
        other = await knock("other", sockets[14])
        assert other is not None
        greedy.pop().close()  # releases its slot and its share
        last = await knock("greedy", sockets[15])
        assert last is None  # it would be the 12th, with 3 free
        assert limiter.admit_identity(Transport(other), "other")
        for each in (*greedy, other):
            each.close()
        assert limiter.close_unidentified() is False

    loop.run_until_complete(knocks())
    loop.close()
    for pair in sockets:
        pair[0].close()
        pair[1].close()


async def test_an_identity_with_its_share_of_the_node_gets_429(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.server.app.MAX_CONNECTIONS", 8)
    async with serving(make_view(tmp_path), None, pki, ALLOW) as server:
        request = b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n"
        held = []
        answers = []
        for _ in range(8):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=pki.context(pki.client)
            )
            writer.write(request)
            answers.append(int((await reader.readline()).split()[1]))
            if answers[-1] == 429:
                assert b"Connection: close" in await reader.read()
            held.append(writer)
        assert answers == [200] * 6 + [429] * 2
        for writer in held:
            writer.close()


class Transport(asyncio.BaseTransport):
    """The transport of a guest."""

    def __init__(self, guest: Connection) -> None:
        super().__init__({"socket": guest.sock})


@contextlib.asynccontextmanager
async def echo(limit: int) -> AsyncIterator[tuple[ConnectionLimiter, Listener, int]]:
    """A listener that does not accept yet, with its limiter and port."""
    sock = socket.create_server(("127.0.0.1", 0), backlog=1024)
    limiter = ConnectionLimiter(limit)
    listener = Listener(sock, limiter, lambda on_lost: Echo(limiter, on_lost))
    try:
        yield limiter, listener, int(sock.getsockname()[1])
    finally:
        listener.close()


async def test_an_unidentified_peer_is_closed_after_a_short_time(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.base.wire.listener.UNKNOWN_S", 0.2)
    async with serving(make_view(tmp_path), None, pki, ALLOW) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=pki.context())
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
