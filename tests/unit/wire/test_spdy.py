"""SPDY/3 frames against the protocol's own rules."""

from __future__ import annotations

import struct
import zlib

import pytest

from kubeletpy.wire import spdy
from kubeletpy.wire.spdy import DATA, DICTIONARY, FIN, PING, Decoder, Encoder, Frame, SpdyError


def test_the_dictionary_is_the_protocols() -> None:
    assert len(DICTIONARY) == 1423
    assert zlib.crc32(DICTIONARY) == 80234766


def test_streams_have_odd_numbers_and_one_compression() -> None:
    encoder = Encoder()
    unpacker = zlib.decompressobj(zdict=DICTIONARY)
    for number, kind in ((1, "error"), (3, "stdin"), (5, "stdout")):
        given, frame = encoder.open_stream({"streamType": kind, "port": "80"})
        assert given == number
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
    decoder = Decoder()
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
    frames = list(Decoder().feed(spdy.data(1, content, last=True)))
    assert [len(frame.data) for frame in frames] == [spdy.MAX_FRAME, 10]
    assert [frame.is_last for frame in frames] == [False, True]


@pytest.mark.parametrize(
    "text", [b"\x80\x02\x00\x01\x00\x00\x00\x00", b"\x80\x03\x00\x06\x00\x00\x00\x01x"]
)
def test_other_protocols_are_refused(text: bytes) -> None:
    with pytest.raises(SpdyError):
        list(Decoder().feed(text))


def test_a_frame_that_promises_much_is_passed_on_piece_by_piece() -> None:
    decoder = Decoder()
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
        list(Decoder().feed(bomb))
    # headers that would unpack to 10 MB stay packed
    packed = zlib.compress(bytes(10 << 20), 9)[: spdy.MAX_CONTROL - 4]
    reply = struct.pack(">HHI", 0x8003, spdy.SYN_REPLY, 4 + len(packed))
    (frame,) = Decoder().feed(reply + struct.pack(">I", 1) + packed)
    assert frame.data == packed
