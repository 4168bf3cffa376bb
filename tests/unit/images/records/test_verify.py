"""Access to an image on the node: policies, records and the credentials of pods."""

from __future__ import annotations

import pytest

from kubeletpy.images.credentials import AccountSource, Credential, SecretSource
from kubeletpy.images.records.model import (
    EVERYBODY,
    LEARNED_LIMIT,
    NOBODY,
    Grants,
    MustPullResult,
    PulledRecord,
    Verification,
    VerificationPolicy,
    by_credentials,
    by_record,
    repository_as_supplied,
)

ONE = SecretSource("uid-1", "ns", "one")
TWO = SecretSource("uid-2", "ns", "two")
ROBOT = AccountSource("uid-r", "ns", "robot")
LOGIN = Credential("me", "secret")
HASH = LOGIN.fingerprint
ALLOWLIST = ("reg.io/base/*", "reg.io/tools/git", "pause")


def shows(source: SecretSource | AccountSource | None, password: str = "secret") -> Credential:
    return Credential("me", password, source=source)


@pytest.mark.parametrize(
    ("policy", "image", "pulled_here", "needed"),
    [
        ("NeverVerify", "reg.io/a:1", True, False),
        ("NeverVerifyPreloadedImages", "reg.io/a:1", False, False),
        ("NeverVerifyPreloadedImages", "reg.io/a:1", True, True),
        ("AlwaysVerify", "reg.io/a:1", False, True),
        ("NeverVerifyAllowlistedImages", "reg.io/a:1", False, True),
        ("NeverVerifyAllowlistedImages", "reg.io/base/a:1", True, False),
        ("NeverVerifyAllowlistedImages", "reg.io/base/a/b@sha256:" + "a" * 64, True, False),
        ("NeverVerifyAllowlistedImages", "reg.io/baseless/a:1", True, True),
        ("NeverVerifyAllowlistedImages", "reg.io/tools/git:2", True, False),
        ("NeverVerifyAllowlistedImages", "reg.io/tools/git-lfs:2", True, True),
        ("NeverVerifyAllowlistedImages", "reg.io/tools/git/more:2", True, True),
        ("NeverVerifyAllowlistedImages", "pause:3.10", True, False),
        ("NeverVerifyAllowlistedImages", "docker.io/library/pause:3.10", True, True),
    ],
)
def test_policies(policy: str, image: str, pulled_here: bool, needed: bool) -> None:
    verification = Verification(VerificationPolicy(policy), ALLOWLIST)
    assert verification.needed(image, pulled_here=pulled_here) is needed


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("busybox", "busybox"),
        ("busybox:1", "busybox"),
        ("reg.io:5000/a", "reg.io:5000/a"),
        ("reg.io:5000/a:1@sha256:" + "a" * 64, "reg.io:5000/a"),
        ("reg.io/a@sha256:" + "a" * 64, "reg.io/a"),
        ("Not:An:Image", ""),
    ],
)
def test_repository(image: str, repository: str) -> None:
    assert repository_as_supplied(image) == repository


def test_decisions_from_the_record_alone() -> None:
    def decision(grants: dict[str, Grants]) -> MustPullResult | Grants:
        return by_record(PulledRecord("sha256:x", 0, grants), "reg.io/a")

    some = Grants(secrets={ONE: HASH})
    assert by_record(None, "reg.io/a") is MustPullResult.MUST_AUTHENTICATE
    nameless = PulledRecord("sha256:x", 0, {"": EVERYBODY})
    assert by_record(nameless, "") is MustPullResult.MUST_AUTHENTICATE
    assert decision({}) is MustPullResult.MUST_AUTHENTICATE
    assert decision({"reg.io/b": EVERYBODY}) is MustPullResult.MUST_AUTHENTICATE
    assert decision({"reg.io/a": NOBODY}) is MustPullResult.MUST_AUTHENTICATE
    assert decision({"reg.io/a": EVERYBODY}) is MustPullResult.RECORD_FOUND
    assert decision({"reg.io/a": some}) is some


FOUND, MUST = MustPullResult.RECORD_FOUND, MustPullResult.MUST_AUTHENTICATE


@pytest.mark.parametrize(
    ("credentials", "outcome", "learned"),
    [
        ([], MUST, NOBODY),
        ([shows(None)], MUST, NOBODY),
        ([shows(ONE)], FOUND, NOBODY),
        ([shows(TWO)], FOUND, Grants(secrets={TWO: HASH})),
        ([shows(TWO, "other")], MUST, NOBODY),
        ([shows(TWO, "other"), shows(ONE)], FOUND, NOBODY),
        ([shows(ONE, "rotated")], FOUND, Grants(secrets={ONE: shows(ONE, "rotated").fingerprint})),
        ([shows(SecretSource("uid-9", "ns", "one"), "other")], MUST, NOBODY),
        ([shows(ROBOT, "anything")], FOUND, NOBODY),
        ([shows(TWO, "other"), shows(ROBOT, "anything")], FOUND, NOBODY),
        ([shows(AccountSource("uid-9", "ns", "robot"))], MUST, NOBODY),
        ([shows(AccountSource("uid-9", "ns", "x")), shows(ROBOT)], MUST, NOBODY),
    ],
)
def test_decisions_from_credentials(
    credentials: list[Credential], outcome: MustPullResult, learned: Grants
) -> None:
    grants = Grants(secrets={ONE: HASH}, accounts=frozenset({ROBOT}))
    proof = by_credentials(grants, credentials)
    assert (proof.outcome, proof.learned) == (outcome, learned)


def test_learning_ends() -> None:
    many = {SecretSource(str(n), "ns", str(n)): f"h{n}" for n in range(LEARNED_LIMIT - 1)}
    grants = Grants(secrets={ONE: HASH, **many})
    assert by_credentials(grants, [shows(TWO)]).outcome is FOUND
    assert by_credentials(grants, [shows(TWO)]).learned is NOBODY
    assert by_credentials(grants, [shows(ONE, "rotated")]).outcome is MUST
    fewer = Grants(secrets=dict(list(grants.secrets.items())[:-1]))
    assert not by_credentials(fewer, [shows(TWO)]).learned.empty


def test_a_record_whose_hash_failed_matches_nothing() -> None:
    assert by_credentials(Grants(secrets={ONE: ""}), [shows(TWO)]).outcome is MUST
