"""X.509: reads certificates and requests, makes keys and requests, and signs as an authority.

Loads the X.509 library: 10 MB and 25 ms for a process that may never need it. So import this where
it is used, on the thread that does the work. All of it blocks. All input may be hostile: what can't
be read raises a CertificateError. Must never write, print or log a key, except that of a new
authority or certificate, as a private file.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificateIssuerPrivateKeyTypes,
    CertificateIssuerPublicKeyTypes,
    CertificatePublicKeyTypes,
)
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import CLOCK_SET, Certificate, CertificateError, Names
from kubeletpy.base.text import first_line

MAX_PEM_BYTES = 256 * 1024
RSA_BITS = range(2048, 8192 + 1)
"""For keys in requests of others: with more, checking one signature takes seconds."""
_RSA_EXPONENT = 65537
CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
KEYS: Mapping[str, Callable[[], ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey]] = {
    "ECDSA-P256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ECDSA-P384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "RSA-2048": lambda: rsa.generate_private_key(_RSA_EXPONENT, 2048),
    "RSA-3072": lambda: rsa.generate_private_key(_RSA_EXPONENT, 3072),
    "RSA-4096": lambda: rsa.generate_private_key(_RSA_EXPONENT, 4096),
}
"""Makes a key of an algorithm. Source: docs/reference/config.csv: clientCertificateKeyAlgorithm."""
_DNS_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----\n.*?-----END CERTIFICATE-----\n?", re.DOTALL
)
_UNREADABLE = (
    ValueError,
    TypeError,
    OverflowError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""The library's exceptions for input that it can't read or make."""

# X.520 allows 64 characters for a name, but a node's name may have 253; other programs accept that
warnings.filterwarnings("ignore", "Attribute's length must be", UserWarning)


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn what the library raises into a CertificateError: ``what`` can't be read or made."""
    try:
        yield
    except _UNREADABLE as error:
        raise CertificateError(f"{what}: {first_line(error)}") from None


