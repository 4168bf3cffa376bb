"""TLS handshakes in memory: what a client offers, and what a server answers to any offer."""

from __future__ import annotations

import ssl
import struct

from kubeletpy.base.structs import Struct

FFDHE8192 = 0x0104
P256 = 0x0017
_GROUPS, _KEY_SHARE = 10, 51


class Offer(Struct, frozen=True):
    """A ClientHello: ``head`` is everything before the extensions."""

    head: bytes
    suites: tuple[int, ...]
    extensions: dict[int, bytes]

    @property
    def groups(self) -> tuple[int, ...]:
        """Key exchange groups, in order of preference."""
        body = self.extensions[_GROUPS]
        return struct.unpack(f">{len(body) // 2 - 1}H", body[2:])

    def with_group(self, group: int) -> Offer:
        """The same with one group, and without a key for it: the server requests one."""
        found = {
            **self.extensions,
            _GROUPS: struct.pack(">HH", 2, group),
            _KEY_SHARE: struct.pack(">H", 0),
        }
        return Offer(self.head, self.suites, found)

    def encoded(self) -> bytes:
        """The TLS record."""
        parts = b"".join(
            struct.pack(">HH", kind, len(body)) + body for kind, body in self.extensions.items()
        )
        hello = self.head + struct.pack(">H", len(parts)) + parts
        message = b"\x01" + len(hello).to_bytes(3, "big") + hello
        return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


def offer_of(context: ssl.SSLContext) -> Offer:
    """The ClientHello of a client with that context."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="node")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        hello = outgoing.read()[9:]
    at = 34
    at += 1 + hello[at]
    (size,) = struct.unpack_from(">H", hello, at)
    suites = struct.unpack_from(f">{size // 2}H", hello, at + 2)
    at += 2 + size
    at += 1 + hello[at]
    head, rest = hello[:at], hello[at + 2 :]
    extensions = {}
    while rest:
        kind, length = struct.unpack_from(">HH", rest)
        extensions[kind] = rest[4 : 4 + length]
        rest = rest[4 + length :]
    return Offer(head, suites, extensions)


def accepts(context: ssl.SSLContext, offer: Offer) -> bool:
    """Whether a server with that context continues a handshake, or requests another key."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(offer.encoded())
    try:
        server.do_handshake()
    except ssl.SSLWantReadError:
        return True
    except ssl.SSLError:
        return False
    return True
