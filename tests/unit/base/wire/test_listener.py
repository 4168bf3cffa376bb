"""Memory left by short-lived clients of every HTTP listener, and the cost of silent ones."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import select
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.wire import listener as wire_listener
from kubeletpy.base.wire.listener import (
    UNKNOWN_OF_ONE,
    Connection,
    ConnectionLimiter,
    Listener,
    source_of,
)
from kubeletpy.observe.view.server import ViewServer
from kubeletpy.server.health import HealthServer
from kubeletpy.server.settings import AccessSettings
from tests.kit.costs import MI, left_by, resident
from tests.kit.embedded import serving as serving_api
from tests.kit.server import Pki, Reviewer, make_view, serving
from tests.kit.view import Agent
from tests.unit.base.wire.echo import Echo

ALLOW = AccessSettings(always_allow=True)
TOGETHER = 25
HELLO = bytes.fromhex("16030100c8010000c40303")
"""Beginning of a TLS ClientHello."""
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates, made once."""
    return Pki(tmp_path_factory.mktemp("pki"))


@asynccontextmanager
async def node(pki: Pki, tmp_path: Path) -> AsyncIterator[int]:
    async with serving(make_view(tmp_path), Reviewer(), pki) as server:
        yield server.port


@asynccontextmanager
async def read_only(pki: Pki, tmp_path: Path) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    async with serving(make_view(tmp_path), None, pki, ALLOW, read_only_port=port):
        yield port


@asynccontextmanager
async def health(_: Pki, __: Path) -> AsyncIterator[int]:
    server = HealthServer("127.0.0.1", 0, checks={}, render_metrics=lambda: (b"", "text/plain"))
    await server.start()
    await server.serve()
    yield server.port
    await server.close()


@asynccontextmanager
async def view(_: Pki, __: Path) -> AsyncIterator[int]:
    server = ViewServer(Agent())
    await server.start()
    yield int(server.url.split(":")[2].split("/")[0])
    await server.close()


@asynccontextmanager
async def embedded(_: Pki, tmp_path: Path) -> AsyncIterator[int]:
    keys = tmp_path / "keys"
    keys.mkdir()
    async with serving_api(tmp_path, keys) as (_api, admin, _node):
        yield int(admin.url.rpartition(":")[2])


Listening = Callable[[Pki, Path], contextlib.AbstractAsyncContextManager[int]]
TLS: Sequence[Listening] = (node, embedded)
PLAIN: Sequence[Listening] = (read_only, health, view)
ANY_SERVER = ssl.create_default_context()
ANY_SERVER.check_hostname = False
ANY_SERVER.verify_mode = ssl.CERT_NONE


async def closes(port: int, sent: bytes) -> None:
    """Sends bytes, and closes its end once the server has accepted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    await asyncio.sleep(0)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await reader.read()
        await writer.wait_closed()


async def resets(port: int, sent: bytes) -> None:
    """Sends bytes, and resets its connection."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    await asyncio.sleep(0)
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


async def request_once(port: int, sent: bytes, tls: ssl.SSLContext | None) -> None:
    """Sends a request, reads the head of the answer, and closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(sent)
    await reader.readuntil(b"\r\n\r\n")
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


PEERS: dict[str, Callable[[int, ssl.SSLContext | None], Awaitable[None]]] = {
    "silent": lambda port, _: closes(port, b""),
    "reset": lambda port, _: resets(port, b""),
    "part of a hello": lambda port, _: closes(port, HELLO),
    "part of a hello, reset": lambda port, _: resets(port, HELLO),
    "no TLS": lambda port, _: closes(port, b"x" * 300),
    "a request": lambda port, tls: request_once(port, REQUEST, tls),
    "no HTTP": lambda port, tls: request_once(port, b"\0\1\2\r\n\r\n", tls),
}
HANDSHAKES = {"a request", "no HTTP"}
"""Kinds of peers that need a TLS handshake, 10 ms of CPU time each."""


async def some(peer: Callable[[], Awaitable[None]], many: int) -> None:
    for _ in range(many // TOGETHER):
        await asyncio.gather(*(peer() for _ in range(TOGETHER)))
    await asyncio.sleep(0.05)  # until the server has noticed the last disconnects


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("listening", [*TLS, *PLAIN], ids=lambda each: each.__name__)
async def test_clients_leave_nothing(
    listening: Listening, kind: str, pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any collection: asyncio leaves a cycle of 2 to 3 kB a connection, client and server.

    Each of the handshakes that failed left 55 kB.
    """
    monkeypatch.setattr("kubeletpy.base.wire.listener.HANDSHAKE_S", 60.0)
    tls = ANY_SERVER if listening in TLS else None
    many = 100 if tls is not None and kind in HANDSHAKES else 300
    async with listening(pki, tmp_path) as port:
        left = await left_by(partial(some, partial(PEERS[kind], port, tls)), many, before=100)
    assert left < 3 * MI


