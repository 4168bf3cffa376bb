"""TLS to containers, without verifying them: pods have certificates of their own."""

from __future__ import annotations

import functools
import ssl

from kubeletpy.base.wire.listener import NO_FINITE_FIELD, limit_key_exchange


@functools.cache
def unchecked_context(curve: str, protocol: str = "") -> ssl.SSLContext:
    """A client's context that offers one elliptic curve, and ``protocol`` by ALPN if given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers(f"DEFAULT:{NO_FINITE_FIELD}:@SECLEVEL=0")  # unverified keys may be weak
    limit_key_exchange(context, curve)
    if protocol:
        context.set_alpn_protocols([protocol])
    return context
