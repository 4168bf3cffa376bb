"""Certificate authorities, and the pairs that they sign."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509 as library

from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import CertificateError, Names

SERVER = Names("n", (), ("node-1",), ("127.0.0.1",))


def test_an_authority_verifies_only_what_it_signed(tmp_path: Path) -> None:
    authority, other = KeyPair.named(tmp_path, "ca"), KeyPair.named(tmp_path, "other")
    x509.make_authority(authority, "one")
    x509.make_authority(other, "one")
    server = KeyPair.named(tmp_path, "server")
    x509.make_signed(server, authority, SERVER)
    assert server.loads()
    assert x509.read_certificate(server.certificate.read_bytes()).names == SERVER
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
            x509.new_request(x509.new_key(), SERVER),
            authority,
            SERVER,
            usages=("digital signature", "server auth"),
            not_before=now + begin,
            not_after=now + end,
        )
    )
    assert x509.verifies(authority.certificate, made) is good


def test_certificates_of_clients_and_servers_differ(tmp_path: Path) -> None:
    authority = KeyPair.named(tmp_path, "ca")
    x509.make_authority(authority, "one")
    for names, usage in ((SERVER, "serverAuth"), (Names("c", ("team",)), "clientAuth")):
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
        x509.make_signed(KeyPair.named(tmp_path, "x"), authority, SERVER)
