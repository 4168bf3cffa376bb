"""Service account tokens for pods: requested once, kept in memory, renewed before they expire.

A timer wakes the pod when a token is due. A token that is still valid is kept when no new one can
be obtained, also the one that an earlier agent left in the pod's volume. Must never log a token or
write one anywhere. Source: docs/reference/behaviour.md, i4;
docs/reference/constants.csv: token.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock, steady_now
from kubeletpy.base.structs import Component, Hidden, HidesFields, Struct
from kubeletpy.images.credentials import AccountSource
from kubeletpy.images.providers.provider import AccountError
from kubeletpy.kubeapi.errors import ApiError, Forbidden, NotFound, Unavailable
from kubeletpy.kubeapi.protocol import SERVICEACCOUNTS, KubeApi
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.projected.token_claims import TokenKey, life_of

T = TypeVar("T")

logger = logging.getLogger(__name__)

DEFAULT_SECONDS = 3600
NEW_POD_WAITS = (0.03, 0.1, 0.3)
"""Seconds before each retry. The authorizer (403) and the admission plugin NodeRestriction (404: it
uses its own cache) get a new pod some milliseconds later than this agent.
"""
REQUESTS_AT_ONCE = 4
"""A pod may need hundreds: other requests to the API wait for a few of them at most."""
MAX_JITTER_S = 10
_LONGEST_S = 24 * 3600.0
_SHARE = 0.2
"""The last part of a token's life, in which it is renewed."""
_RETRY_S = 10.0
_MAX_TIMER_S = 3600.0
"""The clock may be set while a timer runs: it is checked at least this often."""


class BoundToken(HidesFields, Struct, frozen=True):
    """A token of a pod."""

    token: Hidden[str]
    expires_at: float
    """Unix seconds."""


class _CachedToken(HidesFields, Struct):
    token: Hidden[str]
    expires_at: float
    renew_at: float
    """Unix seconds."""
    renew_after: float
    """Seconds of the event loop's clock: renewed then, too, if the wall clock was set back."""
    timer: asyncio.TimerHandle | None = None


class TokenError(Exception):
    """No token could be obtained; the message contains the reason."""


def renewal_time(expires_at: float, seconds: int, jitter: float) -> float:
    """Unix seconds at which a token valid for ``seconds`` is to be renewed. Pure."""
    issued_at = expires_at - seconds
    return min(expires_at - _SHARE * seconds, issued_at + _LONGEST_S) - jitter


async def call_for_new_pod(
    call: Callable[[], Coroutine[Any, Any, T]], *refusals: type[ApiError]
) -> T:
    """The result of a call to the API, repeated while these errors may come of stale caches."""
    for wait in NEW_POD_WAITS:
        with suppress(*refusals):
            return await call()
        await asyncio.sleep(wait)
    return await call()


