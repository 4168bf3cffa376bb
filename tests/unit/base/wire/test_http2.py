"""How bytes are split into frames; an exchange with a server of h2, or with broken bytes."""

from __future__ import annotations

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from h2.errors import ErrorCodes

from kubeletpy.base.wire.http2 import (
    BOUNDS,
    MAX_FRAME_BYTES,
    SLICE_BYTES,
    Bounds,
    Exchange,
    ExchangeFailed,
    ExchangeFailure,
    FrameError,
    Frames,
    FrameSplitter,
    GoAway,
    Headers,
)

HEAD: Headers = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/x"),
    (b":authority", b"a"),
]
OK = [(":status", "200"), ("x", "1"), ("x", "2")]


class Talk:
    """An exchange and a server, each of which gets what the other sends."""

    def __init__(self, body: bytes = b"hello", bounds: Bounds = BOUNDS, **settings: int) -> None:
        self.client = Exchange(HEAD, body, bounds)
        self.server = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self.server.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                h2.settings.SettingCodes[name]: value for name, value in settings.items()
            },
        )
        self.events: list[h2.events.Event] = []
        self.hear(self.client.start())
        self.server.initiate_connection()

    def hear(self, data: bytes) -> None:
        self.events += self.server.receive_data(data)

    def go(self) -> None:
        """Exchange bytes until neither side has any."""
        while data := self.server.data_to_send():
            self.hear(self.client.feed(data))

    @property
    def request_body(self) -> bytes:
        """The request's body as far as it has arrived."""
        return b"".join(
            bytes(event.data or b"")
            for event in self.events
            if isinstance(event, h2.events.DataReceived)
        )


def test_a_response_with_trailers() -> None:
    talk = Talk()
    talk.go()
    assert talk.client.greeted
    assert talk.request_body == b"hello"
    talk.server.send_headers(1, [(":status", "103")])
    talk.server.send_headers(1, OK)
    talk.server.send_data(1, b"bo")
    talk.server.ping(b"12345678")
    talk.server.send_data(1, b"dy")
    talk.go()
    assert not talk.client.done
    assert any(isinstance(event, h2.events.PingAckReceived) for event in talk.events)
    talk.server.send_headers(1, [("grpc-status", "0")], end_stream=True)
    talk.go()
    assert talk.client.done
    assert talk.client.status == 200
    assert talk.client.headers == {"x": "1"}
    assert talk.client.body == b"body"
    assert talk.client.trailers == {"grpc-status": "0"}
    assert isinstance(talk.events[-1], h2.events.ConnectionTerminated)
    assert talk.client.feed(b"anything") == b""


def test_the_request_comes_after_the_settings() -> None:
    """A peer that sends no settings does not count as connected, as in gRPC clients."""
    talk = Talk()
    assert not any(isinstance(each, h2.events.RequestReceived) for each in talk.events)
    assert not talk.client.greeted


def test_a_body_waits_for_the_window() -> None:
    talk = Talk(b"x" * 40_000, INITIAL_WINDOW_SIZE=10)
    talk.go()
    assert talk.request_body == b"x" * 10
    talk.server.increment_flow_control_window(39_990, 1)
    talk.go()
    assert talk.request_body == b"x" * 40_000
    assert any(isinstance(each, h2.events.StreamEnded) for each in talk.events)


def test_a_server_may_answer_before_it_has_all() -> None:
    talk = Talk(b"x" * 100, INITIAL_WINDOW_SIZE=10)
    talk.go()
    talk.server.send_headers(1, OK, end_stream=True)
    talk.go()
    assert talk.client.done


def failure(talk: Talk, data: bytes | None = None) -> ExchangeFailed:
    with pytest.raises(ExchangeFailed) as failed:
        talk.client.feed(talk.server.data_to_send() if data is None else data)
    return failed.value


def test_a_reset() -> None:
    talk = Talk()
    talk.go()
    talk.server.reset_stream(1, ErrorCodes.REFUSED_STREAM)
    found = failure(talk)
    assert (found.cause, found.reset) == (ExchangeFailure.RESET, "REFUSED_STREAM")