@pytest.mark.parametrize("listening", [*TLS, *PLAIN], ids=lambda each: each.__name__)
async def test_silent_connections_cost_little(
    listening: Listening, pki: Pki, tmp_path: Path
) -> None:
    async with listening(pki, tmp_path) as port:
        before = resident()
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(250)]
        await asyncio.sleep(0.2)
        assert resident() - before < 4 * MI  # 14 MB when each had its TLS state
        for each in held:
            each.close()


def client_hello() -> bytes:
    """The first message of a client, complete."""
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ANY_SERVER.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    return sent.read()


@contextlib.contextmanager
def stalled(port: int, many: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Clients that send the beginning of a handshake and nothing more."""
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(many)]
    try:
        for each in held:
            each.sendall(sent)
        yield held
    finally:
        for each in held:
            each.close()


async def until_answered(held: Sequence[socket.socket], many: int) -> None:
    """Wait until so many have an answer, and the loop has had time to answer more."""
    answered = 0
    while answered < many:
        await asyncio.sleep(0.001)
        answered = len(select.select(held, [], [], 0)[0])
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(select.select(held, [], [], 0)[0]) == many


@pytest.mark.parametrize("sent", [client_hello(), client_hello()[:100]], ids=["whole", "half"])
@pytest.mark.parametrize("listening", TLS, ids=lambda each: each.__name__)
async def test_stalled_handshakes_cost_little(
    listening: Listening, sent: bytes, pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.base.wire.listener.STALLED_S", 60.0)
    tls = ANY_SERVER
    monkeypatch.setattr("kubeletpy.base.wire.listener.HANDSHAKE_S", 60.0)
    async with listening(pki, tmp_path) as port:
        await some(partial(PEERS["a request"], port, tls), 50)  # fills caches
        before = resident()
        with stalled(port, 250, sent) as held:
            if len(sent) > 100:
                await until_answered(held, wire_listener.HANDSHAKES)
            else:
                await asyncio.sleep(0.2)
            assert resident() - before < 7 * MI  # 20 MB when all of them were under way


async def test_stalled_handshakes_make_room_for_another_address(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.base.wire.listener.HANDSHAKES", 4)
    monkeypatch.setattr("kubeletpy.base.wire.listener.STALLED_S", 0.05)
    async with node(pki, tmp_path) as port:
        with stalled(port, 40, client_hello()) as held:
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=ANY_SERVER, local_addr=("127.0.0.2", 0)
            )
            ended = 0
            for each in select.select(held, [], [], 0)[0]:
                each.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while data := each.recv(65536):
                        del data
                    ended += 1
            assert ended, "the oldest handshake has ended"
            writer.close()


async def test_few_handshakes_begin_in_one_turn_of_the_loop(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a health check waits for few of them."""
    loop, turn, begun = asyncio.get_running_loop(), 0, Counter[int]()
    begin, counting = wire_listener.Listener._begin, True

    def count_turn() -> None:
        nonlocal turn
        turn += 1
        if counting:
            loop.call_soon(count_turn)

    def note(self: wire_listener.Listener, guest: Any) -> None:
        begun[turn] += 1
        begin(self, guest)

    monkeypatch.setattr(wire_listener.Listener, "_begin", note)
    async with node(pki, tmp_path) as port:
        with stalled(port, 60, client_hello()) as held:
            count_turn()
            await until_answered(held, 60)
            counting = False
    assert begun.total() == 60
    assert max(begun.values()) <= wire_listener.STARTS


async def test_a_stalled_handshake_stays_while_nobody_waits(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.base.wire.listener.HANDSHAKES", 2)
    monkeypatch.setattr("kubeletpy.base.wire.listener.STALLED_S", 0.0)
    async with node(pki, tmp_path) as port:
        with stalled(port, 2, client_hello()) as held:
            await until_answered(held, 2)
            for each in held:
                each.setblocking(False)
                assert each.recv(65536)
                with pytest.raises(BlockingIOError):
                    while each.recv(65536):
                        pass


async def test_a_connection_that_waits_for_its_handshake_is_closed_by_the_door(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.base.wire.listener.HANDSHAKES", 1)
    monkeypatch.setattr("kubeletpy.base.wire.listener.STALLED_S", 60.0)
    monkeypatch.setattr("kubeletpy.base.wire.listener.UNKNOWN_OF_ONE", 5)
    async with node(pki, tmp_path) as port:
        clients = []
        for _ in range(8):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(client_hello())
            clients.append((reader, writer))
        await clients[0][0].read()  # its handshake had begun
        for reader, _ in clients[1:3]:
            with contextlib.suppress(ConnectionResetError):  # nobody has read its hello
                assert await reader.read() == b""
        for _, writer in clients:
            writer.close()


@pytest.mark.parametrize("listening", [*TLS, *PLAIN], ids=lambda each: each.__name__)
async def test_no_answer_names_the_software(listening: Listening, pki: Pki, tmp_path: Path) -> None:
    tls = ANY_SERVER if listening in TLS else None
    async with listening(pki, tmp_path) as port:
        for request in (
            b"\0\1\2\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
            b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nExpect: 200-maybe\r\n\r\n",
            b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            REQUEST,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.")
            assert b"server:" not in head
            assert b"aiohttp" not in head
            assert b"python" not in head
            assert b"x-content-type-options: nosniff" in head
            writer.close()


async def test_a_burst_of_an_api_server_is_served(pki: Pki, tmp_path: Path) -> None:
    """All of them stay connected: more than an address may have without authentication."""
    async with serving(make_view(tmp_path), None, pki, ALLOW) as server:
        tls, stay = pki.context(pki.client), []
        for _ in range(UNKNOWN_OF_ONE // 25 + 1):

            async def connect() -> None:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls)
                writer.write(REQUEST)
                assert (await reader.readline()).split()[1] == b"200"
                stay.append(writer)

            await asyncio.gather(*(connect() for _ in range(25)))
        assert len(stay) > UNKNOWN_OF_ONE
        for writer in stay:
            writer.transport.abort()


async def test_an_address_with_too_many_silent_connections_loses_the_oldest(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kubeletpy.base.wire.listener.UNKNOWN_OF_ONE", 5)
    caplog.set_level(logging.WARNING, "kubeletpy.base.wire.listener")
    async with node(pki, tmp_path) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        for reader, _ in held[:7]:
            assert await reader.read() == b""
        open_still = asyncio.gather(*(reader.read() for reader, _ in held[7:]))
        await asyncio.wait([open_still], timeout=0.1)
        assert not open_still.done()
        for _, writer in held:
            writer.close()
    (line,) = (record for record in caplog.records if record.name == "kubeletpy.base.wire.listener")
    reported: dict[str, Any] = vars(line)
    assert reported["why"] == "too many unauthenticated connections of one address"
    assert (reported["last_from"], reported["closed"]) == ("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        (("10.0.0.1", 4711), "10.0.0.1"),
        (("::ffff:10.0.0.1", 4711, 0, 0), "10.0.0.1"),
        (("2001:db8::1", 4711, 0, 0), "2001:db8::/64"),
        (("2001:db8::ffff:ffff:ffff:ffff", 4711, 0, 0), "2001:db8::/64"),
        (("fe80::1%eth0", 4711, 0, 2), "fe80::/64"),
        (("::1", 4711, 0, 0), "::/64"),
        ("", ""),
        (b"\0hidden", ""),
    ],
)
def test_the_source_by_which_connections_are_counted(address: Any, source: str) -> None:
    assert source_of(address) == source


async def test_an_untrusted_certificate_ends_the_handshake(pki: Pki, tmp_path: Path) -> None:
    stranger: KeyPair = pki.stranger
    async with node(pki, tmp_path) as port:

        async def fails() -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await request_once(port, REQUEST, pki.context(stranger))

        assert await left_by(partial(some, fails), 100, before=50) < 3 * MI


# Silent connections keep nobody out.

MANY = 300


@pytest.fixture(scope="module")
def door_pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates, made once."""
    directory: Path = tmp_path_factory.mktemp("pki")
    return Pki(directory)


def silent(port: int, many: int = MANY) -> list[socket.socket]:
    """Connections that do not even begin with TLS."""
    return [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(many)]


async def test_silent_connections_to_the_node(
    door_pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.server.app.MAX_CONNECTIONS", 40)
    async with serving(make_view(tmp_path), None, door_pki, ALLOW) as server:
        held = await asyncio.to_thread(silent, server.port)
        async with asyncio.timeout(60):
            assert (await server.request("GET", "/healthz", client=door_pki.client))[0] == 200
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
        async with asyncio.timeout(60):
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
        async with asyncio.timeout(60):
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
    door_pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.server.app.MAX_CONNECTIONS", 8)
    async with serving(make_view(tmp_path), None, door_pki, ALLOW) as server:
        request = b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n"
        held = []
        answers = []
        for _ in range(8):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=door_pki.context(door_pki.client)
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
    door_pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.base.wire.listener.UNKNOWN_S", 0.2)
    async with serving(make_view(tmp_path), None, door_pki, ALLOW) as server:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=door_pki.context()
        )
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()


# On a machine without free descriptors, connections wait and little is logged.

RETRIES = 4


class NoDescriptors(socket.socket):
    """A listening socket that accepts nothing at first, as if no descriptor were free."""

    tries = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.tries += 1
        if self.tries <= RETRIES:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


async def test_a_connection_waits_until_there_are_descriptors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kubeletpy.base.wire.listener.ACCEPT_RETRY_S", 0.01)
    sock = NoDescriptors()
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    limiter = ConnectionLimiter(10)
    listener = Listener(sock, limiter, lambda on_lost: Echo(limiter, on_lost))
    listener.start()
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()
    listener.close()
    assert sock.tries > RETRIES
    assert [record.message for record in caplog.records] == ["connections have to wait"]
    assert caplog.records[0].exc_info is None
