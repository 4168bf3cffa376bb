"""Service account tokens, and their TokenReview."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, DeleteOptions
from tests.unit.kubeletpy_up.helpers import START, SetClock, bound_pod, make_registry, refusal


def _request(registry: Registry, **spec: Any) -> Any:
    return registry.create(
        ADMIN,
        "serviceaccounts",
        {"spec": {"audiences": ["vault"], **spec}},
        "default",
        name="default",
        subresource="token",
    )


def _review(registry: Registry, token: str, *audiences: str) -> Any:
    spec = {"token": token, "audiences": list(audiences)}
    return registry.create(ADMIN, "tokenreviews", {"spec": spec})["status"]


def test_a_token_authenticates_its_account_until_it_expires() -> None:
    clock = SetClock()
    registry = make_registry(clock=clock)
    answer = _request(registry, expirationSeconds=600)
    token = answer["status"]["token"]
    assert answer["status"]["expirationTimestamp"] == "2023-11-14T22:23:20Z"
    status = _review(registry, token, "vault", "other")
    assert status.get("authenticated", False) is True
    assert status["user"]["username"] == "system:serviceaccount:default:default"
    assert status["audiences"] == ["vault"]
    assert _review(registry, token, "other").get("authenticated", False) is False
    assert _review(registry, token).get("authenticated", False) is False, "not for the API itself"
    clock.time = START + 601
    assert _review(registry, token, "vault").get("authenticated", False) is False


def test_a_bound_token_ends_with_its_pod() -> None:
    registry = make_registry()
    uid = bound_pod(registry)["metadata"]["uid"]
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": uid}
    token = _request(registry, boundObjectRef=reference)["status"]["token"]
    assert _review(registry, token, "vault").get("authenticated", False) is True
    registry.delete(ADMIN, "pods", "web", "default", DeleteOptions(grace_period_seconds=0))
    assert _review(registry, token, "vault").get("authenticated", False) is False


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"expirationSeconds": 599}, 422),
        ({"expirationSeconds": 1 << 33}, 422),
        ({"boundObjectRef": {"kind": "Pod", "name": "gone"}}, 404),
        ({"boundObjectRef": {"kind": "Service", "name": "x"}}, 400),
        ({"expirationSeconds": "x"}, 400),
    ],
)
def test_refused_requests(spec: dict[str, Any], code: int) -> None:
    assert refusal(_request, make_registry(), **spec).code == code


def test_a_stale_uid_conflicts() -> None:
    registry = make_registry()
    bound_pod(registry)
    reference = {"kind": "Pod", "name": "web", "uid": "before"}
    assert refusal(_request, registry, boundObjectRef=reference).code == 409


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: t[:-2] + "AA",
        lambda t: "a.b.c",
        str.upper,
        lambda t: t + "=",  # a decoder ignores what these two add
        lambda t: t[:-4] + "\0" + t[-4:],
    ],
)
def test_forged_tokens(spoil: Any) -> None:
    registry = make_registry()
    token = spoil(_request(registry)["status"]["token"])
    status = _review(registry, token, "vault")
    assert status.get("authenticated", False) is False
    assert token not in str(status) or not token


def test_a_review_of_no_token() -> None:
    assert refusal(_review, make_registry(), "").code == 400


def test_another_key_does_not_verify() -> None:
    token = _request(make_registry(signing_key=b"a" * 32))["status"]["token"]
    other = make_registry(signing_key=b"b" * 32)
    assert _review(other, token, "vault").get("authenticated", False) is False
