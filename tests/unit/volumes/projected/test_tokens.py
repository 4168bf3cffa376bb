"""Tokens: requested once, renewed ahead of their end, kept while they are valid."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pytest

from kubeletpy.kubeapi.errors import ApiError, Forbidden, NotFound, Unavailable
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.projected.token_claims import TokenKey
from kubeletpy.volumes.projected.tokens import REQUESTS_AT_ONCE, PodTokens, TokenError, renewal_time
from tests.kit.virtual_time import LoopClock, step_wall_clock
from tests.kit.volumes import FakeApi

pytestmark = pytest.mark.virtual_time

HOUR, DAY = 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "jitter", "after"),
    [
        (600, 0, 480),
        (HOUR, 0, 2880),
        (HOUR, 10, 2870),
        (DAY, 0, 0.8 * DAY),
        (7 * DAY, 0, DAY),
        (7 * DAY, 3, DAY - 3),
    ],
)
def test_renewal_time(seconds: int, jitter: float, after: float) -> None:
    assert renewal_time(1000 + seconds, seconds, jitter) == pytest.approx(1000 + after)


def make() -> tuple[FakeApi, PodTokens, list[str], Pod]:
    clock = LoopClock()
    api = FakeApi(clock)
    tokens = PodTokens(cast(Any, api), clock, rng=random.Random(1))
    due: list[str] = []
    tokens.on_due(due.append)
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    pod = Pod(cast(Any, {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}))
    return api, tokens, due, pod


async def test_a_token_is_bound_to_the_uid_of_the_account() -> None:
    api, tokens, _, pod = make()
    await tokens.get(pod, TokenKey("sa", "me", HOUR))
    assert "metadata" not in api.last_request[1]
    await tokens.get(pod, TokenKey("sa", "me", HOUR, "uid-sa"))
    assert api.last_request[1]["metadata"] == {"uid": "uid-sa"}


async def test_one_request_and_a_timer() -> None:
    api, tokens, due, pod = make()
    key = TokenKey("sa", "me", HOUR)
    assert await tokens.get(pod, key) == "token-1"
    assert await tokens.get(pod, key) == "token-1"
    account, request = api.last_request
    assert account == "sa"
    assert request["spec"]["audiences"] == ["me"]
    assert request["spec"]["boundObjectRef"]["uid"] == "u"
    await asyncio.sleep(HOUR * 0.8 - 11)
    assert due == []
    await asyncio.sleep(13)
    assert due == ["u"]
    assert await tokens.get(pod, key) == "token-2"
    tokens.forget("u")
    await asyncio.sleep(2 * HOUR)
    assert due == ["u"]


@pytest.mark.parametrize("step", [-DAY, -60.0])
async def test_a_clock_that_is_set_back_delays_no_renewal(step: float) -> None:
    _, tokens, due, pod = make()
    key = TokenKey("sa", "me", HOUR)
    await tokens.get(pod, key)
    step_wall_clock(step)
    await asyncio.sleep(HOUR * 0.8 + 3)
    assert due == ["u"]
    assert await tokens.get(pod, key) == "token-2"
    tokens.close()


async def test_a_clock_that_is_set_forward_renews_at_the_next_sync() -> None:
    _, tokens, _, pod = make()
    key = TokenKey("sa", "me", HOUR)
    await tokens.get(pod, key)
    step_wall_clock(DAY)
    assert await tokens.get(pod, key) == "token-2"
    assert await tokens.get(pod, key) == "token-2"
    tokens.close()


async def test_an_old_token_is_kept_while_it_holds() -> None:
    api, tokens, due, pod = make()
    key = TokenKey("sa", "", HOUR)
    await tokens.get(pod, key)
    api.down = Unavailable("gone")
    await asyncio.sleep(HOUR * 0.8)
    assert await tokens.get(pod, key) == "token-1"
    before = len(due)
    await asyncio.sleep(25)
    assert len(due) == before + 1
    await asyncio.sleep(HOUR * 0.2)
    with pytest.raises(TokenError, match="failed to fetch token: gone"):
        await tokens.get(pod, key)
    tokens.close()


@pytest.mark.parametrize(
    "refusal", [Forbidden("no relation yet", code=403), NotFound('pods "p" not found', code=404)]
)
async def test_a_first_refusal_is_retried(refusal: ApiError) -> None:
    api, tokens, _, pod = make()
    api.refusals = [refusal] * 3
    assert await tokens.get(pod, TokenKey("sa", "", HOUR)) == "token-4"
    tokens.close()


async def test_an_error_about_an_invalid_answer_does_not_quote_it() -> None:
    class Odd(FakeApi):
        async def create(self, *_: Any, **__: Any) -> Any:
            return {"status": {"token": "hush", "expirationTimestamp": "soon"}}

    _, _, _, pod = make()
    tokens = PodTokens(cast(Any, Odd()), LoopClock(), random.Random(1))
    with pytest.raises(TokenError) as caught:
        await tokens.get(pod, TokenKey("sa", "", HOUR))
    assert "hush" not in str(caught.value)


async def test_a_pod_of_many_tokens_requests_a_few_at_a_time() -> None:
    api, tokens, _, pod = make()
    api.answers_after = 0.01
    keys = [TokenKey("sa", str(n), HOUR) for n in range(100)]
    await asyncio.gather(*(tokens.get(pod, key) for key in keys))
    assert (api.calls["create"], api.most_under_way) == (100, REQUESTS_AT_ONCE)
    tokens.close()
