"""Which connection takes a stream, what a server may send, and how its bytes are cut."""

from __future__ import annotations

import pytest

from kubeletpy.kubeapi.http2 import limits
from kubeletpy.kubeapi.http2.frames import FrameError, Frames, FrameSplitter, GoAway
from kubeletpy.kubeapi.http2.limits import FloodGuard
from kubeletpy.kubeapi.http2.placing import Load, Otherwise, place, watch_capacity
from kubeletpy.kubeapi.watch_slots import MAX_WATCHES

CONNECT, WAIT = Otherwise.CONNECT, Otherwise.WAIT
ENDED = Load(False, 50, 100)


def of(streams: int, allowed: int = 100) -> Load:
    return Load(True, streams, allowed)


PLACES = [
    # loads, a request's place, a watch's
    ([], CONNECT, CONNECT),
    ([of(0)], 0, 0),
    ([of(74)], 0, 0),
    ([of(75)], 0, CONNECT),
    ([of(99)], 0, CONNECT),
    ([of(100)], CONNECT, CONNECT),
    ([of(219, 250)], 0, 0),
    ([of(220, 250)], 0, CONNECT),
    # what is left to requests need not be on one connection, nor on each
    ([of(100), of(69)], 1, 1),
    ([of(100), of(70)], 1, CONNECT),
    # a server may allow fewer than there are
    ([of(102), of(69)], 1, 1),
    ([of(85), of(84)], 0, 0),
    ([of(85), of(85)], 0, CONNECT),
    ([ENDED], CONNECT, CONNECT),
    ([ENDED, of(3)], 1, 1),
    ([of(80), of(3)], 0, 0),
    ([of(1), of(0)], 0, 0),
    ([of(2, 2)] * 3, CONNECT, CONNECT),
    ([of(0, 0)], CONNECT, CONNECT),
    ([of(1, 1)] * 15, CONNECT, CONNECT),
    ([of(1, 1)] * 16, WAIT, WAIT),
    ([of(99)] * 16, 0, 0),
    ([of(99)] * 15 + [ENDED] * 3, 0, CONNECT),
    ([of(100)] * 16 + [ENDED], WAIT, WAIT),
]


@pytest.mark.parametrize(("loads", "request_", "watch"), PLACES)
def test_places(loads: list[Load], request_: int | Otherwise, watch: int | Otherwise) -> None:
    assert place(loads, lasting=False) == request_
    assert place(loads, lasting=True) == watch


@pytest.mark.parametrize(
    ("allowed", "watches"),
    [
        (100, 1538),  # kube-apiserver: 500 pods with three objects each
        (250, 3938),
        (1000, 15938),
        (10, 98),
        (2, 0),
        (0, 0),
    ],
)
def test_how_many_watches_connections_carry(allowed: int, watches: int) -> None:
    assert watch_capacity(allowed) == watches


def test_the_watches_that_are_promised_leave_room_for_all_else() -> None:
    standing, loads = limits.STANDING_WATCHES, list[Load]()
    for _ in range(MAX_WATCHES + standing):
        where = place(loads, lasting=True)
        if where is CONNECT:
            loads.append(of(1))
        else:
            assert isinstance(where, int)
            loads[where] = of(loads[where].streams + 1)
    assert len(loads) == limits.MAX_CONNECTIONS
    assert sum(100 - load.streams for load in loads) >= limits.RESERVED_STREAMS


def test_control_frames_are_a_bucket() -> None:
    guard = FloodGuard(0.0)
    assert not guard.exceeded(limits.CONTROL_BURST, 0.0)
    assert guard.exceeded(1, 0.0)
    guard = FloodGuard(0.0)
    assert not guard.exceeded(limits.CONTROL_BURST, 0.0)
    assert not guard.exceeded(0, 0.0)
    assert not guard.exceeded(int(limits.CONTROL_PER_S), 1.0)
    assert guard.exceeded(1, 1.0)
    guard = FloodGuard(0.0)
    assert not guard.exceeded(limits.CONTROL_BURST, 3600.0), "time adds no more than the burst"
    assert guard.exceeded(1, 3600.0)
    guard = FloodGuard(0.0)
    guard.opened()
    assert not guard.exceeded(limits.CONTROL_BURST + limits.CONTROL_PER_STREAM, 0.0)
    assert guard.exceeded(1, 0.0)


def frame(kind: int, body: bytes, stream: int = 1) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, 0]) + stream.to_bytes(4, "big") + body


def test_frames_are_whole_and_a_goaway_stands_alone() -> None:
    head, data, ping = frame(1, b"h"), frame(0, b"data"), frame(6, bytes(8), 0)
    away = frame(7, (2**31 + 5).to_bytes(4, "big") + (11).to_bytes(4, "big") + b"calm down", 0)
    text = head + data + ping + away + frame(0, b"") + data
    wanted = [
        Frames(head + data + ping, 1),
        GoAway(5, 11, "calm down"),
        Frames(frame(0, b"") + data, 1),
    ]
    assert list(FrameSplitter().split(text)) == wanted
    splitter = FrameSplitter()
    found = [piece for at in range(len(text)) for piece in splitter.split(text[at : at + 1])]
    sizes = [len(piece.data) for piece in found if isinstance(piece, Frames)]
    assert sizes == [10, 13, 17, 9, 13]
    assert found[3] == wanted[1]
    assert sum(piece.control for piece in found if isinstance(piece, Frames)) == 2


def test_slices_are_bounded() -> None:
    full = frame(0, b"x" * limits.MAX_FRAME_BYTES)
    small = frame(4, b"")
    pieces = list(FrameSplitter().split(full * 2 + small * 5000))
    assert pieces[:2] == [Frames(full, 0)] * 2
    assert all(
        len(each.data) < limits.SLICE_BYTES + 9 for each in pieces[2:] if isinstance(each, Frames)
    )


def test_a_slice_ends_where_it_is_full() -> None:
    small = frame(4, bytes(7))
    pieces = list(FrameSplitter().split(small * 2100))
    sizes = [len(piece.data) for piece in pieces if isinstance(piece, Frames)]
    assert sizes == [limits.SLICE_BYTES, limits.SLICE_BYTES, 2100 * 16 - 2 * limits.SLICE_BYTES]


@pytest.mark.parametrize("size", [0, 7])
def test_a_goaway_that_is_too_short_is_refused(size: int) -> None:
    with pytest.raises(FrameError, match="without a stream"):
        list(FrameSplitter().split(frame(7, bytes(size), 0)))


def test_a_frame_that_is_too_long_is_refused_by_its_head() -> None:
    with pytest.raises(FrameError, match="16385 bytes"):
        list(FrameSplitter().split((limits.MAX_FRAME_BYTES + 1).to_bytes(3, "big") + bytes(6)))


def test_a_text_that_cannot_be_shown_is_not() -> None:
    away = frame(7, bytes(8) + b"\x1b[2J", 0)
    assert list(FrameSplitter().split(away)) == [GoAway(0, 0, "")]


def test_a_long_text_is_cut() -> None:
    away = frame(7, bytes(8) + b"x" * 250, 0)
    assert list(FrameSplitter().split(away)) == [GoAway(0, 0, "x" * 200)]
