"""Requests and certificates: what goes in comes out, and nothing else gets in."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.host import openssl, signing, x509
from kubeletpy.host.openssl import CertificateError, KeyPair, run
from kubeletpy.host.x509 import Names

SERVER = Names("system:node:n", ("system:nodes",), ("n", "n.example"), ("10.0.0.1", "fd00::1"))
USAGES = ("digital signature", "server auth")
NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    pair = KeyPair.named(tmp_path_factory.mktemp("ca"), "ca")
    openssl.make_authority(pair, "test")
    return pair


@pytest.mark.parametrize("names", [SERVER, Names("x"), Names("x", ("a", "b"))])
def test_a_request_says_what_was_wanted(names: Names) -> None:
    assert x509.read_request(x509.new_request(x509.new_key(), names)) == names


@pytest.mark.parametrize("bad", ["", "a/CN=b", "a\nO=b", "a,b"])
def test_no_name_smuggles_in_another(bad: str) -> None:
    key = x509.new_key()
    parts = [Names(bad), Names("x", (bad,)), Names("x", (), (bad,)), Names("x", (), (), (bad,))]
    for names in parts:
        with pytest.raises(CertificateError):
            x509.new_request(key, names)


def test_a_certificate_says_what_the_signer_says(authority: KeyPair) -> None:
    request = x509.new_request(x509.new_key(), SERVER)
    certificate = signing.sign_request(
        request, authority, SERVER, usages=USAGES, not_before=NOW, not_after=NOW + 7
    )
    found = x509.read_certificate(certificate)
    assert (found.names, found.not_before, found.not_after) == (SERVER, NOW, NOW + 7)
    shown = run("x509", "-noout", "-text", data=certificate).decode()
    assert "CA:FALSE" in shown
    assert "TLS Web Server Authentication" in shown
    assert "TLS Web Client Authentication" not in shown
    # what a request claims beyond its names is not taken over
    fewer = Names(SERVER.common_name, SERVER.organizations, ("n",))
    certificate = signing.sign_request(
        request, authority, fewer, usages=USAGES, not_before=NOW, not_after=NOW + 7
    )
    assert x509.read_certificate(certificate).names == fewer


def test_a_request_with_another_keys_signature_is_not_signed(authority: KeyPair) -> None:
    pem = x509.new_request(x509.new_key(), SERVER)
    der = bytearray(run("req", "-outform", "DER", data=pem))
    der[-1] ^= 1
    broken = run("req", "-inform", "DER", "-outform", "PEM", data=bytes(der))
    with pytest.raises(CertificateError):
        signing.sign_request(
            broken, authority, SERVER, usages=USAGES, not_before=NOW, not_after=NOW + 7
        )


HIDDEN = (
    ("/O=system:nodes/CN=system:node:n+O=system:masters", "joined"),
    ("/O=system:nodes/CN=system:node:n\u2028x/O=system:masters", "line separator"),
    ("/O=system:nodes/CN=system:node:n\x85x/O=system:masters", "next line"),
    ("/O=system:masters/O=x\u2028subject=\u2028    O=system:nodes/CN=system:node:n", "subject"),
)


@pytest.mark.parametrize("subject", [each for each, _ in HIDDEN], ids=[each for _, each in HIDDEN])
def test_a_subject_hides_nothing(authority: KeyPair, subject: str, tmp_path: Path) -> None:
    key = x509.new_key()
    pem = run("req", "-new", "-key", "/dev/stdin", "-utf8", "-subj", subject, data=key)
    names = x509.read_request(pem)
    shown = {*names.organizations, *names.others}
    assert any("system:masters" in each for each in shown)
    # even who is deceived by what is shown gives away no more than that
    certificate = signing.sign_request(
        pem, authority, SERVER, usages=USAGES, not_before=NOW, not_after=NOW + 7
    )
    form = ("-nameopt", "RFC2253")
    assert (
        run("x509", "-noout", "-subject", *form, data=certificate)
        == b"subject=CN=system:node:n,O=system:nodes\n"
    )


def test_a_node_may_have_a_long_name(authority: KeyPair, tmp_path: Path) -> None:
    names = Names("system:node:" + "n." * 120 + "n", ("system:nodes",))
    pem = x509.new_request(x509.new_key(), names)
    assert x509.read_request(pem) == names
    certificate = signing.sign_request(
        pem, authority, names, usages=USAGES, not_before=NOW, not_after=NOW + 7
    )
    assert x509.read_certificate(certificate).names == names
    openssl.make_self_signed(KeyPair.named(tmp_path, "own"), names.common_name, ["DNS:n"])
    openssl.sign(KeyPair.named(tmp_path, "made"), authority, name=names.common_name)
    assert KeyPair.named(tmp_path, "made").loads()


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
