"""Counts of a client: attempts, waiting time for the rate limit, bytes sent and received."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.protocol import EVENTS, NODES, PODS
from kubeletpy.kubeapi.transport import RateLimiter
from tests.virtual_time import on_virtual_time

from .api_server import ApiServer, answer, failure, lines, raw, serving, stream

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


def client_of(server: ApiServer, counted: Counted, **options: Any) -> KubeClient:
    return KubeClient(Connection(server.url), observer=counted, **options)


async def test_sizes_and_the_host_with_its_port() -> None:
    counted = Counted()
    async with serving(raw('{"a": "b"}')) as server:
        api = client_of(server, counted)
        await api.get(NODES, "m")
        await api.create(EVENTS, {"text": LONG}, "n")
        await api.close()
        assert counted.hosts == {server.url.removeprefix("http://")}
    assert counted.tries == [(200, "GET", 0, False), (200, "POST", 5011, False)]
    assert counted.answers == [("GET", 10), ("POST", 10)]
    assert counted.turns == [("GET", 0.0), ("POST", 0.0)]


async def test_a_retry_is_reported_from_a_first_try() -> None:
    counted = Counted()
    async with serving(TOO_MANY, TOO_MANY, answer({})) as server:
        api = client_of(server, counted)
        await api.get(NODES, "m")
        await api.get(NODES, "m")
        await api.close()
    codes = [(code, again) for code, _, _, again in counted.tries]
    assert codes == [(429, False), (429, True), (200, True), (200, False)]
    assert len(counted.turns) == 4


async def test_a_refusal_has_a_size_and_a_lost_answer_has_none() -> None:
    counted = Counted()
    async with serving(failure(404, "NotFound", LONG)) as server:
        api = client_of(server, counted)
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
    async with serving(stream(event)) as server:
        api = client_of(server, counted)
        watch = api.watch(PODS, resource_version="7", timeout_seconds=5)
        assert len([each async for each in watch]) == 2
        await api.close()
    assert counted.tries == [(200, "GET", 0, False)]
    assert counted.answers == []


async def test_without_a_limit_requests_are_not_held_back() -> None:
    counted = Counted()
    async with serving(answer({})) as server:
        api = client_of(server, counted)
        heartbeat = api.limited(qps=0, burst=0)
        await asyncio.gather(api.get(NODES, "m"), heartbeat.get(NODES, "m"))
        await api.close()
    assert len(counted.tries) == 2
    assert counted.turns == [("GET", 0.0)]


@on_virtual_time
async def test_waiting_times_of_the_rate_limit() -> None:
    limiter = RateLimiter(2, 1)
    assert [await limiter.wait() for _ in range(3)] == pytest.approx([0, 0.5, 0.5])
    assert await RateLimiter(0, 0).wait() is None
