"""Requests and certificates: names survive encoding, and nothing else is accepted."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509 as library
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import CertificateError, Names
from kubeletpy.base.wire import listener
from kubeletpy.base.wire.listener import curves
from kubeletpy.probes.handlers.actions import unchecked_context
from kubeletpy.server.tls import ServingTls
from kubeletpy_up.pki import certificates
from tests.kit.messages import FFDHE8192, P256, accepts, offer_of
from tests.unit.base.host.requests import HIDDEN, NODE, request

SERVER = Names("system:node:n", ("system:nodes",), ("n", "n.example"), ("10.0.0.1", "fd00::1"))
USAGES = ("digital signature", "server auth")
NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    pair = KeyPair.named(tmp_path_factory.mktemp("ca"), "ca")
    x509.make_authority(pair, "test")
    return pair


@pytest.mark.parametrize("names", [SERVER, Names("x"), Names("x", ("a", "b"))])
def test_a_request_contains_its_names(names: Names) -> None:
    assert x509.read_request(x509.new_request(x509.new_key(), names)) == names


@pytest.mark.parametrize("bad", ["", "a/CN=b", "a\nO=b", "a,b"])
def test_no_name_smuggles_in_another(bad: str) -> None:
    key = x509.new_key()
    parts = [Names(bad), Names("x", (bad,)), Names("x", (), (bad,)), Names("x", (), (), (bad,))]
    for names in parts:
        with pytest.raises(CertificateError):
            x509.new_request(key, names)


def test_a_certificate_has_the_names_that_the_signer_set(authority: KeyPair) -> None:
    request = x509.new_request(x509.new_key(), SERVER)
    certificate = x509.sign_request(
        request, authority, SERVER, usages=USAGES, not_before=NOW, not_after=NOW + 7
    )
    found = x509.read_certificate(certificate)
    assert (found.names, found.not_before, found.not_after) == (SERVER, NOW, NOW + 7)
    made = library.load_pem_x509_certificate(certificate)
    assert not made.extensions.get_extension_for_class(library.BasicConstraints).value.ca
    usages = made.extensions.get_extension_for_class(library.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH]
    # claims of a request beyond its names are not copied
    fewer = Names(SERVER.common_name, SERVER.organizations, ("n",))
    certificate = x509.sign_request(
        request, authority, fewer, usages=USAGES, not_before=NOW, not_after=NOW + 7
    )
    assert x509.read_certificate(certificate).names == fewer


def test_a_request_with_another_keys_signature_is_not_signed(authority: KeyPair) -> None:
    pem = x509.new_request(x509.new_key(), SERVER)
    der = bytearray(library.load_pem_x509_csr(pem).public_bytes(Encoding.DER))
    der[-1] ^= 1
    broken = library.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM)
    with pytest.raises(CertificateError, match="signature is invalid"):
        x509.sign_request(
            broken, authority, SERVER, usages=USAGES, not_before=NOW, not_after=NOW + 7
        )


@pytest.mark.parametrize("subject", HIDDEN.values(), ids=HIDDEN)
def test_a_subject_hides_nothing(authority: KeyPair, subject: library.Name) -> None:
    pem = request(subject)
    names = x509.read_request(pem)
    reported = {*names.organizations, *names.others}
    assert any("system:masters" in each for each in reported)
    # a signer deceived by the shown names still grants no more than these
    certificate = x509.sign_request(
        pem, authority, SERVER, usages=USAGES, not_before=NOW, not_after=NOW + 7
    )
    assert library.load_pem_x509_certificate(certificate).subject == NODE


ALTERNATIVES = (
    library.DNSName("n"),
    library.DNSName("*.example"),
    library.DNSName("a b"),
    library.IPAddress(ipaddress.ip_address("fd00::0001")),
    library.IPAddress(ipaddress.ip_network("10.0.0.0/8")),
    library.UniformResourceIdentifier("https://n"),
    library.RFC822Name("a@b.example"),
    library.DirectoryName(NODE),
    library.OtherName(library.ObjectIdentifier("1.2.3"), b"\x05\x00"),
)


def test_alternative_names_of_other_kinds_are_reported_separately() -> None:
    names = x509.read_request(request(alternatives=ALTERNATIVES))
    assert (names.dns_names, names.ip_addresses) == (("n", "*.example"), ("fd00::1",))
    assert len(names.others) == 6


@pytest.mark.parametrize("bits", [2048, 3072])
def test_rsa_keys_are_certified(authority: KeyPair, bits: int) -> None:
    pem = request(key=rsa.generate_private_key(65537, bits))
    made = x509.sign_request(
        pem, authority, SERVER, usages=USAGES, not_before=NOW, not_after=NOW + 7
    )
    assert x509.read_certificate(made).names == SERVER


def test_keys_of_other_kinds_and_sizes_are_refused(
    authority: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = request(key=rsa.generate_private_key(65537, 1024))
    curve = request(key=ec.generate_private_key(ec.SECP256K1()))
    kind = request(key=dsa.generate_private_key(2048))
    monkeypatch.setattr(x509, "RSA_BITS", range(2048, 3000))
    strong = request(key=rsa.generate_private_key(65537, 3072))
    for pem, why in (
        (weak, "RSA of 1024 bits, not 2048"),
        (strong, "RSA of 3072 bits"),
        (curve, "secp256k1"),
        (kind, "neither elliptic nor RSA"),
    ):
        with pytest.raises(CertificateError, match=why):
            x509.read_request(pem)
        with pytest.raises(CertificateError, match=why):
            x509.sign_request(
                pem, authority, SERVER, usages=USAGES, not_before=NOW, not_after=NOW + 7
            )


def test_a_request_has_a_size() -> None:
    with pytest.raises(CertificateError, match="longer than"):
        x509.read_request(b" " * x509.MAX_PEM_BYTES + request())


def test_duplicate_extensions_of_a_request_are_refused() -> None:
    # the library creates none: another extension gets the identifier of alternative names
    usage, names = b"\x55\x1d\x0f", b"\x55\x1d\x11"
    builder = library.CertificateSigningRequestBuilder().subject_name(NODE)
    builder = builder.add_extension(library.SubjectAlternativeName(ALTERNATIVES[:1]), False)
    builder = builder.add_extension(library.KeyUsage(True, *[False] * 8), False)
    made = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    der = made.public_bytes(Encoding.DER).replace(usage, names)
    broken = b"-----BEGIN CERTIFICATE REQUEST-----\n%s-----END CERTIFICATE REQUEST-----\n"
    with pytest.raises(CertificateError):
        x509.read_request(broken % base64.encodebytes(der))


@given(st.binary(max_size=300), st.integers(0, 400))
def test_a_request_that_was_tampered_with_is_read_or_refused(junk: bytes, at: int) -> None:
    der = bytearray(base64.b64decode(b"".join(SAMPLE.splitlines()[1:-1])))
    der[at : at + len(junk)] = junk
    head, tail = SAMPLE.splitlines()[0], SAMPLE.splitlines()[-1]
    with contextlib.suppress(CertificateError):
        x509.read_request(head + b"\n" + base64.encodebytes(bytes(der)) + tail + b"\n")


SAMPLE = request(alternatives=ALTERNATIVES)


def test_a_node_may_have_a_long_name(authority: KeyPair, tmp_path: Path) -> None:
    names = Names("system:node:" + "n." * 120 + "n", ("system:nodes",))
    pem = x509.new_request(x509.new_key(), names)
    assert x509.read_request(pem) == names
    certificate = x509.sign_request(
        pem, authority, names, usages=USAGES, not_before=NOW, not_after=NOW + 7
    )
    assert x509.read_certificate(certificate).names == names
    long = Names(names.common_name, (), ("n",))
    x509.make_self_signed(KeyPair.named(tmp_path, "own"), long)
    x509.make_signed(KeyPair.named(tmp_path, "made"), authority, long)
    assert KeyPair.named(tmp_path, "made").loads()


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_keys_of_other_programs_are_accepted(form: PrivateFormat) -> None:
    """PKCS 1 and 8: other programs may have created a pending request or a kubeconfig's key."""
    for key in (ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)):
        pem = key.private_bytes(Encoding.PEM, form, NoEncryption())
        assert x509.public_key(pem) == key.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )
        assert x509.read_request(x509.new_request(pem, SERVER)) == SERVER


