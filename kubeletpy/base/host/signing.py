"""Certificate authorities and what they sign: our own pairs, and requests from others.

Loads the X.509 library: import this where it is used (see :mod:`.x509`). Blocking: call it on a
thread. A certificate states what the caller specifies, never what the request claims. Private keys
are elliptic (P-256). Must never write an authority's key except for a new authority.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificateIssuerPrivateKeyTypes,
    CertificateIssuerPublicKeyTypes,
    CertificatePublicKeyTypes,
)
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from kubeletpy.base.host.key_pair import KeyPair
from kubeletpy.base.host.pki import CLOCK_SET, CertificateError, Names
from kubeletpy.base.host.x509 import (
    MAX_PEM_BYTES,
    digest,
    load_request,
    moment,
    new_key,
    private_key,
    refusing,
    subject,
    subject_alternatives,
)

_LIFETIME_S = 3650 * 24 * 3600.0
_DIGITAL_SIGNATURE, _KEY_ENCIPHERMENT = "digital signature", "key encipherment"
_EXTENDED = {
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
}


def make_authority(pair: KeyPair, name: str, *, now: float | None = None) -> None:
    """Create an authority with that common name.

    Args:
        now: Unix seconds; None: by the machine's clock.

    Raises:
        CertificateError, OSError.
    """
    key = new_key()
    signer = private_key(key)
    certificate = _begun(Names(name), signer.public_key(), *_life(now))
    usages = _key_usage(digital_signature=True, authority=True)
    certificate = certificate.add_extension(x509.BasicConstraints(True, None), critical=True)
    certificate = certificate.add_extension(usages, critical=True)
    certificate = _identified(certificate, signer.public_key(), signer.public_key())
    pair.store(_signed(certificate, subject(Names(name)), signer), key)


def make_self_signed(pair: KeyPair, names: Names, *, now: float | None = None) -> None:
    """Create a self-signed server certificate.

    Args:
        now: Unix seconds; None: by the machine's clock.

    Raises:
        CertificateError, OSError.
    """
    key = new_key()
    signer = private_key(key)
    usages = (_DIGITAL_SIGNATURE, "server auth")
    certificate = _leaf(names, signer.public_key(), usages, *_life(now))
    ski = x509.SubjectKeyIdentifier.from_public_key(signer.public_key())
    certificate = certificate.add_extension(ski, critical=False)
    pair.store(_signed(certificate, subject(names), signer), key)


def make_signed(
    pair: KeyPair, authority: KeyPair, names: Names, *, now: float | None = None
) -> None:
    """A new pair from an authority: for a server if it has alternative names, else for a client.

    Args:
        now: Unix seconds; None: by the machine's clock.

    Raises:
        CertificateError: the authority's files can't be used, or a name can't stand in a
            certificate.
        OSError: a file can't be read or written.
    """
    key = new_key()
    public = private_key(key).public_key()
    issuer, signer = _authority(authority)
    usage = "server auth" if names.dns_names or names.ip_addresses else "client auth"
    certificate = _leaf(names, public, (_DIGITAL_SIGNATURE, usage), *_life(now))
    certificate = _identified(certificate, public, signer.public_key())
    pair.store(_signed(certificate, issuer.subject, signer), key)


def sign_request(
    pem: bytes,
    authority: KeyPair,
    names: Names,
    *,
    usages: Iterable[str],
    not_before: float,
    not_after: float,
) -> bytes:
    """A certificate (PEM) for a request's key.

    Args:
        pem: PKCS #10; its signature must be valid. Only its key is used.
        names: subject and alternative names that the certificate gets.
        usages: named as in CertificateSigningRequests.
        not_before, not_after: Unix seconds.

    Raises:
        CertificateError: the request is broken, its key is not accepted, or a name can't stand in
            a certificate.
        OSError: the authority's files can't be read.
    """
    given = list(usages)
    if not {_DIGITAL_SIGNATURE, _KEY_ENCIPHERMENT} & {*given} or not _EXTENDED.keys() & {*given}:
        raise CertificateError("a certificate needs usages")
    request = load_request(pem)
    with refusing("the request's own signature can't be checked"):
        right = request.is_signature_valid
    if not right:
        raise CertificateError("the request's signature is invalid")
    issuer, signer = _authority(authority)
    certificate = _leaf(names, request.public_key(), given, not_before, not_after)
    aki = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    certificate = certificate.add_extension(aki, critical=False)
    return _signed(certificate, issuer.subject, signer)


def verifies(authority: Path, *certificates: Path, now: float | None = None) -> bool:
    """Whether an authority has issued these certificates and they are valid. Raises OSError.

    ``now``: Unix seconds; None: by the machine's clock.
    """
    try:
        with refusing("a certificate can't be read"):
            issuer = _load(authority)
            found = [_load(each) for each in certificates]
            for each in found:
                each.verify_directly_issued_by(issuer)
    except (CertificateError, InvalidSignature):
        return False
    at = moment(time.time() if now is None else now)
    return all(
        each.not_valid_before_utc <= at < each.not_valid_after_utc for each in (issuer, *found)
    )


def _load(path: Path) -> x509.Certificate:
    with path.open("rb") as file:
        return x509.load_pem_x509_certificate(file.read(MAX_PEM_BYTES))


def _authority(pair: KeyPair) -> tuple[x509.Certificate, CertificateIssuerPrivateKeyTypes]:
    with refusing(f"the authority {pair.certificate} can't be used"):
        return _load(pair.certificate), private_key(pair.key.read_bytes())


def _life(now: float | None) -> tuple[float, float]:
    """When a certificate begins and ends; one from before the clock was set is valid later, too."""
    begins = time.time() if now is None else now
    return begins, max(begins, CLOCK_SET) + _LIFETIME_S


def _begun(
    names: Names, key: CertificatePublicKeyTypes, not_before: float, not_after: float
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject(names)).public_key(key)
    with refusing("the certificate's times can't be written"):
        builder = builder.not_valid_before(moment(not_before)).not_valid_after(moment(not_after))
    return builder.serial_number(x509.random_serial_number())


def _leaf(
    names: Names,
    key: CertificatePublicKeyTypes,
    usages: Iterable[str],
    not_before: float,
    not_after: float,
) -> x509.CertificateBuilder:
    given = set(usages)
    extended = x509.ExtendedKeyUsage([oid for name, oid in _EXTENDED.items() if name in given])
    usage = _key_usage(
        digital_signature=_DIGITAL_SIGNATURE in given, key_encipherment=_KEY_ENCIPHERMENT in given
    )
    builder = _begun(names, key, not_before, not_after)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(extended, critical=False)
    alternatives = subject_alternatives(names)
    return builder.add_extension(alternatives, critical=False) if alternatives else builder


def _identified(
    builder: x509.CertificateBuilder,
    key: CertificateIssuerPublicKeyTypes,
    issuer: CertificateIssuerPublicKeyTypes,
) -> x509.CertificateBuilder:
    ski = x509.SubjectKeyIdentifier.from_public_key(key)
    aki = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer)
    return builder.add_extension(ski, critical=False).add_extension(aki, critical=False)


def _key_usage(
    *, digital_signature: bool, key_encipherment: bool = False, authority: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_encipherment=key_encipherment,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    builder: x509.CertificateBuilder, issuer: x509.Name, signer: CertificateIssuerPrivateKeyTypes
) -> bytes:
    with refusing("the certificate can't be made"):
        return builder.issuer_name(issuer).sign(signer, digest(signer)).public_bytes(Encoding.PEM)