def new_key(algorithm: str = "ECDSA-P256") -> bytes:
    """A private key, PEM. ``algorithm``: one of KEYS."""
    return KEYS[algorithm]().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def private_key(key: bytes) -> CertificateIssuerPrivateKeyTypes:
    """A private key (PEM) to sign with. Raises CertificateError."""
    with refusing("the private key can't be used"):
        found = serialization.load_pem_private_key(key, None)
        if isinstance(found, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            return found
        if isinstance(found, ed25519.Ed25519PrivateKey):
            return found
        raise TypeError("neither elliptic nor RSA nor Ed25519")


def digest(key: CertificateIssuerPrivateKeyTypes) -> hashes.SHA256 | None:
    """The hash that a key signs with; None if the key decides."""
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()


def public_key(key: bytes) -> bytes:
    """The public part of a private key, DER. Raises CertificateError."""
    return (
        private_key(key)
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def new_request(key: bytes, names: Names) -> bytes:
    """A request for a certificate (PKCS #10, PEM).

    Raises:
        CertificateError: the key can't be used, or a name can't be part of a certificate.
    """
    signer = private_key(key)
    request = x509.CertificateSigningRequestBuilder().subject_name(subject(names))
    with refusing("the request can't be made"):
        if alternatives := subject_alternatives(names):
            request = request.add_extension(alternatives, critical=False)
        return request.sign(signer, digest(signer)).public_bytes(serialization.Encoding.PEM)


def subject(names: Names) -> x509.Name:
    """The subject of a certificate. Raises CertificateError."""
    parts = [(NameOID.ORGANIZATION_NAME, each) for each in names.organizations]
    parts.append((NameOID.COMMON_NAME, names.common_name))
    return x509.Name(
        # node names may be longer than X.520 allows
        [x509.NameAttribute(oid, plain(text), _validate=False) for oid, text in parts]
    )


def subject_alternatives(names: Names) -> x509.SubjectAlternativeName | None:
    """The alternative names of a certificate; None: there are none. Raises CertificateError."""
    found: list[x509.GeneralName] = [x509.DNSName(plain(each)) for each in names.dns_names]
    for each in names.ip_addresses:
        with refusing(f"{each!r} can't be part of a certificate"):
            found.append(x509.IPAddress(ipaddress.ip_address(each)))
    return x509.SubjectAlternativeName(found) if found else None


def plain(name: str) -> str:
    """A name that can't be mistaken for another when shown or read. Raises CertificateError."""
    if not (name and name.isascii() and name.isprintable()) or set(name) & set("/,=+$#\\\"'"):
        raise CertificateError(f"{name!r} can't be part of a certificate")
    return name


def certificates_of(pem: bytes) -> list[bytes]:
    """The certificates in a PEM text, leaf first; anything else in it is ignored."""
    found: list[bytes] = _CERTIFICATE.findall(pem[:MAX_PEM_BYTES].replace(b"\r\n", b"\n"))
    return [each if each.endswith(b"\n") else each + b"\n" for each in found]


def read_certificate(pem: bytes) -> Certificate:
    """The fields of the first certificate of a PEM text. Raises CertificateError."""
    found = certificates_of(pem)
    if not found:
        raise CertificateError("there is no certificate in it")
    with refusing("the certificate can't be read"):
        certificate = x509.load_pem_x509_certificate(found[0])
        return Certificate(
            _names(certificate.subject, certificate.extensions),
            certificate.not_valid_before_utc.timestamp(),
            certificate.not_valid_after_utc.timestamp(),
            _names(certificate.issuer, ()).common_name,
        )


def read_request(pem: bytes) -> Names:
    """Whom a request is for; does not check its signature. Raises CertificateError."""
    request = load_request(pem)
    with refusing("the request can't be read"):
        return _names(request.subject, request.extensions)


def load_request(pem: bytes) -> x509.CertificateSigningRequest:
    """Parse a request (PKCS #10, PEM) for a key of a supported kind.

    Raises:
        CertificateError: it is too long or not a request, or its key is of another kind or size.
    """
    if len(pem) > MAX_PEM_BYTES:
        raise CertificateError(f"the request is longer than {MAX_PEM_BYTES} bytes")
    with refusing("the request can't be read"):
        request = x509.load_pem_x509_csr(pem)
        why = _why_not_certified(request.public_key())
    if why:
        raise CertificateError(f"the request's key is not accepted: {why}")
    return request


def _why_not_certified(key: CertificatePublicKeyTypes) -> str:
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size in RSA_BITS:
            return ""
        return f"RSA of {key.key_size} bits, not {RSA_BITS[0]} to {RSA_BITS[-1]}"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return "" if isinstance(key.curve, CURVES) else f"the curve {key.curve.name}"
    if isinstance(key, ed25519.Ed25519PublicKey):
        return ""
    return "neither elliptic nor RSA nor Ed25519"


def moment(seconds: float) -> datetime.datetime:
    """Unix seconds as a time for certificates. Raises ValueError, OverflowError."""
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)


def _names(subject: x509.Name, extensions: x509.Extensions | tuple[()]) -> Names:
    common, organizations, others = "", [], []
    for part in subject.rdns:
        if len(part) > 1:
            others.append(part.rfc4514_string())
            continue
        (attribute,) = part
        if attribute.oid == NameOID.COMMON_NAME:
            common = str(attribute.value)
        elif attribute.oid == NameOID.ORGANIZATION_NAME:
            organizations.append(str(attribute.value))
    dns, addresses = [], []
    for each in _alternatives(extensions):
        if isinstance(each, x509.DNSName) and _DNS_NAME.fullmatch(each.value):
            dns.append(each.value)
        elif isinstance(each, x509.IPAddress) and isinstance(
            each.value, ipaddress.IPv4Address | ipaddress.IPv6Address
        ):
            addresses.append(str(each.value))
        else:
            others.append(f"{type(each).__name__}:{each.value}")
    return Names(common, tuple(organizations), tuple(dns), tuple(addresses), tuple(others))


def _alternatives(
    extensions: x509.Extensions | tuple[()],
) -> x509.SubjectAlternativeName | tuple[()]:
    if not isinstance(extensions, x509.Extensions):
        return ()
    try:
        return extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()


# Authorities. A certificate states what the caller specifies, never what the request claims.
# Private keys are elliptic (P-256).

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
    pair: KeyPair,
    authority: KeyPair,
    names: Names,
    *,
    client_too: bool = False,
    now: float | None = None,
) -> None:
    """A new pair from an authority: for a server if it has alternative names, else for a client.

    Args:
        client_too: a server may use it as a client, such as a member of etcd.
        now: Unix seconds; None: by the machine's clock.

    Raises:
        CertificateError: the authority's files can't be used, or a name can't stand in a
            certificate.
        OSError: a file can't be read or written.
    """
    key = new_key()
    public = private_key(key).public_key()
    issuer, signer = _authority(authority)
    serves = names.dns_names or names.ip_addresses
    usages = [_DIGITAL_SIGNATURE, *(["server auth"] if serves else [])]
    if client_too or not serves:
        usages.append("client auth")
    certificate = _leaf(names, public, usages, *_life(now))
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
    supplied = list(usages)
    if not {_DIGITAL_SIGNATURE, _KEY_ENCIPHERMENT} & {*supplied} or not _EXTENDED.keys() & {
        *supplied
    }:
        raise CertificateError("a certificate needs usages")
    request = load_request(pem)
    with refusing("the request's own signature can't be checked"):
        right = request.is_signature_valid
    if not right:
        raise CertificateError("the request's signature is invalid")
    issuer, signer = _authority(authority)
    certificate = _leaf(names, request.public_key(), supplied, not_before, not_after)
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
    supplied = set(usages)
    extended = x509.ExtendedKeyUsage([oid for name, oid in _EXTENDED.items() if name in supplied])
    usage = _key_usage(
        digital_signature=_DIGITAL_SIGNATURE in supplied,
        key_encipherment=_KEY_ENCIPHERMENT in supplied,
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
