"""Cached reviews expire after the configured times."""

from __future__ import annotations

import asyncio

from kubeletpy.server.access import Access, Busy
from kubeletpy.server.routes import Identity
from kubeletpy.server.settings import AccessSettings
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
