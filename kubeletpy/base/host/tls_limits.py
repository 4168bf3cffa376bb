"""Bounds the CPU time that a TLS peer can make one handshake take.

Handshakes run on the event loop, and the peer chooses among the key exchanges that are offered. One
with a finite-field group takes 150 to 280 ms (measured: ffdhe8192 of TLS 1.3 on a server, DHE with
8192 bits on a client), and needs no credentials. Go's crypto/tls, so the kubelet, has none.
"""

from __future__ import annotations

import functools
import ssl

_CURVES = ("prime256v1", "X25519", "secp384r1", "secp521r1")
"""The curves that Go's clients offer, one at a time: Python before 3.15 can offer one group or all.
Every TLS 1.3 peer has the first (RFC 8446, 9.1)."""
NO_FINITE_FIELD = "!kDHE:!kDHEPSK"
"""A part of a client's cipher list. A server without parameters of its own has no such suite."""


def limit_key_exchange(context: ssl.SSLContext, curve: str = _CURVES[0]) -> None:
    """Offer a single elliptic curve, whose handshakes take about a millisecond."""
    context.set_ecdh_curve(curve)


@functools.cache
def curves() -> tuple[str, ...]:
    """The curves to offer, one after the other: all that this Python can offer.

    Python 3.11.2 of Debian 12 cannot offer X25519.
    """
    return tuple(filter(_can_be_offered, _CURVES))


def _can_be_offered(curve: str) -> bool:
    try:
        limit_key_exchange(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), curve)
    except ssl.SSLError:
        return False
    return True