@pytest.mark.parametrize("algorithm", ["ECDSA-P256", "ECDSA-P384", "RSA-2048"])
def test_keys_of_each_algorithm_make_requests(algorithm: str) -> None:
    key = x509.new_key(algorithm)
    assert x509.read_request(x509.new_request(key, SERVER)) == SERVER
    length = algorithm.partition("-")[2].removeprefix("P")
    loaded = load_pem_private_key(key, None)
    assert isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
    assert loaded.key_size == int(length)


def test_a_key_with_a_password_is_an_error() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    for junk in (pem, b"", b"junk"):
        with pytest.raises(CertificateError, match="the private key can't be used"):
            x509.public_key(junk)


FALSE = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("junk", [b"", b"junk", FALSE])
def test_junk_is_an_error(junk: bytes) -> None:
    for read in (x509.read_certificate, x509.read_request):
        with pytest.raises(CertificateError):
            read(junk)


def test_a_chain_is_cut_into_certificates(authority: KeyPair, tmp_path: Path) -> None:
    one = authority.certificate.read_bytes().strip()
    text = b"# leaf\n" + one + b"\r\n" + one.replace(b"\n", b"\r\n") + b"\n" + x509.new_key()
    assert x509.certificates_of(text) == [one + b"\n"] * 2


# Certificate authorities, and the pairs that they sign.