class PodTokens(Component):
    """The tokens of the pods of this node."""

    api: KubeApi | None
    """None: standalone, no tokens."""
    clock: Clock
    rng: random.Random

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._kept: dict[str, dict[TokenKey, _CachedToken]] = {}
        self._wake: Callable[[str], None] = lambda uid: None

    def on_due(self, wake: Callable[[str], None]) -> None:
        """Have ``wake(pod uid)`` called when a token of a pod is to be renewed."""
        self._wake = wake

    async def get(
        self, pod: Pod, key: TokenKey, left: Callable[[], Awaitable[str]] | None = None
    ) -> str:
        """A token bound to a pod.

        Args:
            left: reads the token that an earlier agent left in the pod's volume, empty if none.
                Called when none was kept yet. The token is used if its claims fit the request.

        Raises:
            TokenError: there is no valid one.
        """
        if left is not None and key not in self._kept.get(pod.uid, {}):
            self._adopt(pod, key, await left())
        return (await self.bound(pod, key)).token

    def _adopt(self, pod: Pod, key: TokenKey, token: str) -> None:
        life = life_of(token, pod, key, self.clock.now())
        if life is None or key in self._kept.get(pod.uid, {}):
            return
        found = self._fresh(token, life.expires_at, life.seconds)
        self._kept.setdefault(pod.uid, {})[key] = found
        self._set_timer(pod.uid, found)

    async def bound(self, pod: Pod, key: TokenKey) -> BoundToken:
        """A token bound to a pod, and when it expires. Raises TokenError."""
        kept = self._kept.get(pod.uid, {}).get(key)
        now = self.clock.now()
        if kept is not None and self._renewal_in(kept) > 0:
            return BoundToken(kept.token, kept.expires_at)
        try:
            answer = await self._request(pod, key)
            fresh = self._read(answer, key)
        except (ApiError, ValueError, KeyError, TypeError) as error:
            if kept is None or now >= kept.expires_at:
                raise TokenError(f"failed to fetch token: {_why(error)}") from error
            logger.warning("token not renewed", extra={"pod": pod.key, "why": _why(error)})
            # no retry before this: every sync of the pod comes here
            wait = _RETRY_S * (1 + self.rng.random())
            kept.renew_at, kept.renew_after = now + wait, steady_now() + wait
            self._set_timer(pod.uid, kept)
            return BoundToken(kept.token, kept.expires_at)
        if kept is not None and kept.timer is not None:
            kept.timer.cancel()
        self._kept.setdefault(pod.uid, {})[key] = fresh
        self._set_timer(pod.uid, fresh)
        return BoundToken(fresh.token, fresh.expires_at)

    def forget(self, uid: str) -> None:
        """Forget a pod that has ended."""
        for kept in self._kept.pop(uid, {}).values():
            if kept.timer is not None:
                kept.timer.cancel()

    def close(self) -> None:
        """Forget the tokens of all pods, and cancel their timers."""
        for uid in list(self._kept):
            self.forget(uid)

    async def _request(self, pod: Pod, key: TokenKey) -> JSON:
        if (api := self.api) is None:
            raise Unavailable("this node has no API")
        request: JSON = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [key.audience] if key.audience else [],
                "expirationSeconds": key.seconds,
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod.name,
                    "uid": pod.uid,
                },
            },
        }
        if key.account_uid:
            request["metadata"] = {"uid": key.account_uid}

        async def create() -> JSON:
            async with self._slots:
                return await api.create(
                    SERVICEACCOUNTS, request, pod.namespace, subresource="token", name=key.account
                )

        return await call_for_new_pod(create, Forbidden, NotFound)

    def _read(self, answer: JSON, key: TokenKey) -> _CachedToken:
        status, spec = answer["status"], answer.get("spec") or {}
        token, expires_at = status["token"], parse_time(status["expirationTimestamp"])
        if not isinstance(token, str) or not token:
            raise ValueError("the answer holds no token")
        seconds = spec.get("expirationSeconds")
        life = seconds if isinstance(seconds, int) and seconds > 0 else key.seconds
        return self._fresh(token, expires_at, life)

    def _fresh(self, token: str, expires_at: float, seconds: int) -> _CachedToken:
        jitter = self.rng.randrange(MAX_JITTER_S + 1)
        renew_at = renewal_time(expires_at, seconds, jitter)
        after = steady_now() + renew_at - self.clock.now()
        return _CachedToken(token, expires_at, renew_at, after)

    def _renewal_in(self, kept: _CachedToken) -> float:
        """Seconds until a token is to be renewed, by the clock that is there first."""
        return min(kept.renew_at - self.clock.now(), kept.renew_after - steady_now())

    def _set_timer(self, uid: str, kept: _CachedToken) -> None:
        if kept.timer is not None:
            kept.timer.cancel()
        wait = max(self._renewal_in(kept), 1.0)
        loop = asyncio.get_running_loop()
        kept.timer = loop.call_later(min(wait, _MAX_TIMER_S), self._due, uid, kept)

    def _due(self, uid: str, kept: _CachedToken) -> None:
        if self._renewal_in(kept) > 0:
            self._set_timer(uid, kept)
        else:
            self._wake(uid)


def _why(error: Exception) -> str:
    """A message that is safe to show: an unreadable answer may contain a token."""
    return error.message if isinstance(error, ApiError) else "the answer cannot be read"


class ClusterAccounts(Component):
    """Service accounts for credential providers, read from the API by name; tokens per pod.

    Must never keep an account or show a token.
    """

    # ``api`` None: standalone, no accounts.
    api: KubeApi | None
    tokens: PodTokens

    async def read_account(self, namespace: str, name: str) -> tuple[str, Mapping[str, str]]:
        """Uid and annotations of an account. Raises AccountError."""
        if self.api is None:
            raise AccountError("this node has no API")
        get = partial(self.api.get, SERVICEACCOUNTS, name, namespace)
        try:
            account = await call_for_new_pod(get, Forbidden)
        except ApiError as error:
            raise AccountError(error.message) from error
        metadata = account.get("metadata") or {}
        return str(metadata.get("uid") or ""), dict(metadata.get("annotations") or {})

    async def token(self, pod: Pod, account: AccountSource, audience: str) -> str:
        """A token of the account, bound to the pod. Raises AccountError."""
        key = TokenKey(account.name, audience, DEFAULT_SECONDS, account.uid)
        try:
            return await self.tokens.get(pod, key)
        except TokenError as error:
            raise AccountError(str(error)) from error
