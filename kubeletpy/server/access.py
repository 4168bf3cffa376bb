"""Authenticates and authorizes clients: x509, TokenReview, anonymous; then SubjectAccessReview.

Fails closed: when the API can't be reached, no token is accepted and no request is allowed. Must
never log or keep a token: the cache is keyed by its digest only.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import SUBJECTACCESSREVIEWS, TOKENREVIEWS, KubeApi
from kubeletpy.server.routes import (
    ANONYMOUS,
    Identity,
    identity_from_certificate,
    identity_from_review,
)
from kubeletpy.server.settings import AccessSettings

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Load = Callable[[], Awaitable[tuple[V, float]]]
"""Returns the value and the seconds for which it is valid."""


class ExpiringCache(Component, Generic[K, V]):
    """Keeps answers for a while, each loaded once for all clients that wait for it.

    Evicts the least recently used ones when there are ``size``.
    """

    size: int

    def __post_init__(self) -> None:
        self._kept: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self._under_way: dict[K, asyncio.Future[tuple[V, float]]] = {}

    async def get(self, key: K, load: Load[V]) -> V:
        """Return the cached answer, or that of ``load``, whose errors are raised and not cached."""
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(key)
        if kept is not None and kept[1] > now:
            self._kept.move_to_end(key)
            return kept[0]
        pending = self._under_way.get(key)
        if pending is None:
            pending = asyncio.ensure_future(load())
            self._under_way[key] = pending
            pending.add_done_callback(lambda done: self._done(key, done))
        # a client that disconnects must not cancel the answer that others wait for
        try:
            value, _ = await asyncio.shield(pending)
        finally:
            del pending  # an error refers to this frame, and the future to the error
        return value

    async def close(self) -> None:
        """Cancel the answers that are under way."""
        await cancel_tasks(self._under_way.values())

    def __len__(self) -> int:
        return len(self._kept)

    def _done(self, key: K, done: asyncio.Future[tuple[V, float]]) -> None:
        self._under_way.pop(key, None)
        if done.cancelled() or done.exception() is not None:
            return
        self.store(key, *done.result())

    def store(self, key: K, value: V, seconds: float) -> None:
        """Cache an answer that is known from elsewhere."""
        if seconds <= 0:
            return
        self._kept[key] = (value, asyncio.get_running_loop().time() + seconds)
        self._kept.move_to_end(key)
        while len(self._kept) > self.size:
            self._kept.popitem(last=False)


log = logging.getLogger(__name__)

CACHED = 2048
"""Cached answers of each kind."""
REVIEW_S = 10.0
REVIEWS_AT_ONCE = 16
"""Limit of reviews of permissions, and of reviews of tokens that have been valid before."""
UNKNOWN_AT_ONCE = 8
"""Reviews at once of tokens not seen before."""
UNKNOWN_WAITING = 64
"""Waiting reviews for all clients."""
UNKNOWN_OF_ONE = 16
"""Waiting reviews for one client address."""


class AccessError(Exception):
    """Raised if a client's permissions can't be determined."""


class Busy(AccessError):
    """Raised if too many unknown tokens are waiting for a review."""


class Access(Component):
    """Authenticates and authorizes, with as few API requests as possible."""

    # None: there is no API, and each review is refused.
    api: KubeApi | None
    node_name: str
    settings: AccessSettings
    clock: Clock

    def __post_init__(self) -> None:
        self._identities: ExpiringCache[bytes, Identity | None] = ExpiringCache(CACHED)
        self._decisions: ExpiringCache[tuple[Identity, str, str], bool] = ExpiringCache(CACHED)
        self._unknown: ExpiringCache[bytes, Identity | None] = ExpiringCache(CACHED)
        """Kept apart, so that made-up tokens evict no valid one."""
        self._good: OrderedDict[bytes, None] = OrderedDict()
        """Digests of tokens that were valid, the most recently used last."""
        self._slots = asyncio.Semaphore(REVIEWS_AT_ONCE)
        self._known_slots = asyncio.Semaphore(REVIEWS_AT_ONCE)
        self._unknown_slots = asyncio.Semaphore(UNKNOWN_AT_ONCE)
        self._waiting: Counter[str] = Counter()

    async def close(self) -> None:
        """Cancel reviews that are under way."""
        for each in (self._identities, self._decisions, self._unknown):
            await each.close()

    async def authenticate(
        self, certificate: Mapping[str, Any] | None, authorization: str, source: str = ""
    ) -> Identity | None:
        """Return the client's identity; None stands for 401.

        Args:
            certificate: the verified client certificate, if there is one.
            authorization: the header; empty if there is none.
            source: the client's address.

        Raises:
            Busy: too many new tokens are waiting.
        """
        found = identity_from_certificate(certificate, self.clock.now())
        if found is not None:
            return found
        kind, _, token = authorization.partition(" ")
        token = token.strip()
        if kind.lower() == "bearer" and token and self.settings.token_reviews:
            digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
            return await self._identity_from_token(digest, token, source)
        return ANONYMOUS if self.settings.anonymous else None

    async def authorize(self, identity: Identity, verb: str, subresources: tuple[str, ...]) -> bool:
        """Return whether a client may use any of these subresources of the node, tried in order.

        A method without a verb (HEAD) is reviewed with an empty one, as the kubelet does:
        clients that may do everything (``*``) may do it.

        Raises:
            AccessError: the API could not be reached.
        """
        if self.settings.always_allow:
            return True
        for subresource in subresources:
            key = (identity, verb, subresource)
            if await self._decisions.get(key, partial(self._review_access, *key)):
                return True
        return False

    async def _identity_from_token(self, digest: bytes, token: str, source: str) -> Identity | None:
        if digest in self._good:
            self._good.move_to_end(digest)
            found = await self._identities.get(
                digest, lambda: self._review_token(token, self._known_slots)
            )
            if found is None:
                self._good.pop(digest, None)
            return found

        async def review() -> tuple[Identity | None, float]:
            busy = self._waiting.total() >= UNKNOWN_WAITING
            if busy or self._waiting[source] >= UNKNOWN_OF_ONE:
                raise Busy("too many new tokens wait to be reviewed")
            self._waiting[source] += 1
            try:
                return await self._review_token(token, self._unknown_slots)
            finally:
                self._waiting[source] -= 1
                self._waiting += Counter()  # drops those at zero

        found = await self._unknown.get(digest, review)
        if found is not None:
            self._good[digest] = None
            if len(self._good) > CACHED:
                self._good.popitem(last=False)
            self._identities.store(digest, found, self.settings.token_ttl)
        return found

    async def _review_token(
        self, token: str, slots: asyncio.Semaphore
    ) -> tuple[Identity | None, float]:
        try:
            review = await self._review(TOKENREVIEWS, {"token": token}, slots)
        except AccessError as error:
            log.warning("a token can't be reviewed", extra={"why": str(error)})
            return None, 0.0
        status: JSON = review.get("status") or {}
        identity = (
            identity_from_review(status.get("user") or {}) if status.get("authenticated") else None
        )
        return identity, self.settings.token_ttl

    async def _review_access(
        self, identity: Identity, verb: str, subresource: str
    ) -> tuple[bool, float]:
        spec: JSON = {
            "user": identity.user,
            "groups": list(identity.groups),
            "resourceAttributes": {
                "verb": verb,
                "version": "v1",
                "resource": "nodes",
                "subresource": subresource,
                "name": self.node_name,
            },
        }
        if identity.uid:
            spec["uid"] = identity.uid
        if identity.extra:
            spec["extra"] = {key: list(values) for key, values in identity.extra}
        review = await self._review(SUBJECTACCESSREVIEWS, spec, self._slots)
        allowed = (review.get("status") or {}).get("allowed") is True
        return allowed, self.settings.allowed_ttl if allowed else self.settings.refused_ttl

    async def _review(self, resource: Any, spec: JSON, slots: asyncio.Semaphore) -> JSON:
        if self.api is None:
            raise AccessError("there is no API for reviews (no --kubeconfig)")
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        try:
            async with asyncio.timeout(REVIEW_S), slots:
                return await self.api.create(resource, obj)
        except (ApiError, TimeoutError) as error:
            raise AccessError(f"{resource.kind}: {error or 'no answer in time'}") from error
