"""Caches the answers of providers while valid: by image, by registry or for all images. Pure.

Times are arguments, in seconds of one monotonic clock. Must never do I/O.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from kubeletpy.base.structs import Hidden, HidesFields, Struct
from kubeletpy.images.providers.protocol import CacheKeyType, ProviderResponse

MAX_ENTRIES = 1000

Auths = Mapping[str, Mapping[str, object]]


def registry_of(repository: str) -> str:
    """Host and port of a repository name."""
    return repository.partition("/")[0]


class _CachedAnswer(HidesFields, Struct):
    auths: Hidden[Auths]
    until: float


class ResponseCache:
    """Answers of one provider; ``scope`` separates service accounts."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _CachedAnswer] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, repository: str, scope: Hashable, now: float) -> Auths | None:
        """The valid answer for an image, the most specific first."""
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
