"""Who a client is and what it may: x509, TokenReview, anonymous; then SubjectAccessReview.

Fails closed: where the API can't be asked, nobody gets in by a token and nobody is allowed
anything. Must never log or keep a token: only its digest is a key of the cache.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubeletpy.api.types import JSON
from kubeletpy.clock import Clock
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import SUBJECTACCESSREVIEWS, TOKENREVIEWS, KubeApi
from kubeletpy.server.expiring_cache import ExpiringCache
from kubeletpy.server.identity import ANONYMOUS, Identity, of_certificate, of_review

log = logging.getLogger(__name__)

CACHED = 2048
"""Answers of each kind that are kept."""
REVIEW_S = 10.0
REVIEWS_AT_ONCE = 16


class AccessError(Exception):
    """It can't be found out whether a client may."""


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """The settings authentication.* and authorization.*; times in seconds."""

    token_reviews: bool = True
    token_ttl: float = 120.0
    anonymous: bool = False
    always_allow: bool = False
    allowed_ttl: float = 300.0
    refused_ttl: float = 30.0


class Access:
    """Answers the two questions; asks the API no more often than it must."""

    def __init__(
        self, api: KubeApi | None, node_name: str, settings: AccessSettings, clock: Clock
    ) -> None:
        """``api`` None: there is none to ask, every review ends in a no."""
        self._clock = clock
        self._api = api
        self._node = node_name
        self._settings = settings
        self._identities: ExpiringCache[bytes, Identity | None] = ExpiringCache(CACHED)
        self._decisions: ExpiringCache[tuple[Identity, str, str], bool] = ExpiringCache(CACHED)
        self._slots = asyncio.Semaphore(REVIEWS_AT_ONCE)

    async def authenticate(
        self, certificate: Mapping[str, Any] | None, authorization: str
    ) -> Identity | None:
        """Who asks; None: 401.

        Args:
            certificate: the verified client certificate, if there is one.
            authorization: the header; empty if there is none.
        """
        found = of_certificate(certificate, self._clock.now())
        if found is not None:
            return found
        kind, _, token = authorization.partition(" ")
        token = token.strip()
        if kind.lower() == "bearer" and token and self._settings.token_reviews:
            return await self._identities.get(
                hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest(),
                lambda: self._review_token(token),
            )
        return ANONYMOUS if self._settings.anonymous else None

    async def authorize(self, identity: Identity, verb: str, subresources: tuple[str, ...]) -> bool:
        """Whether a client may on any of the subresources of this node, asked in their order.

        Raises:
            AccessError: the API could not be asked.
        """
        if self._settings.always_allow:
            return True
        if not verb:
            return False
        for subresource in subresources:
            key = (identity, verb, subresource)
            if await self._decisions.get(key, lambda key=key: self._review_access(*key)):  # type: ignore[misc]
                return True
        return False

    async def _review_token(self, token: str) -> tuple[Identity | None, float]:
        try:
            review = await self._review(TOKENREVIEWS, {"token": token})
        except AccessError as error:
            log.warning("a token can't be reviewed", extra={"why": str(error)})
            return None, 0.0
        status: JSON = review.get("status") or {}
        identity = of_review(status.get("user") or {}) if status.get("authenticated") else None
        return identity, self._settings.token_ttl

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
                "name": self._node,
            },
        }
        if identity.uid:
            spec["uid"] = identity.uid
        if identity.extra:
            spec["extra"] = {key: list(values) for key, values in identity.extra}
        review = await self._review(SUBJECTACCESSREVIEWS, spec)
        allowed = (review.get("status") or {}).get("allowed") is True
        return allowed, self._settings.allowed_ttl if allowed else self._settings.refused_ttl

    async def _review(self, resource: Any, spec: JSON) -> JSON:
        if self._api is None:
            raise AccessError("there is no API to ask (no --kubeconfig)")
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        try:
            async with asyncio.timeout(REVIEW_S), self._slots:
                return await self._api.create(resource, obj)
        except (ApiError, TimeoutError) as error:
            raise AccessError(f"{resource.kind}: {error or 'no answer in time'}") from error
