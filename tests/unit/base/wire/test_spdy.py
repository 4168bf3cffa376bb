"""SPDY/3 frames against the protocol's own rules."""

from __future__ import annotations

import struct
import zlib

import pytest

from kubeletpy.base.wire import spdy
from kubeletpy.base.wire.spdy import (
    DATA,
    DICTIONARY,
    FIN,
    PING,
    Encoder,
    Frame,
    HeaderDecoder,
    SpdyDecoder,
    SpdyError,
)


def test_the_dictionary_is_the_protocols() -> None:
    assert len(DICTIONARY) == 1423
    assert zlib.crc32(DICTIONARY) == 80234766


def test_streams_have_odd_numbers_and_one_compression() -> None:
    encoder = Encoder()
    unpacker = zlib.decompressobj(zdict=DICTIONARY)
    for number, kind in ((1, "error"), (3, "stdin"), (5, "stdout")):
        supplied, frame = encoder.open_stream({"streamType": kind, "port": "80"})
        assert supplied == number
        version, control, length = struct.unpack_from(">HHI", frame)
        assert (version, control, length) == (0x8003, spdy.SYN_STREAM, len(frame) - 8)
        assert struct.unpack_from(">I", frame, 8)[0] == number
        block = unpacker.decompress(frame[18:])
        expected = struct.pack(">I", 2)
        for text in ("streamtype", kind, "port", "80"):
            expected += struct.pack(">I", len(text)) + text.encode()
        assert block == expected


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_frames_come_out_however_they_arrive(piece: int) -> None:
    text = (
        spdy.data(5, b"hello")
        + spdy.ping_answer(2)
        + spdy.data(5, b"", last=True)
        + struct.pack(">HHI", 0x8003, spdy.RST_STREAM, 8)
        + struct.pack(">II", 7, 5)
        + struct.pack(">HHI", 0x8003, spdy.GOAWAY, 8)
        + bytes(8)
    )
    decoder = SpdyDecoder()
    got = [
        frame for at in range(0, len(text), piece) for frame in decoder.feed(text[at : at + piece])
    ]
    hello = len(got) - 4
    assert b"".join(frame.data for frame in got[:hello]) == b"hello"
    assert {(frame.kind, frame.stream, frame.flags) for frame in got[:hello]} == {(DATA, 5, 0)}
    got = got[hello:]
    assert got == [
        Frame(PING, 2, 0, b""),
        Frame(DATA, 5, FIN, b""),
        Frame(spdy.RST_STREAM, 7, 0, struct.pack(">I", 5)),
        Frame(spdy.GOAWAY, 0, 0, bytes(8)),
    ]
    assert [frame.is_last for frame in got] == [False, True, True, False]


def test_large_data_is_split_and_only_the_last_frame_ends_it() -> None:
    content = bytes(spdy.MAX_FRAME + 10)
    frames = list(SpdyDecoder().feed(spdy.data(1, content, last=True)))
    assert [len(frame.data) for frame in frames] == [spdy.MAX_FRAME, 10]
    assert [frame.is_last for frame in frames] == [False, True]


@pytest.mark.parametrize(
    ("content", "last"),
    [
        (b"", False),
        (b"", True),
        (b"x", False),
        (b"x", True),
        (bytes(spdy.MAX_FRAME), True),
        (bytes(spdy.MAX_FRAME), False),
    ],
    ids=lambda supplied: f"{len(supplied)} bytes" if isinstance(supplied, bytes) else str(supplied),
)
def test_a_data_frame_in_bytes(content: bytes, last: bool) -> None:
    head = struct.pack(">II", 9, (0x01000000 if last else 0) + len(content))
    assert spdy.data(9, content, last=last) == head + content


def test_control_frames_in_bytes() -> None:
    assert spdy.ping_answer(2) == bytes.fromhex("8003 0006 00000004 00000002")
    _, opening = Encoder().open_stream({})
    assert opening[:18] == struct.pack(">HHIIIH", 0x8003, 1, len(opening) - 8, 1, 0, 0)


@pytest.mark.parametrize("size", [4, spdy.MAX_CONTROL])
def test_the_size_of_a_control_frame(size: int) -> None:
    """The number of its stream has 31 bits; the first is reserved."""
    body = struct.pack(">I", 0x80000003) + bytes(size - 4)
    text = struct.pack(">HHI", 0x8003, spdy.SYN_REPLY, FIN << 24 | size) + body
    assert list(SpdyDecoder().feed(text)) == [Frame(spdy.SYN_REPLY, 3, FIN, bytes(size - 4))]


