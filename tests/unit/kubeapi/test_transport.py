"""Counts of a client: attempts, waiting time for the rate limit, bytes sent and received."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest
from aiohttp import web

from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.protocol import EVENTS, NODES, PODS
from kubeletpy.kubeapi.sessions import Sessions
from kubeletpy.kubeapi.transport import NameLookup, RateLimiter, RepairPace, jittered_waits, spread
from kubeletpy.kubeapi.watch_state import NoObserver
from tests.kit.api import answer, failure, lines, raw, serving, serving_client, stream
from tests.kit.virtual_time import on_virtual_time, timed

TOO_MANY = failure(429, "TooManyRequests", headers={"Retry-After": "0"})
LONG = "x" * 5000


class Counted:
    """Records calls of the observer, without times."""

    def __init__(self) -> None:
        self.tries: list[tuple[int | None, str, int, bool]] = []
        self.turns: list[tuple[str, float]] = []
        self.answers: list[tuple[str, int]] = []
        self.hosts: set[str] = set()

    def tried(
        self, code: int | None, method: str, host: str, seconds: float, sent: int, *, again: bool
    ) -> None:
        assert 0 <= seconds < 5
        self.tries.append((code, method, sent, again))
        self.hosts.add(host)

    def held_back(self, method: str, host: str, seconds: float) -> None:
        self.turns.append((method, seconds))
        self.hosts.add(host)

    def connection_lost(self) -> None:
        raise AssertionError("HTTP/1.1 has none to lose")

    def answered(self, method: str, host: str, received: int) -> None:
        self.answers.append((method, received))
        self.hosts.add(host)


async def test_sizes_and_the_host_with_its_port() -> None:
    counted = Counted()
    async with serving_client(raw('{"a": "b"}'), observer=counted) as (server, api):
        await api.get(NODES, "m")
        await api.create(EVENTS, {"text": LONG}, "n")
        assert counted.hosts == {server.url.removeprefix("http://")}
    assert counted.tries == [(200, "GET", 0, False), (200, "POST", 5011, False)]
    assert counted.answers == [("GET", 10), ("POST", 10)]
    assert counted.turns == [("GET", 0.0), ("POST", 0.0)]


async def test_a_retry_is_reported_from_a_first_try() -> None:
    counted = Counted()
    async with serving_client(TOO_MANY, TOO_MANY, answer({}), observer=counted) as (_, api):
        await api.get(NODES, "m")
        await api.get(NODES, "m")
    codes = [(code, again) for code, _, _, again in counted.tries]
    assert codes == [(429, False), (429, True), (200, True), (200, False)]
    assert len(counted.turns) == 4


async def test_a_refusal_has_a_size_and_a_lost_answer_has_none() -> None:
    counted = Counted()
    async with serving(failure(404, "NotFound", LONG)) as server:
        api = KubeClient(Connection(server.url), observer=counted)
        with pytest.raises(errors.NotFound):
            await api.get(PODS, "p", "n")
    with pytest.raises(errors.Unavailable):
        await api.get(PODS, "p", "n")
    await api.close()
    assert [code for code, *_ in counted.tries] == [404, None]
    ((_, size),) = counted.answers
    assert size > 5000


async def test_a_watch_is_tried_but_has_no_length() -> None:
    counted = Counted()
    event = lines({"type": "ADDED", "object": {"kind": "Pod"}})
    async with serving_client(stream(event), observer=counted) as (_, api):
        watch = api.watch(PODS, resource_version="7", timeout_seconds=5)
        assert len([each async for each in watch]) == 2
    assert counted.tries == [(200, "GET", 0, False)]
    assert counted.answers == []


async def test_without_a_limit_requests_are_not_held_back() -> None:
    counted = Counted()
    async with serving_client(answer({}), observer=counted) as (_, api):
        heartbeat = api.limited(qps=0, burst=0)
        await asyncio.gather(api.get(NODES, "m"), heartbeat.get(NODES, "m"))
    assert len(counted.tries) == 2
    assert counted.turns == [("GET", 0.0)]


@on_virtual_time
async def test_waiting_times_of_the_rate_limit() -> None:
    limiter = RateLimiter(2, 1)
    assert [await limiter.wait() for _ in range(3)] == pytest.approx([0, 0.5, 0.5])
    assert await RateLimiter(0, 0).wait() is None


# Rate limits and retry delays.


def test_burst_then_rate() -> None:
    limiter = RateLimiter(10, 3)
    assert [limiter.reserve(100.0) for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    assert limiter.reserve(100.3) == 0
    assert [limiter.reserve(200.0) for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


def test_zero_is_no_limit() -> None:
    limiter = RateLimiter(0, 0)
    assert [limiter.reserve(1.0) for _ in range(100)] == [0.0] * 100


@on_virtual_time
async def test_waiting() -> None:
    limiter = RateLimiter(2, 1)
    await limiter.wait()
    assert (await timed(limiter.wait()))[1] == pytest.approx(0.5)


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 4), (0.5, 6), (1.0, 8)])
def test_retry_after_is_a_minimum(chance: float, seconds: float) -> None:
    assert spread(4, chance) == seconds


def test_waits_double_with_jitter_up_to_a_limit() -> None:
    waits = list(islice(jittered_waits(0.8, 30, random.Random(1)), 10))
    for seconds, base in zip(waits, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30, 30], strict=True):
        assert base <= seconds <= 2 * base


def test_repairs_are_made_at_once_and_then_ever_later() -> None:
    pace, made = RepairPace(10, 100), list[int]()
    for now in range(1000):  # something is removed again each second
        if pace.due(now):
            pace.repaired(now)
            made.append(now)
    assert made == [0, 10, 30, 70, 150, 250, 350, 450, 550, 650, 750, 850, 950]


def test_a_repair_that_lasts_is_forgotten() -> None:
    pace = RepairPace(10, 100)
    for now in (0, 10, 30, 70):
        pace.repaired(now)
    assert not pace.due(149)
    pace.repaired(70 + 4 * 80)
    assert pace.due(70 + 4 * 80 + 10)


# The API server's name is resolved on a thread of its own.


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


async def test_addresses_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    # as glibc answers for IPv4 where /etc/hosts gives ::1 the same name
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **how: 2 * real("127.0.0.1", 6443, **how))
    found = await NameLookup().resolve("localhost", 6443)
    assert [(each["host"], each["port"]) for each in found] == [("127.0.0.1", 6443)]
    assert found[0]["family"] == socket.AF_INET
    monkeypatch.undo()
    with pytest.raises(OSError, match="no such host"):
        await NameLookup().resolve("a" * 70 + ".example", 1)