SIGNING_SERVER = Names("n", (), ("node-1",), ("127.0.0.1",))


def test_an_authority_verifies_only_what_it_signed(tmp_path: Path) -> None:
    authority, other = KeyPair.named(tmp_path, "ca"), KeyPair.named(tmp_path, "other")
    x509.make_authority(authority, "one")
    x509.make_authority(other, "one")
    server = KeyPair.named(tmp_path, "server")
    x509.make_signed(server, authority, SIGNING_SERVER)
    assert server.loads()
    assert x509.read_certificate(server.certificate.read_bytes()).names == SIGNING_SERVER
    assert x509.verifies(authority.certificate, server.certificate)
    assert not x509.verifies(other.certificate, server.certificate)
    assert not x509.verifies(authority.certificate, server.certificate, other.certificate)
    assert server.key.stat().st_mode & 0o777 == 0o600
    server.certificate.write_text("spoilt")
    assert not x509.verifies(authority.certificate, server.certificate)


@pytest.mark.parametrize(("begin", "end", "good"), [(-9, 9, True), (-9, -3, False), (5, 9, False)])
def test_an_authority_vouches_for_a_certificate_within_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: int, end: int, good: bool
) -> None:
    now = 1_800_000_000.0
    monkeypatch.setattr("kubeletpy.base.host.x509.time.time", lambda: now)
    authority = KeyPair.named(tmp_path, "ca")
    x509.make_authority(authority, "one")
    made = tmp_path / "made.crt"
    made.write_bytes(
        x509.sign_request(
            x509.new_request(x509.new_key(), SIGNING_SERVER),
            authority,
            SIGNING_SERVER,
            usages=("digital signature", "server auth"),
            not_before=now + begin,
            not_after=now + end,
        )
    )
    assert x509.verifies(authority.certificate, made) is good


