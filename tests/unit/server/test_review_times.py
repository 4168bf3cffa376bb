"""Answers of reviews hold as long as the settings say, and no longer."""

from __future__ import annotations

import asyncio

from kubeletpy.server.access import Access, AccessSettings
from kubeletpy.server.identity import Identity
from tests.unit.server.helpers import Reviewer
from tests.virtual_time import LoopClock, on_virtual_time

BOB = Identity("bob", ("system:authenticated",))


@on_virtual_time
async def test_each_answer_has_its_own_time() -> None:
    api = Reviewer()
    api.tokens["good"] = {"username": "bob"}
    api.allowed = {("bob", "get", "metrics")}
    settings = AccessSettings(token_ttl=20, allowed_ttl=50, refused_ttl=5)
    access = Access(api, "node-1", settings, LoopClock())  # type: ignore[arg-type]

    async def asks(seconds: float, expected: int) -> None:
        """After so many seconds an identity and two permissions cost that many reviews."""
        await asyncio.sleep(seconds)
        before = len(api.asked)
        assert await access.authenticate(None, "Bearer good") == BOB
        assert await access.authorize(BOB, "get", ("metrics",))
        assert not await access.authorize(BOB, "get", ("proxy",))
        assert len(api.asked) - before == expected

    await asks(0, 3)
    await asks(4.9, 0)
    await asks(0.2, 1)  # at 5.1: the refusal
    await asks(14.8, 1)  # at 19.9: the refusal again
    await asks(0.2, 1)  # at 20.1: the token
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
