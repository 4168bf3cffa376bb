"""Keys of pods, and the proof that the node has them. Must never write, print or log a key.

Apart because it loads the X.509 library, and an RSA key takes seconds: it is imported, and called,
on a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

from kubeletpy.base.host.pki import CertificateError
from kubeletpy.base.host.x509 import KEYS, digest
from kubeletpy.base.structs import Hidden, HidesFields, Struct

_KEY_TYPES: Mapping[str, Callable[[], CertificateIssuerPrivateKeyTypes]] = {
    "RSA3072": KEYS["RSA-3072"],
    "RSA4096": KEYS["RSA-4096"],
    "ECDSAP256": KEYS["ECDSA-P256"],
    "ECDSAP384": KEYS["ECDSA-P384"],
    "ECDSAP521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "ED25519": ed25519.Ed25519PrivateKey.generate,
}


class ProvenKey(HidesFields, Struct, frozen=True):
    """A private key and a request that it has signed."""

    key: Hidden[bytes]
    """PKCS #8, PEM."""
    proof: Hidden[bytes]
    """PKCS #10 without subject or extensions, DER."""


def new_key(key_type: str) -> ProvenKey:
    """A new key of that ``keyType``. Raises CertificateError: there is no such type."""
    make = _KEY_TYPES.get(key_type)
    if make is None:
        known = ", ".join(_KEY_TYPES)
        raise CertificateError(f"keyType {key_type!r} is none of {known}")
    key = make()
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return ProvenKey(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        request.sign(key, digest(key)).public_bytes(serialization.Encoding.DER),
    )
