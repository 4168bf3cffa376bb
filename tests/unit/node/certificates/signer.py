"""A cluster that signs certificates for tests: with short lives and on any clock."""

from __future__ import annotations

import base64
from pathlib import Path

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names

CLIENT_USAGES = ("digital signature", "client auth")


class Signer:
    """A certificate authority with its own key."""

    def __init__(self, directory: Path) -> None:
        self.pair = KeyPair.named(directory, "test-ca")
        x509.make_authority(self.pair, "test")

    def certificate(self, key: bytes, names: Names, not_before: float, not_after: float) -> bytes:
        """A certificate (PEM) for a key."""
        return self.sign(x509.new_request(key, names), not_before, not_after)

    def sign(self, request: bytes, not_before: float, not_after: float) -> bytes:
        """Returns the requested certificate (PEM), whatever it contains."""
        return x509.sign_request(
            request,
            self.pair,
            x509.read_request(request),
            usages=CLIENT_USAGES,
            not_before=not_before,
            not_after=not_after,
        )

    def answer(self, request: JSON, now: float, life: float) -> JSON:
        """A CertificateSigningRequest, approved and signed."""
        pem = base64.b64decode(request["spec"]["request"])
        certificate = base64.b64encode(self.sign(pem, now, now + life)).decode()
        conditions = [{"type": "Approved", "status": "True", "reason": "Test", "message": ""}]
        return {**request, "status": {"conditions": conditions, "certificate": certificate}}