@pytest.mark.parametrize(
    ("kind", "size", "parts"),
    [
        (spdy.SYN_REPLY, spdy.MAX_CONTROL + 1, "too long"),
        (spdy.SETTINGS, spdy.MAX_CONTROL + 1, "too long"),
        (spdy.SYN_REPLY, 3, "too short"),
        (spdy.PING, 0, "too short"),
    ],
)
def test_a_control_frame_of_another_size_is_refused(kind: int, size: int, parts: str) -> None:
    with pytest.raises(SpdyError, match=parts):
        list(SpdyDecoder().feed(struct.pack(">HHI", 0x8003, kind, size) + bytes(size)))


@pytest.mark.parametrize("kind", [spdy.SETTINGS, spdy.GOAWAY])
def test_a_control_frame_about_no_stream(kind: int) -> None:
    text = struct.pack(">HHI", 0x8003, kind, 1) + b"x"
    assert list(SpdyDecoder().feed(text)) == [Frame(kind, 0, 0, b"x")]


@pytest.mark.parametrize("kind", [spdy.SYN_REPLY, DATA])
def test_which_frames_are_a_streams_last(kind: int) -> None:
    assert Frame(kind, 1, FIN).is_last
    assert not Frame(kind, 1, 2).is_last
    assert not Frame(spdy.PING, 1, FIN).is_last
    assert Frame(spdy.RST_STREAM, 1).is_last


@pytest.mark.parametrize("kind", [spdy.SYN_STREAM, spdy.SETTINGS])
def test_other_versions_are_refused(kind: int) -> None:
    with pytest.raises(SpdyError, match="not version 3"):
        list(SpdyDecoder().feed(struct.pack(">HHII", 0x8002, kind, 4, 1)))


@pytest.mark.parametrize("stream", [1, 0x10001, 0x12345678, 0x7FFFFFFF])
def test_numbers_of_streams_have_31_bits(stream: int) -> None:
    frames = [Frame(DATA, stream, 0, b"a"), Frame(DATA, stream, FIN)]
    text = spdy.data(stream, b"a") + spdy.data(stream, b"", last=True)
    assert list(SpdyDecoder().feed(text)) == frames


def test_a_frame_that_promises_much_is_passed_on_piece_by_piece() -> None:
    decoder = SpdyDecoder()
    head = struct.pack(">II", 5, FIN << 24 | spdy.MAX_FRAME)
    assert list(decoder.feed(head)) == []
    for _ in range(3):
        assert list(decoder.feed(bytes(1000))) == [Frame(DATA, 5, 0, bytes(1000))]
    left = spdy.MAX_FRAME - 3000
    assert list(decoder.feed(bytes(left))) == [Frame(DATA, 5, FIN, bytes(left))]
    assert list(decoder.feed(spdy.ping_answer(1))) == [Frame(PING, 1)]


def test_a_control_frame_that_promises_much_is_refused_at_once() -> None:
    bomb = struct.pack(">HHI", 0x8003, spdy.SYN_REPLY, spdy.MAX_FRAME)
    with pytest.raises(SpdyError, match="too long"):
        list(SpdyDecoder().feed(bomb))
    # headers that would unpack to 10 MB stay packed
    packed = zlib.compress(bytes(10 << 20), 9)[: spdy.MAX_CONTROL - 4]
    reply = struct.pack(">HHI", 0x8003, spdy.SYN_REPLY, 4 + len(packed))
    (frame,) = SpdyDecoder().feed(reply + struct.pack(">I", 1) + packed)
    assert frame.data == packed


def test_headers_share_one_compression() -> None:
    encoder, decoder, headers = Encoder(), SpdyDecoder(), HeaderDecoder()
    for sent in ({"streamtype": "data", "port": "80"}, {}, {"streamtype": "data", "port": "81"}):
        (frame,) = decoder.feed(encoder.open_stream(sent)[1])
        assert headers.headers(frame) == sent
    (accepted,) = decoder.feed(encoder.accept_stream(5))
    assert (accepted.kind, accepted.stream, accepted.is_last) == (spdy.SYN_REPLY, 5, False)
    (refused,) = decoder.feed(spdy.refused_stream(7))
    assert (refused.kind, refused.stream, refused.is_last) == (spdy.RST_STREAM, 7, True)


def packed(block: bytes, *, ends: bool = False) -> bytes:
    packer = zlib.compressobj(9, zdict=DICTIONARY)
    return packer.compress(block) + packer.flush(zlib.Z_FINISH if ends else zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"not compressed",
        packed(b"\0\0"),
        packed(struct.pack(">II", 1, 1)),
        packed(struct.pack(">II", 1, 0xFFFFFFFF)),
        packed(struct.pack(">I", 0xFFFFFFFF)),
        packed(struct.pack(">I", 0), ends=True),
        packed(struct.pack(">II", 1, 1) + bytes(spdy.MAX_CONTROL)),
    ],
)
def test_invalid_headers(block: bytes) -> None:
    with pytest.raises(SpdyError, match="the headers of a stream"):
        HeaderDecoder().headers(Frame(spdy.SYN_STREAM, 1, 0, bytes(6) + block))
