"""A token from disk is accepted only if its claims match the request of the pod."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.projected.token_claims import (
    MAX_TOKEN_BYTES,
    SKEW_S,
    Life,
    TokenKey,
    life_of,
)
from tests.kit.volumes import jwt

NOW = 1_700_000_000.0
IAT = NOW - 100
META = {"name": "p", "namespace": "ns", "uid": "u"}
POD = Pod(cast(Any, {"metadata": META, "spec": {"containers": [{"name": "c"}]}}))
KEY = TokenKey("sa", "", 3600)
ABOUT = {
    "namespace": "ns",
    "pod": {"name": "p", "uid": "u"},
    "serviceaccount": {"name": "sa", "uid": "uid-sa"},
    "node": {"name": "n", "uid": "uid-n"},
}
CLAIMS = {"aud": ["https://api"], "iat": IAT, "nbf": IAT, "exp": IAT + 3600, "kubernetes.io": ABOUT}


def about(**changed: object) -> dict[str, object]:
    return {**CLAIMS, "kubernetes.io": {**ABOUT, **changed}}


HOUR = Life(3600, IAT + 3600)
YEAR = IAT + 365 * 86400


@pytest.mark.parametrize(
    ("claims", "key", "life"),
    [
        (CLAIMS, KEY, HOUR),
        ({**CLAIMS, "aud": "https://api"}, KEY, HOUR),
        ({**CLAIMS, "aud": ["vault"]}, TokenKey("sa", "vault", 3600), HOUR),
        ({**CLAIMS, "aud": "vault"}, TokenKey("sa", "vault", 3600), HOUR),
        ({**CLAIMS, "iat": NOW + 30, "exp": NOW + 31}, KEY, Life(1, NOW + 31)),
        (CLAIMS, TokenKey("sa", "", 3600, "uid-sa"), HOUR),
        # the server made it shorter than requested
        (CLAIMS, TokenKey("sa", "", 7200), HOUR),
        # kube-apiserver extends the life of its own tokens, with the intended end in a claim
        ({**about(warnafter=IAT + 3600), "exp": YEAR}, KEY, HOUR),
        ({**CLAIMS, "iat": NOW + SKEW_S, "exp": NOW + 3600}, KEY, Life(3540, NOW + 3600)),
        # bound to another object
        (about(pod={"name": "p", "uid": "u2"}), KEY, None),
        (about(pod={"name": "p2", "uid": "u"}), KEY, None),
        (about(pod=None), KEY, None),
        (about(pod=["u"]), KEY, None),
        (about(namespace="ns2"), KEY, None),
        (CLAIMS, TokenKey("other", "", 3600), None),
        (CLAIMS, TokenKey("sa", "", 3600, "uid-other"), None),
        # for another audience, or for more than one
        (CLAIMS, TokenKey("sa", "vault", 3600), None),
        ({**CLAIMS, "aud": ["vault", "https://api"]}, TokenKey("sa", "vault", 3600), None),
        ({**CLAIMS, "aud": []}, KEY, None),
        ({**CLAIMS, "aud": None}, KEY, None),
        # lives longer than requested, has expired, or comes from the future
        (CLAIMS, TokenKey("sa", "", 600), None),
        ({**CLAIMS, "exp": YEAR}, KEY, None),
        ({**CLAIMS, "iat": NOW - 3600, "exp": NOW}, KEY, None),
        ({**CLAIMS, "iat": NOW + SKEW_S + 1, "exp": NOW + 3600}, KEY, None),
        ({**CLAIMS, "exp": IAT}, KEY, None),
        ({**CLAIMS, "iat": NOW + 30, "exp": NOW + 30}, KEY, None),
        ({**CLAIMS, "iat": NOW + 30, "exp": NOW + 29.5}, KEY, None),
        (about(serviceaccount={"name": ""}), TokenKey("", "", 3600), None),
        # nonsense
        ({**CLAIMS, "exp": "soon"}, KEY, None),
        ({**CLAIMS, "exp": True}, KEY, None),
        ({**CLAIMS, "exp": 10**400}, KEY, None),
        ({**CLAIMS, "iat": None}, KEY, None),
        ({**CLAIMS, "kubernetes.io": "ns"}, KEY, None),
        ([CLAIMS], KEY, None),
    ],
)
def test_life(claims: object, key: TokenKey, life: Life | None) -> None:
    assert life_of(jwt(claims), POD, key, NOW) == life


@pytest.mark.parametrize(
    "token",
    [
        "",
        "abc",
        "a.b",
        "..",
        "a.*.c",
        "a.bGVnYWN5.c",
        jwt(CLAIMS) + ".more",
        jwt({**CLAIMS, "more": "x" * MAX_TOKEN_BYTES}),
        jwt("x").split(".")[0] + "." + base64.b64encode(b"[" * 9000).decode() + ".c",
    ],
)
def test_malformed_tokens_are_refused(token: str) -> None:
    assert life_of(token, POD, KEY, NOW) is None


def test_the_signature_is_not_checked() -> None:
    head, claims, _ = jwt(CLAIMS).split(".")
    for length in range(4):
        assert life_of(f"{head}.{claims}.{'s' * length}", POD, KEY, NOW) == HOUR
    assert life_of(f"{head}.{claims[:4]}****{claims[4:]}.s", POD, KEY, NOW) is None


def test_the_longest_token() -> None:
    longest = jwt(CLAIMS).ljust(16384, "s")
    assert life_of(longest, POD, KEY, NOW) == HOUR
    assert life_of(f"{longest}s", POD, KEY, NOW) is None
