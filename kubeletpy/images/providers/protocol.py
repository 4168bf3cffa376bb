"""The request to a credential provider, its response, and a cache of responses. Pure.

CredentialProviderRequest and -Response of credentialprovider.kubelet.k8s.io v1, v1beta1 and
v1alpha1 (KEP-2133; service account tokens in v1: KEP-4412). Must never reveal an answer's content:
errors state what is wrong with it, not its content.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from enum import StrEnum
from typing import Any

from kubeletpy.base.api.times import parse_duration
from kubeletpy.base.structs import Hidden, HidesFields, Struct

_FIELDS = frozenset({"apiVersion", "kind", "cacheKeyType", "cacheDuration", "auth"})
_LOGIN_FIELDS = frozenset({"username", "password"})


class ProviderError(Exception):
    """A provider gave no credentials; the text may be logged."""


class CacheKeyType(StrEnum):
    """The images for which an answer is valid."""

    IMAGE = "Image"
    REGISTRY = "Registry"
    GLOBAL = "Global"


class ProviderResponse(HidesFields, Struct, frozen=True):
    """The credentials in a provider's response, and how long they may be cached."""

    auths: Hidden[Mapping[str, Mapping[str, object]]]
    """Registry pattern -> {username, password}; an "auths" document."""
    cache_key_type: CacheKeyType
    cache_seconds: float | None
    """How long it may be cached; None if the provider leaves that to its configuration."""


def write_request(
    api_version: str, image: str, token: str = "", annotations: Mapping[str, str] | None = None
) -> bytes:
    """Return the request as JSON.

    Args:
        api_version: the provider's.
        image: repository, without tag and digest.
        token: of the pod's service account; empty for none.
        annotations: of that account, as far as the provider may see them.
    """
    request: dict[str, Any] = {
        "apiVersion": api_version,
        "kind": "CredentialProviderRequest",
        "image": image,
    }
    if token:
        request["serviceAccountToken"] = token
    if annotations:
        request["serviceAccountAnnotations"] = dict(annotations)
    return json.dumps(request).encode() + b"\n"


def read_response(data: bytes, api_version: str) -> ProviderResponse:
    """Parse a response strictly.

    Raises:
        ProviderError: it is not a response.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        # the decoder's own message and context quote the document, which holds passwords
        raise ProviderError("the response is not JSON") from None
    if not isinstance(document, dict):
        raise ProviderError("the response is not a JSON object")
    if document.get("kind") != "CredentialProviderResponse":
        raise ProviderError("the response is not a CredentialProviderResponse")
    if document.get("apiVersion") != api_version:
        raise ProviderError(f"the response's apiVersion is not {api_version}, as was requested")
    if document.keys() - _FIELDS:
        raise ProviderError("the response has unknown fields")
    try:
        key_type = CacheKeyType(str(document.get("cacheKeyType")))
    except ValueError:
        raise ProviderError(
            "the response's cacheKeyType is not Image, Registry or Global"
        ) from None
    return ProviderResponse(
        _auths(document.get("auth")), key_type, _seconds(document.get("cacheDuration"))
    )


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return parse_duration(value)
    except ValueError:
        pass
    raise ProviderError("the response's cacheDuration is not a duration such as 5m0s")


def _auths(value: object) -> dict[str, Mapping[str, object]]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ProviderError("the response's auth is not an object")
    for login in value.values():
        if not isinstance(login, dict) or login.keys() - _LOGIN_FIELDS:
            raise ProviderError("the response's auth holds what is not {username, password}")
        if not all(isinstance(text, str) for text in login.values()):
            raise ProviderError("the response's auth holds a value that is not a string")
    return value


# The cache

MAX_ENTRIES = 1000

Auths = Mapping[str, Mapping[str, object]]


def registry_of(repository: str) -> str:
    """Host and port of a repository name."""
    return repository.partition("/")[0]


class _CachedAnswer(HidesFields, Struct):
    auths: Hidden[Auths]
    until: float


class ResponseCache:
    """Caches the answers of one provider while valid: by image, by registry or for all images.

    ``scope`` separates service accounts. Times are seconds of one monotonic clock.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, _CachedAnswer] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, repository: str, scope: Hashable, now: float) -> Auths | None:
        """Return the valid answer for an image, the most specific first."""
        for key_type in CacheKeyType:
            kept = self._kept.get(_key(key_type, repository, scope))
            if kept is not None and now <= kept.until:
                return kept.auths
        return None

    def store(
        self,
        response: ProviderResponse,
        repository: str,
        scope: Hashable,
        *,
        now: float,
        default_seconds: float,
    ) -> None:
        """Cache an answer, if it may be cached."""
        seconds = response.cache_seconds
        seconds = default_seconds if seconds is None else seconds
        if seconds <= 0:
            return
        if len(self._kept) >= MAX_ENTRIES:
            self._prune(now)
        key = _key(response.cache_key_type, repository, scope)
        self._kept[key] = _CachedAnswer(response.auths, now + seconds)

    def _prune(self, now: float) -> None:
        for key in [key for key, kept in self._kept.items() if kept.until < now]:
            del self._kept[key]
        soonest = sorted(self._kept, key=lambda key: self._kept[key].until)
        for key in soonest[: max(0, len(self._kept) - MAX_ENTRIES + 1)]:
            del self._kept[key]


def _key(key_type: CacheKeyType, repository: str, scope: Hashable) -> Hashable:
    if key_type is CacheKeyType.IMAGE:
        return key_type, repository, scope
    if key_type is CacheKeyType.REGISTRY:
        return key_type, registry_of(repository), scope
    return key_type, scope
