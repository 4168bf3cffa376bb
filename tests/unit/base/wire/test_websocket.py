"""Frames of a client: their meaning in any pieces, and protocol errors."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.base.wire.websocket import (
    BINARY,
    CLOSE,
    FRAGMENT,
    PING,
    PONG,
    TEXT,
    CloseCode,
    Message,
    ProtocolError,
    WebSocketDecoder,
    apply_mask,
    close_frame,
    encoded,
    mask_slowly,
)
from tests.kit.costs import is_linear

MOST = 70_000
MASK = b"\x01\x02\x03\x04"


def frame(
    kind: int,
    data: bytes = b"",
    *,
    last: bool = True,
    reserved: int = 0,
    mask: bytes | None = MASK,
    width: int = 0,
) -> bytes:
    """A client's frame; ``width``: bytes of its length field, where it has more than needed."""
    masked = 0 if mask is None else 0x80
    size = len(data)
    width = width or (0 if size < 126 else 2 if size < 1 << 16 else 8)
    head = bytes((0x80 * last | reserved | kind, masked | {0: size, 2: 126, 8: 127}[width]))
    content = bytearray(data)
    if mask is not None:
        mask_slowly(mask, content)
    length = size.to_bytes(width, "big") if width else b""
    return head + length + (mask or b"") + content


def decoded(data: bytes, sizes: list[int] | None = None) -> list[Message]:
    """All messages except fragments."""
    decoder, found, at = WebSocketDecoder(MOST), [], 0
    for size in [*(sizes or ()), len(data)]:
        decoder.feed(data[at : at + size])
        at += size
        while (message := decoder.next_message()) is not None:
            if message.kind != FRAGMENT:
                found.append(message)
    return found


CONVERSATION = (
    frame(BINARY, b"\0hello")
    + frame(BINARY, b"a", last=False)
    + frame(PING, b"now?")
    + frame(FRAGMENT, b"", last=False)
    + frame(FRAGMENT, b"b")
    + frame(TEXT, "grün".encode()[:3], last=False)
    + frame(FRAGMENT, "grün".encode()[3:])
    + frame(BINARY, b"x" * 126)
    + frame(BINARY, b"y" * MOST)
    + frame(PONG)
    + frame(BINARY, b"", last=False)
    + frame(FRAGMENT)
    + frame(CLOSE, b"\x03\xe8bye")
)
MEANT = [
    Message(BINARY, b"\0hello"),
    Message(PING, b"now?"),
    Message(BINARY, b"ab"),
    Message(TEXT, "grün".encode()),
    Message(BINARY, b"x" * 126),
    Message(BINARY, b"y" * MOST),
    Message(PONG, b""),
    Message(BINARY, b""),
    Message(CLOSE, b"\x03\xe8"),
]


@given(st.lists(st.integers(1, 200), max_size=30))
def test_a_conversation_in_any_pieces(sizes: list[int]) -> None:
    assert decoded(CONVERSATION, sizes) == MEANT


def test_a_conversation_in_single_bytes() -> None:
    assert decoded(CONVERSATION, [1] * 400) == MEANT


