"""Certificates that the openssl command makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.host import openssl
from kubeletpy.host.openssl import CertificateError, KeyPair


def test_an_authority_vouches_for_what_it_signs_and_for_nothing_else(tmp_path: Path) -> None:
    authority, other = KeyPair.named(tmp_path, "ca"), KeyPair.named(tmp_path, "other")
    openssl.make_authority(authority, "one")
    openssl.make_authority(other, "two")
    server = KeyPair.named(tmp_path, "server")
    openssl.sign(server, authority, name="n", server_alternatives=["DNS:node-1", "IP:127.0.0.1"])
    assert server.loads()
    assert openssl.verifies(authority.certificate, server.certificate)
    assert not openssl.verifies(other.certificate, server.certificate)
    assert openssl.is_for_host(server.certificate, "node-1")
    assert not openssl.is_for_host(server.certificate, "node-2")
    assert server.key.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["", "a/CN=b", "a,IP:1.2.3.4", "a\nb", "a=b"])
def test_a_name_can_not_smuggle_anything_in(tmp_path: Path, name: str) -> None:
    with pytest.raises(CertificateError):
        openssl.make_self_signed(
            KeyPair.named(tmp_path, "x"), "fine", [f"DNS:{name}" if name else ""]
        )
    with pytest.raises(CertificateError):
        openssl.make_self_signed(KeyPair.named(tmp_path, "x"), name, ["DNS:fine"])


def test_a_key_of_another_certificate_does_not_load(tmp_path: Path) -> None:
    one, two = KeyPair.named(tmp_path, "one"), KeyPair.named(tmp_path, "two")
    for pair in (one, two):
        openssl.make_self_signed(pair, "x", ["DNS:x"])
    assert one.loads()
    assert not KeyPair(one.certificate, two.key).loads()