def test_certificates_of_clients_and_servers_differ(tmp_path: Path) -> None:
    authority = KeyPair.named(tmp_path, "ca")
    x509.make_authority(authority, "one")
    for names, usage in ((SIGNING_SERVER, "serverAuth"), (Names("c", ("team",)), "clientAuth")):
        pair = KeyPair.named(tmp_path, "made")
        x509.make_signed(pair, authority, names)
        made = library.load_pem_x509_certificate(pair.certificate.read_bytes())
        extended = made.extensions.get_extension_for_class(library.ExtendedKeyUsage).value
        assert [each._name for each in extended] == [usage]
        assert not made.extensions.get_extension_for_class(library.BasicConstraints).value.ca


@pytest.mark.parametrize("name", ["", "a/CN=b", "a,IP:1.2.3.4", "a\nb", "a=b", "\u2028", "näme"])
def test_a_name_can_not_smuggle_anything_in(tmp_path: Path, name: str) -> None:
    pair = KeyPair.named(tmp_path, "x")
    for names in (Names("fine", (), (name,)), Names(name, (), ("fine",)), Names("x", (name,))):
        with pytest.raises(CertificateError):
            x509.make_self_signed(pair, names)
    assert not pair.key.exists()


def test_a_key_of_another_certificate_does_not_load(tmp_path: Path) -> None:
    one, two = KeyPair.named(tmp_path, "one"), KeyPair.named(tmp_path, "two")
    for pair in (one, two):
        x509.make_self_signed(pair, Names("x", (), ("x",)))
    assert one.loads()
    assert not KeyPair(one.certificate, two.key).loads()


def test_an_authority_that_can_not_be_used_is_named(tmp_path: Path) -> None:
    authority = KeyPair.named(tmp_path, "ca")
    authority.certificate.write_text("spoilt")
    with pytest.raises(CertificateError, match=f"the authority {authority.certificate}"):
        x509.make_signed(KeyPair.named(tmp_path, "x"), authority, SIGNING_SERVER)


# No peer can choose a key exchange that blocks the event loop for long.

_FINITE_FIELD = range(0x0100, 0x0105)


def _node(directory: Path) -> ssl.SSLContext:
    pair = KeyPair.named(directory, "node")
    x509.make_self_signed(pair, Names("node"))
    return ServingTls(lambda: pair).newest()


def _embedded_api(directory: Path) -> ssl.SSLContext:
    return certificates.ensure(directory, "node").server_context()


@pytest.mark.parametrize("make", [_node, _embedded_api])
def test_a_server_refuses_finite_field_groups_of_a_client(make: object, tmp_path: Path) -> None:
    """One handshake with ffdhe8192 takes 150 ms of CPU time, before any credential is read."""
    assert callable(make)
    context = make(tmp_path)
    offer = offer_of(ssl.create_default_context())
    assert accepts(context, offer)
    assert accepts(context, offer.with_group(P256))
    assert not accepts(context, offer.with_group(FFDHE8192))


@pytest.mark.parametrize("curve", curves())
def test_a_probe_offers_no_finite_field_key_exchange(curve: str) -> None:
    """A server in a pod that chose DHE with 8192 bits took 280 ms of the event loop."""
    context = unchecked_context(curve)
    offer = offer_of(context)
    assert len(offer.groups) == 1
    assert offer.groups[0] not in _FINITE_FIELD
    names = [suite["name"] for suite in context.get_ciphers()]
    assert any(name.startswith("ECDHE-") for name in names)
    assert [name for name in names if name.startswith("DHE-")] == []


def test_a_curve_that_python_cannot_offer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Python 3.11.2 each probe over TLS failed once it came to X25519."""

    def offer(context: ssl.SSLContext, curve: str) -> None:
        if curve == "X25519":
            raise ssl.SSLError("unknown group")

    monkeypatch.setattr(listener, "limit_key_exchange", offer)
    assert curves.__wrapped__() == ("prime256v1", "secp384r1", "secp521r1")