PROTOCOL, TEXT_CODE, SIZE = CloseCode.PROTOCOL_ERROR, CloseCode.NOT_UTF8, CloseCode.TOO_BIG
BROKEN = {
    "not masked": (frame(BINARY, b"x", mask=None), PROTOCOL),
    "an empty frame that is not masked": (frame(BINARY, mask=None), PROTOCOL),
    "reserved bit 1": (frame(BINARY, b"x", reserved=0x40), PROTOCOL),
    "reserved bit 2": (frame(BINARY, b"x", reserved=0x20), PROTOCOL),
    "reserved bit 3 of a ping": (frame(PING, b"x", reserved=0x10), PROTOCOL),
    "unknown data opcode": (frame(3, b"x"), PROTOCOL),
    "unknown control opcode": (frame(11, b"x"), PROTOCOL),
    "fragmented ping": (frame(PING, b"x", last=False), PROTOCOL),
    "fragmented close": (frame(CLOSE, last=False), PROTOCOL),
    "long ping": (frame(PING, b"x" * 126), PROTOCOL),
    "long close": (frame(CLOSE, b"\x03\xe8" + b"x" * 124), PROTOCOL),
    "continuation of nothing": (frame(FRAGMENT, b"x"), PROTOCOL),
    "unfinished continuation of nothing": (frame(FRAGMENT, b"x", last=False), PROTOCOL),
    "a message within a message": (frame(BINARY, b"x", last=False) + frame(BINARY, b"y"), PROTOCOL),
    "a message within an empty one": (frame(TEXT, last=False) + frame(BINARY, b"y"), PROTOCOL),
    "a message that begins twice": (frame(BINARY, last=False) * 2, PROTOCOL),
    "a short length in two bytes": (frame(BINARY, b"x" * 125, width=2), PROTOCOL),
    "a length of two bytes in eight": (frame(BINARY, b"x" * 65535, width=8), PROTOCOL),
    "a negative length": (b"\x82\xff" + b"\xff" * 8, PROTOCOL),
    "half a close code": (frame(CLOSE, b"\x03"), PROTOCOL),
    **{
        f"close code {code}": (frame(CLOSE, code.to_bytes(2, "big")), PROTOCOL)
        for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535)
    },
    "a reason that is no text": (frame(CLOSE, b"\x03\xe8\xff"), TEXT_CODE),
    "a text that is none": (frame(TEXT, b"\xc3\x28"), TEXT_CODE),
    "a text that ends within a letter": (
        frame(TEXT, b"x", last=False) + frame(FRAGMENT, b"\xc3"),
        TEXT_CODE,
    ),
    "a surrogate": (frame(TEXT, b"\xed\xa0\x80"), TEXT_CODE),
    "a large message": (frame(BINARY, b"x" * (MOST + 1)), SIZE),
    "one that promises to be large": (b"\x82\xff" + (1 << 40).to_bytes(8, "big"), SIZE),
    "a large message in two": (
        frame(BINARY, b"x" * MOST, last=False) + frame(FRAGMENT, b"y"),
        SIZE,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_the_protocol_names_its_code(name: str) -> None:
    data, code = BROKEN[name]
    with pytest.raises(ProtocolError) as raised:
        decoded(data)
    assert raised.value.code is code


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1007, 1011, 1014, 3000, 4999])
def test_close_codes_that_a_client_may_send(code: int) -> None:
    data = code.to_bytes(2, "big")
    assert decoded(frame(CLOSE, data)) == [Message(CLOSE, data)]
    assert decoded(frame(CLOSE)) == [Message(CLOSE, b"")]


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 125, 126, 4096, 65537])
def test_a_server_frame_is_a_client_frame_without_its_mask(size: int) -> None:
    data = os.urandom(size)
    made = encoded(BINARY, data[:1], data[1:])
    assert made == frame(BINARY, data, mask=None)
    with pytest.raises(ProtocolError):
        decoded(made)


def test_a_close_frame() -> None:
    assert close_frame(1002) == b"\x88\x02\x03\xea"


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 126, 4096])
def test_both_masks_do_the_same(size: int) -> None:
    data = os.urandom(size)
    slowly, fast = bytearray(data), bytearray(data)
    mask_slowly(MASK, slowly)
    apply_mask(MASK, fast)
    assert slowly == fast
    assert bytes(each ^ MASK[at % 4] for at, each in enumerate(data)) == bytes(fast)


def a_frame_in_single_bytes(size: int) -> None:
    decoder = WebSocketDecoder(1 << 20)
    for byte in frame(BINARY, b"x" * size):
        decoder.feed(bytes((byte,)))
        message = decoder.next_message()
    assert message is not None


def tiny_fragments(size: int) -> None:
    decoder = WebSocketDecoder(1 << 20)
    decoder.feed(frame(BINARY, b"x", last=False) + frame(FRAGMENT, b"x", last=False) * size)
    while decoder.next_message() is not None:
        pass


@pytest.mark.parametrize("parse", [a_frame_in_single_bytes, tiny_fragments])
def test_the_work_is_in_proportion_to_what_came(parse: object) -> None:
    assert callable(parse)
    assert is_linear(parse)
