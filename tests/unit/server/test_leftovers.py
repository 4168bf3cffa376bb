"""Memory left by requests with bad tokens, ended streams and calls without garbage collection."""

from __future__ import annotations

import asyncio
import itertools
import socket
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from kubeletpy.remote.local_server import LocalServer
from kubeletpy.server.access import CACHED, Access, AccessError, Busy
from kubeletpy.server.routes import Identity
from kubeletpy.server.settings import AccessSettings
from kubeletpy.server.streaming.options import TUNNEL, V5
from tests.kit.costs import MI, left_by
from tests.kit.server import EXEC, Pki, Reviewer, connect, head, make_view, node, serving
from tests.kit.virtual_time import LoopClock, on_virtual_time
from tests.unit.server.test_attacks import reset

BOB = Identity("bob", ("system:authenticated",))


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates, made once."""
    return Pki(tmp_path_factory.mktemp("pki"))


class Slow(Reviewer):
    """An API that answers reviews when ``go`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.waiting: list[Any] = []

    async def create(self, *supplied: Any, **named: Any) -> Any:
        self.waiting.append(supplied)
        await self.go.wait()
        return await super().create(*supplied, **named)


def access(api: Reviewer, **settings: float) -> Access:
    return Access(api, "node-1", AccessSettings(**settings), LoopClock())  # type: ignore[arg-type]


async def test_endless_tokens_fill_no_memory() -> None:
    """5,000 different invalid tokens of 8 kB, the maximum of a header."""
    api = Reviewer()
    made = access(api, token_ttl=3600)
    count = itertools.count()

    async def review_many(many: int) -> None:
        for _ in range(many):
            api.requested.clear()
            token = f"{next(count)}".ljust(8000, "x")
            assert await made.authenticate(None, f"Bearer {token}", "10.0.0.1") is None

    assert await left_by(review_many, 5_000, before=CACHED) < 2 * MI


async def test_endless_valid_tokens_fill_no_memory() -> None:
    """Each token has another user with a hundred groups; a cached identity is as large as that."""
    api = Reviewer()
    made = access(api, token_ttl=3600)
    count = itertools.count()

    async def review_many(many: int) -> None:
        for _ in range(many):
            number = next(count)
            api.requested.clear()
            api.tokens = {f"t{number}": {"username": f"u{number}", "groups": ["g"] * 100}}
            found = await made.authenticate(None, f"Bearer t{number}", "10.0.0.1")
            assert found is not None
            assert not await made.authorize(found, "get", ("metrics",))

    assert await left_by(review_many, 2000, before=CACHED) < 4 * MI


async def test_refusals_leave_no_cycles() -> None:
    """The API is down, or too many tokens wait: each error is raised through a request."""
    down = Reviewer()
    down.down = True
    api = Slow()
    made, refuses = access(api), access(down)
    held = [
        asyncio.ensure_future(made.authenticate(None, f"Bearer {n}", "10.0.0.1")) for n in range(16)
    ]
    while len(api.waiting) < 8:  # noqa: ASYNC110
        await asyncio.sleep(0)
    count = itertools.count()

    async def review_many(many: int) -> None:
        for _ in range(many):
            what_a_request_holds = bytearray(20_000)
            number = next(count)
            with pytest.raises(Busy):
                await made.authenticate(None, f"Bearer b{number}", "10.0.0.1")
            with pytest.raises(AccessError):
                await refuses.authorize(BOB, "get", (f"{number}",))
            assert await refuses.authenticate(None, f"Bearer {number}", "10.0.0.1") is None
            del what_a_request_holds

    assert await left_by(review_many, 1000) < 4 * MI
    api.go.set()
    await asyncio.gather(*held)


async def test_a_revoked_token_ends_with_its_review(pki: Pki, tmp_path: Path) -> None:
    """The connection stays open: valid, then revoked, then for another audience."""
    api = Reviewer()
    api.tokens["good"] = {"username": "bob"}
    api.allowed = {("bob", "get", "healthz")}
    settings = AccessSettings(token_ttl=0.2)
    async with serving(make_view(tmp_path), api, pki, settings) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=pki.context())

        async def status() -> bytes:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n")
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().partition(b"content-length: ")[2].split()[0])
            await reader.readexactly(length)
            return answer.split()[1]

        assert await status() == b"200"
        api.tokens.clear()
        assert await status() == b"200"  # until the cache has expired
        await asyncio.sleep(0.25)
        assert await status() == b"401"
        assert await status() == b"401"
        writer.close()


@pytest.mark.parametrize(
    "token", [b"\xff\xfe", b"\xc3\xa9", b"a b", b"", b"x" * 8000, b"\xed\xa0\x80"]
)
async def test_no_token_breaks_a_request(
    token: bytes, pki: Pki, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(make_view(tmp_path), Reviewer(), pki) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=pki.context())
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token)
        writer.write(b"\r\n\r\n")
        assert (await reader.readuntil(b"\r\n")).split()[1] in (b"401", b"400")
        writer.close()
    assert "broke" not in caplog.text


@pytest.mark.parametrize(
    ("path", "protocol"),
    [
        (EXEC, ""),
        (EXEC, V5),
        ("/portForward/n/p", ""),
        ("/portForward/n/p", TUNNEL),
        ("/attach/n/p/c?output=1", ""),
        ("/containerLogs/n/p/c?follow=true", None),
    ],
)
async def test_streams_that_vanish_leave_nothing(
    path: str, protocol: str | None, pki: Pki, tmp_path: Path
) -> None:
    async with node(tmp_path, pki) as (server, _):

        async def one() -> None:
            reader, writer = await connect(server)
            plain = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            writer.write(plain if protocol is None else head(path, protocol))
            assert (await reader.readuntil(b"\r\n")).split()[1] in (b"101", b"200")
            reset(writer)

        async def some(many: int) -> None:
            for _ in range(many):
                await one()
            await asyncio.sleep(0.3)

        assert await left_by(some, 40, before=10) < 4 * MI


async def echo(request: bytes) -> bytes:
    return request


@pytest.mark.parametrize("kind", ["silent", "nonsense", "a call"])
async def test_clients_of_a_grpc_socket_leave_nothing(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "s"
    server = LocalServer(path, 10, {"a.B": {"C": echo}})
    await server.start()

    async def one() -> None:
        if kind == "a call":
            async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                call = channel.unary_unary("/a.B/C", bytes, bytes)
                assert await call(b"x") == b"x"
            return
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"" if kind == "silent" else b"GET / HTTP/1.1\r\n\r\n")
        if kind == "silent":
            writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await asyncio.wait_for(reader.read(), 10)
        writer.close()

    async def some(many: int) -> None:
        for _ in range(many):
            await one()

    assert await left_by(some, 300, before=100) < 6 * MI
    await server.close()


# Cached reviews expire after the configured times.


@on_virtual_time
async def test_each_answer_has_its_own_time() -> None:
    api = Reviewer()
    api.tokens["good"] = {"username": "bob"}
    api.allowed = {("bob", "get", "metrics")}
    settings = AccessSettings(token_ttl=20, allowed_ttl=50, refused_ttl=5)
    access = Access(api, "node-1", settings, LoopClock())  # type: ignore[arg-type]

    async def costs_reviews(seconds: float, expected: int) -> None:
        """After so many seconds an identity and two permissions cost that many reviews."""
        await asyncio.sleep(seconds)
        before = len(api.requested)
        assert await access.authenticate(None, "Bearer good") == BOB
        assert await access.authorize(BOB, "get", ("metrics",))
        assert not await access.authorize(BOB, "get", ("proxy",))
        assert len(api.requested) - before == expected

    await costs_reviews(0, 3)
    await costs_reviews(4.9, 0)
    await costs_reviews(0.2, 1)  # at 5.1: the refusal
    await costs_reviews(14.8, 1)  # at 19.9: the refusal again
    await costs_reviews(0.2, 1)  # at 20.1: the token
    api.allowed.add(("bob", "get", "proxy"))
    await asyncio.sleep(5)
    assert await access.authorize(BOB, "get", ("proxy",))
    api.allowed.clear()
    api.tokens.clear()
    await asyncio.sleep(14.8)
    assert await access.authenticate(None, "Bearer good") == BOB, "20 s from the review at 20.1"
    await asyncio.sleep(0.3)
    assert await access.authenticate(None, "Bearer good") is None
    assert await access.authorize(BOB, "get", ("metrics",)), "50 s from the first review"
    await asyncio.sleep(10)
    assert not await access.authorize(BOB, "get", ("metrics",))


@on_virtual_time
async def test_made_up_tokens_take_no_place_of_known_ones() -> None:
    """With a slow API, cached clients are served again and new ones are refused as busy."""

    class Slow(Reviewer):
        async def create(self, *supplied: object, **named: object) -> dict[str, object]:
            await asyncio.sleep(2)
            return await super().create(*supplied, **named)  # type: ignore[arg-type]

    api = Slow()
    api.tokens["good"] = {"username": "bob"}
    access = Access(api, "node-1", AccessSettings(token_ttl=20), LoopClock())  # type: ignore[arg-type]
    assert await access.authenticate(None, "Bearer good", "10.0.0.1") == BOB
    flood = [
        asyncio.create_task(access.authenticate(None, f"Bearer {n}", f"10.0.1.{n % 3}"))
        for n in range(3000)
    ]
    await asyncio.sleep(21)
    flood += [
        asyncio.create_task(access.authenticate(None, f"Bearer again {n}", f"10.0.2.{n % 9}"))
        for n in range(3000)
    ]
    await asyncio.sleep(0.1)
    async with asyncio.timeout(2.5):
        assert await access.authenticate(None, "Bearer good", "10.0.0.1") == BOB
    ended = await asyncio.gather(*flood, return_exceptions=True)
    refused = [each for each in ended if isinstance(each, Busy)]
    assert len(refused) > 5500
    assert len([each for each in ended if each is None]) == 6000 - len(refused)
