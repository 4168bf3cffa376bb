"""How the bytes of an HTTP/2 server are split into frames."""

from __future__ import annotations

import pytest

from kubeletpy.base.wire.http2_frames import (
    MAX_FRAME_BYTES,
    SLICE_BYTES,
    FrameError,
    Frames,
    FrameSplitter,
    GoAway,
)


def frame(kind: int, body: bytes, stream: int = 1) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, 0]) + stream.to_bytes(4, "big") + body


def test_frames_are_complete_and_a_goaway_is_separate() -> None:
    head, data, ping = frame(1, b"h"), frame(0, b"data"), frame(6, bytes(8), 0)
    away = frame(7, (2**31 + 5).to_bytes(4, "big") + (11).to_bytes(4, "big") + b"calm down", 0)
    text = head + data + ping + away + frame(0, b"") + data
    desired = [
        Frames(head + data + ping, 1, 3),
        GoAway(5, 11, "calm down"),
        Frames(frame(0, b"") + data, 1, 2),
    ]
    assert list(FrameSplitter().split(text)) == desired
    splitter = FrameSplitter()
    found = [piece for at in range(len(text)) for piece in splitter.split(text[at : at + 1])]
    sizes = [len(piece.data) for piece in found if isinstance(piece, Frames)]
    assert sizes == [10, 13, 17, 9, 13]
    assert found[3] == desired[1]
    assert sum(piece.control for piece in found if isinstance(piece, Frames)) == 2


def test_slices_are_bounded() -> None:
    full = frame(0, b"x" * MAX_FRAME_BYTES)
    small = frame(4, b"")
    pieces = list(FrameSplitter().split(full * 2 + small * 5000))
    assert pieces[:2] == [Frames(full, 0, 1)] * 2
    assert all(len(each.data) < SLICE_BYTES + 9 for each in pieces[2:] if isinstance(each, Frames))


def test_a_slice_ends_where_it_is_full() -> None:
    small = frame(4, bytes(7))
    pieces = list(FrameSplitter().split(small * 2100))
    sizes = [len(piece.data) for piece in pieces if isinstance(piece, Frames)]
    assert sizes == [SLICE_BYTES, SLICE_BYTES, 2100 * 16 - 2 * SLICE_BYTES]


def test_each_setting_counts_as_a_frame() -> None:
    """A frame of 2,700 settings costs h2 as much as 2,700 frames."""
    settings = frame(4, bytes(6 * 2700), 0)
    ping, data = frame(6, bytes(8), 0), frame(0, b"x")
    assert list(FrameSplitter().split(settings)) == [Frames(settings, 2700, 2700)]
    empty = frame(4, b"", 0) + ping + data
    assert list(FrameSplitter().split(empty)) == [Frames(empty, 2, 3)]


@pytest.mark.parametrize("size", [0, 7])
def test_a_goaway_that_is_too_short_is_refused(size: int) -> None:
    with pytest.raises(FrameError, match="without a stream"):
        list(FrameSplitter().split(frame(7, bytes(size), 0)))


def test_a_frame_that_is_too_long_is_refused_by_its_head() -> None:
    with pytest.raises(FrameError, match="16385 bytes"):
        list(FrameSplitter().split((MAX_FRAME_BYTES + 1).to_bytes(3, "big") + bytes(6)))


def test_a_text_that_cannot_be_shown_is_not() -> None:
    away = frame(7, bytes(8) + b"\x1b[2J", 0)
    assert list(FrameSplitter().split(away)) == [GoAway(0, 0, "")]


def test_a_long_text_is_cut() -> None:
    away = frame(7, bytes(8) + b"x" * 250, 0)
    assert list(FrameSplitter().split(away)) == [GoAway(0, 0, "x" * 200)]
