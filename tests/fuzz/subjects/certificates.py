"""Certificates, requests for them and tokens, as anybody may send them."""

from __future__ import annotations

import contextlib

from kubeletpy.base.host import x509
from kubeletpy.base.host.pki import CertificateError, Names
from kubeletpy_up.auth import credentials
from kubeletpy_up.auth.tokens import TokenSigner
from tests.fuzz.target import target, text

_NAMES = Names("system:node:a", ("system:nodes",), ("a", "b"), ("10.0.0.1", "::1"))
_REQUEST = x509.new_request(x509.new_key(), _NAMES)
_SIGNER = TokenSigner(b"secret")
_TOKEN = _SIGNER.sign({"exp": 10, "sub": "a"})


@target(CertificateError, seeds=(_REQUEST,), parts=(b"-----BEGIN ", b"CERTIFICATE-----\n"))
def signing_request(data: bytes) -> None:
    """A request in PEM, or its DER."""
    with contextlib.suppress(CertificateError):
        x509.read_certificate(data)
    x509.read_request(data)


@target(seeds=(_TOKEN.encode(), b"abcdef.0123456789abcdef"), parts=(b".", b"=", b"eyJ"))
def token(data: bytes) -> None:
    """Only signed tokens are accepted."""
    supplied = data.decode("latin-1")
    found = _SIGNER.verify(supplied, 1.0)
    assert found is None or supplied == _TOKEN
    if credentials.looks_like_one(text(data)):
        credentials.caller_of_token(text(data), lambda *_: None, 1.0)