@pytest.mark.parametrize(("last", "fails"), [(0, True), (1, False), (3, False)])
def test_a_goaway(last: int, fails: bool) -> None:
    talk = Talk()
    talk.go()
    away = bytes([0, 0, 8, 7, 0, 0, 0, 0, 0]) + last.to_bytes(4, "big") + b"\0\0\0\x0b"
    if fails:
        found = failure(talk, away)
        assert found.cause is ExchangeFailure.CLOSED
        assert str(found) == "the server ended the connection (ENHANCE_YOUR_CALM)"
        return
    talk.client.feed(away)
    talk.server.send_headers(1, OK, end_stream=True)
    talk.go()
    assert talk.client.done


def test_a_goaway_before_the_settings() -> None:
    found = failure(Talk(), bytes([0, 0, 8, 7]) + bytes(13))
    assert found.cause is ExchangeFailure.CLOSED


def test_no_streams_allowed() -> None:
    talk = Talk(MAX_CONCURRENT_STREAMS=0)
    found = failure(talk)
    assert (found.cause, str(found)) == (ExchangeFailure.CLOSED, "the server allows no streams")


def test_the_end_of_the_connection() -> None:
    assert Talk().client.end().cause is ExchangeFailure.CLOSED


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP/1, not HTTP/2"),
        (b"SSH-2.0-OpenSSH_9\r\n", "a frame of 5460808 bytes"),
        (bytes([0, 0, 8, 6]) + bytes(13), "its first frame is not SETTINGS"),
        (bytes([0, 0, 5, 4]) + bytes(10), "broke HTTP/2"),
        (bytes([0, 0, 4, 7]) + bytes(9), "a GOAWAY without a stream"),
    ],
)
def test_protocol_errors_of_a_peer(data: bytes, text: str) -> None:
    found = failure(Talk(), data)
    assert found.cause is ExchangeFailure.PROTOCOL
    assert text in str(found)


@pytest.mark.parametrize("status", ["", "20", "600", "abc", "²00", "2000000000000000000000000000"])
def test_a_response_without_a_status(status: str) -> None:
    talk = Talk()
    talk.go()
    talk.server.config.validate_outbound_headers = False
    talk.server.send_headers(1, [(":status", status)] if status else [("x", "y")])
    assert failure(talk).cause is ExchangeFailure.PROTOCOL


def test_bytes_are_bounded() -> None:
    talk = Talk(bounds=Bounds(bytes=1000))
    talk.go()
    assert talk.client.most < 1000
    talk.server.send_headers(1, OK)
    talk.server.send_data(1, b"x" * 2000)
    found = failure(talk)
    assert (found.cause, str(found)) == (
        ExchangeFailure.BOUNDS,
        "the server sent more than 1000 bytes",
    )
    assert len(talk.client.body) <= 1000


def test_pieces_are_bounded() -> None:
    """A read of the socket costs more than the byte that it may bring."""
    talk = Talk()
    talk.go()
    talk.server.send_headers(1, OK)
    talk.server.send_data(1, b"x" * 2000)
    data = talk.server.data_to_send()
    with pytest.raises(ExchangeFailed, match="in more than 128 pieces") as failed:
        for at in range(len(data)):
            talk.client.feed(data[at : at + 1])
    assert failed.value.cause is ExchangeFailure.BOUNDS


def test_frames_are_bounded_before_any_is_read() -> None:
    talk = Talk(bounds=Bounds(frames=10))
    talk.go()
    for _ in range(11):
        talk.server.ping(b"12345678")
    found = failure(talk)
    assert (found.cause, str(found)) == (
        ExchangeFailure.BOUNDS,
        "the server sent more than 10 frames",
    )


def test_settings_are_bounded() -> None:
    talk = Talk()
    settings = bytes([1, 0, 0, 1, 0, 0]) * 100
    found = failure(talk, len(settings).to_bytes(3, "big") + bytes([4]) + bytes(5) + settings)
    assert found.cause is ExchangeFailure.BOUNDS


def test_interim_responses_are_bounded() -> None:
    talk = Talk()
    talk.go()
    for _ in range(BOUNDS.interim):
        talk.server.send_headers(1, [(":status", "103")])
    talk.go()
    talk.server.send_headers(1, [(":status", "103")])
    assert failure(talk).cause is ExchangeFailure.BOUNDS


def test_headers_are_bounded_although_they_are_compressed() -> None:
    talk = Talk()
    talk.go()
    talk.server.send_headers(1, [(":status", "200")] + [("x", "y")] * 300)
    found = failure(talk)
    assert found.cause is ExchangeFailure.PROTOCOL
    assert "Oversized header block" in str(found)


# -- frames -------------------------------------------------------------------------------------


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
