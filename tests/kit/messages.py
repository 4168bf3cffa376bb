"""Bytes of peers: gzip members, protobuf messages, streamed lists and TLS handshakes.

Source of the members: the feature gate WatchListCompression of Kubernetes 1.37.
"""

from __future__ import annotations

import ssl
import struct
import zlib
from collections.abc import Iterable

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.protocol import WatchEvent
from kubeletpy.kubeapi.watch_state import INITIAL_EVENTS_END


def opened(data: bytes) -> tuple[bytes, bytes]:
    """A gzip member in two parts: all of its data, flushed, and then its end."""
    packing = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush(zlib.Z_SYNC_FLUSH), packing.flush()


def member(data: bytes) -> bytes:
    """A complete gzip member."""
    return b"".join(opened(data))


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: bytes | str | int) -> bytes:
    """A field: a number as a varint, a text, or an encoded message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def entry(key: str, value: bytes | str) -> bytes:
    """An entry of a map."""
    return field(1, key) + field(2, value)


def body(
    api_version: str, kind: str, message: bytes, *, encoding: str = "", media_type: str = ""
) -> bytes:
    """A message in its envelope."""
    about = field(1, api_version) + field(2, kind)
    rest = field(3, encoding) + field(4, media_type)
    return b"k8s\0" + field(1, about) + field(2, message) + rest


def end_of_list(version: str) -> WatchEvent:
    """The bookmark after the last object."""
    annotations = {INITIAL_EVENTS_END: "true"}
    return WatchEvent(
        "BOOKMARK", {"metadata": {"resourceVersion": version, "annotations": annotations}}
    )


def streamed(objects: Iterable[JSON], version: str) -> list[WatchEvent]:
    """All events of a list."""
    return [*(WatchEvent("ADDED", each) for each in objects), end_of_list(version)]


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
