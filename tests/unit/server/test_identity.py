"""The identity of a client."""

from __future__ import annotations

import ssl
from typing import Any

from kubeletpy.server.routes import Identity, identity_from_certificate, identity_from_review

ENDS = "Jan  1 00:00:00 2030 GMT"
CERTIFICATE: dict[str, Any] = {
    "notAfter": ENDS,
    "subject": ((("organizationName", "admins"),), (("commonName", "alice"),)),
}


def test_a_certificate_that_expires_during_a_connection_no_longer_counts() -> None:
    ends = ssl.cert_time_to_seconds(ENDS)
    alice = Identity("alice", ("admins", "system:authenticated"))
    assert identity_from_certificate(CERTIFICATE, ends) == alice
    assert identity_from_certificate(CERTIFICATE, ends + 1) is None


def test_the_user_of_a_review() -> None:
    bob = {"username": "bob", "uid": 7, "groups": ["a", "system:authenticated", "a"]}
    assert identity_from_review({**bob, "extra": {"y": ["1", 2], "x": None}}) == Identity(
        "bob", ("a", "system:authenticated"), "7", (("x", ()), ("y", ("1", "2")))
    )
    assert identity_from_review({"username": "bob"}) == Identity("bob", ("system:authenticated",))


def test_reviews_and_certificates_without_a_user() -> None:
    assert identity_from_review({}) is None
    assert identity_from_review({"username": "", "groups": ["admins"]}) is None
    assert identity_from_certificate(None, 0.0) is None
    assert identity_from_certificate({"notAfter": ENDS, "subject": ()}, 0.0) is None
