"""Limits of this package, defaults of fields, and fields that no log may show."""

from __future__ import annotations

import pytest

from tests.stated import is_shown, stated

STATED: dict[str, object] = {
    "images/backoff BASE": 10.0,
    "images/backoff MAXIMUM": 300.0,
    "images/backoff FORGET_AFTER": 600.0,
    "images/credentials MAX_KEYS": 2_000,
    "images/credentials MAX_GLOBS": 100,
    "images/gc_selection LONGEST_CONFIG": 1 << 20,
    "images/providers/cache MAX_ENTRIES": 1000,
    "images/pull_secrets MAX_DOCUMENT": 1 << 20,
    "images/records/verify LEARNED_LIMIT": 100,
    "images/reference MAX_REFERENCE": 1024,
    "images/reference MAX_NAME": 255,
    "images/registry_pattern MAX_PATTERN": 2048,
    "images/registry_pattern MAX_HOST": 255,
    "images/gc_selection ImageGCPolicy.high_threshold_percent": 85,
    "images/gc_selection ImageGCPolicy.low_threshold_percent": 80,
    "images/gc_selection ImageGCPolicy.min_age": 120,
    "images/gc_selection ImageGCPolicy.max_age": 0,
    "images/gc_selection ImageRecord.last_used": 0.0,
    "images/records/intents Intent.pulls": 0,
    "images/records/intents Intent.uncertain": False,
    "images/records/model Grants.everybody": False,
    "images/reference _DIGEST_LENGTHS": {"sha256": 64, "sha384": 96, "sha512": 128},
}
UNSHOWN = (
    "images/credentials Credential.username",
    "images/credentials Credential.password",
    "images/credentials Credential.identity_token",
    "images/providers/cache _Kept.auths",
    "images/providers/protocol ProviderResponse.auths",
)


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: object) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("place", UNSHOWN)
def test_not_shown(place: str) -> None:
    assert not is_shown(place)
