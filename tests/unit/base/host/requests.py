"""Certificate requests as only an untrusted peer writes them."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

ORGANIZATION, COMMON_NAME = NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | dsa.DSAPrivateKey
NODE = x509.Name(
    [
        x509.NameAttribute(ORGANIZATION, "system:nodes"),
        x509.NameAttribute(COMMON_NAME, "system:node:n"),
    ]
)


def parts(*supplied: tuple[tuple[x509.ObjectIdentifier, str], ...]) -> x509.Name:
    """A subject from its parts; each part is a set of joined attributes."""
    return x509.Name(
        x509.RelativeDistinguishedName([x509.NameAttribute(*each) for each in part])
        for part in supplied
    )


HIDDEN = {
    "joined": parts(
        ((ORGANIZATION, "system:nodes"),),
        ((COMMON_NAME, "system:node:n"), (ORGANIZATION, "system:masters")),
    ),
    "line separator": parts(
        ((ORGANIZATION, "system:nodes"),),
        ((COMMON_NAME, "system:node:n\u2028x"),),
        ((ORGANIZATION, "system:masters"),),
    ),
    "next line": parts(
        ((ORGANIZATION, "system:nodes"),),
        ((COMMON_NAME, "system:node:n\x85x"),),
        ((ORGANIZATION, "system:masters"),),
    ),
    "subject": parts(
        ((ORGANIZATION, "system:masters"),),
        ((ORGANIZATION, "x\u2028subject=\u2028    O=system:nodes"),),
        ((COMMON_NAME, "system:node:n"),),
    ),
}
"""Subjects whose text hides some of their attributes."""


def request(
    subject: x509.Name = NODE, key: Key | None = None, alternatives: Sequence[x509.GeneralName] = ()
) -> bytes:
    """A request (PEM) for the given content."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    made = builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return made.public_bytes(Encoding.PEM)
