"""No peer can choose a key exchange that blocks the event loop for long."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names
from kubeletpy.base.wire import listener
from kubeletpy.base.wire.listener import curves
from kubeletpy.probes.handlers.actions import unchecked_context
from kubeletpy.server.tls import ServingTls
from kubeletpy_up.pki import certificates
from tests.tls_hello import FFDHE8192, P256, accepts, offer_of

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
