"""Messages between the agent and a credential provider."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletpy.images.providers.protocol import (
    MAX_ENTRIES,
    CacheKeyType,
    ProviderError,
    ProviderResponse,
    ResponseCache,
    read_response,
    write_request,
)

V1 = "credentialprovider.kubelet.k8s.io/v1"
GOOD = {
    "apiVersion": V1,
    "kind": "CredentialProviderResponse",
    "cacheKeyType": "Registry",
    "cacheDuration": "5m0s",
    "auth": {"*.reg.io": {"username": "me", "password": "hunter2"}},
}


def test_requests() -> None:
    assert json.loads(write_request(f"{V1}beta1", "reg.io/a")) == {
        "apiVersion": f"{V1}beta1",
        "kind": "CredentialProviderRequest",
        "image": "reg.io/a",
    }
    requested = json.loads(write_request(V1, "reg.io/a", "token", {"a": "b"}))
    assert requested["serviceAccountToken"] == "token"
    assert requested["serviceAccountAnnotations"] == {"a": "b"}


def test_responses() -> None:
    read = read_response(json.dumps(GOOD).encode(), V1)
    assert read == ProviderResponse(GOOD["auth"], CacheKeyType.REGISTRY, 300.0)  # type: ignore[arg-type]
    assert "hunter2" not in repr(read)
    short = {**GOOD, "auth": None, "cacheDuration": None}
    assert read_response(json.dumps(short).encode(), V1).auths == {}
    assert read_response(json.dumps(short).encode(), V1).cache_seconds is None


@pytest.mark.parametrize(
    ("change", "notified"),
    [
        ({"kind": "Pod"}, "not a CredentialProviderResponse"),
        ({"apiVersion": f"{V1}beta1"}, f"apiVersion is not {V1}"),
        ({"hunter2": 1}, "unknown fields"),
        ({"cacheKeyType": None}, "cacheKeyType is not Image, Registry or Global"),
        ({"cacheKeyType": "hunter2"}, "cacheKeyType is not Image, Registry or Global"),
        ({"cacheDuration": "hunter2"}, "cacheDuration is not a duration"),
        ({"cacheDuration": 5}, "cacheDuration is not a duration"),
        ({"auth": ["hunter2"]}, "auth is not an object"),
        ({"auth": {"r": "hunter2"}}, "auth holds what is not {username, password}"),
        ({"auth": {"r": {"token": "hunter2"}}}, "auth holds what is not {username, password}"),
        ({"auth": {"r": {"password": ["hunter2"]}}}, "auth holds a value that is not a string"),
    ],
)
def test_errors_do_not_quote_the_answer(change: dict[str, Any], notified: str) -> None:
    with pytest.raises(ProviderError) as caught:
        read_response(json.dumps({**GOOD, **change}).encode(), V1)
    assert notified in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"hunter2", b"[]", b"[" * 100_000, b"\xff"])
def test_no_document(data: bytes) -> None:
    with pytest.raises(ProviderError, match="the response is not"):
        read_response(data, V1)


def answer(key_type: str, seconds: float | None, name: str = "x") -> ProviderResponse:
    return ProviderResponse({"r": {"username": name}}, CacheKeyType(key_type), seconds)


@pytest.mark.parametrize(
    ("key_type", "found"),
    [
        ("Image", {"reg.io/a"}),
        ("Registry", {"reg.io/a", "reg.io/b/c"}),
        ("Global", {"reg.io/a", "reg.io/b/c", "other.io/a"}),
    ],
)
def test_the_scope_of_a_kept_answer(key_type: str, found: set[str]) -> None:
    cache = ResponseCache()
    cache.store(answer(key_type, None), "reg.io/a", None, now=0, default_seconds=10)
    names = ("reg.io/a", "reg.io/b/c", "other.io/a")
    assert {name for name in names if cache.get(name, None, 10)} == found
    assert not any(cache.get(name, None, 10.1) for name in names)
    assert not any(cache.get(name, "an account", 0) for name in names)


@pytest.mark.parametrize(
    ("seconds", "default", "until"),
    [(None, 10, 10), (5, 10, 5), (1, 10, 1), (0, 10, -1), (None, 0, -1), (-5, 10, -1)],
)
def test_how_long(seconds: float | None, default: float, until: float) -> None:
    cache = ResponseCache()
    cache.store(answer("Image", seconds), "reg.io/a", None, now=0, default_seconds=default)
    assert bool(cache.get("reg.io/a", None, max(until, 0))) is (until > 0)
    assert cache.get("reg.io/a", None, until + 0.1) is None


def test_the_narrowest_answer_first_and_memory_is_bounded() -> None:
    cache = ResponseCache()
    for key_type in ("Global", "Registry", "Image"):
        cache.store(answer(key_type, 10, key_type), "reg.io/a", None, now=0, default_seconds=0)
    assert cache.get("reg.io/a", None, 0) == {"r": {"username": "Image"}}
    assert cache.get("reg.io/b", None, 0) == {"r": {"username": "Registry"}}
    for number in range(MAX_ENTRIES + 50):
        cache.store(answer("Image", 100), f"reg.io/{number}", None, now=0, default_seconds=0)
    assert len(cache) == MAX_ENTRIES
    assert cache.get(f"reg.io/{MAX_ENTRIES + 49}", None, 0)


def test_expired_answers_are_removed_first() -> None:
    cache = ResponseCache()
    for number in range(MAX_ENTRIES):
        seconds = (5, 10, 20)[number % 3] if number < 6 else 30
        cache.store(answer("Image", seconds), f"reg.io/{number}", None, now=0, default_seconds=0)
    cache.store(answer("Image", 10), "reg.io/new", None, now=10, default_seconds=0)
    # two expired at 5; those that end now still count
    assert len(cache) == MAX_ENTRIES - 1
