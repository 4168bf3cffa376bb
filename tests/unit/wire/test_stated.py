"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "wire/http2_exchange Bounds.bytes": 16384,
    "wire/http2_exchange Bounds.frames": 64,
    "wire/http2_exchange Bounds.headers": 8192,
    "wire/http2_exchange Bounds.interim": 2,
    "wire/http2_exchange Bounds.pieces": 128,
    "wire/http2_frames _SETTING": 6,
    "wire/http2_frames MAX_FRAME_BYTES": 16384,
    "wire/http2_frames SLICE_BYTES": 16384,
    "wire/http2_frames _HEADER": 9,
    "wire/http2_frames _STREAM": 2147483647,
    "wire/http2_frames _MAX_DEBUG": 200,
    "wire/spdy SYN_STREAM": 1,
    "wire/spdy SYN_REPLY": 2,
    "wire/spdy RST_STREAM": 3,
    "wire/spdy SETTINGS": 4,
    "wire/spdy PING": 6,
    "wire/spdy GOAWAY": 7,
    "wire/spdy DATA": 0,
    "wire/spdy FIN": 0x01,
    "wire/spdy MAX_FRAME": (1 << 24) - 1,
    "wire/spdy MAX_CONTROL": 64 << 10,
    "wire/spdy _CONTROL": 0x8003,
    "wire/stream_work SLICE_WORK": 100,
    "wire/stream_work SLICES_A_TURN": 4,
    "wire/stream_work _BYTES_SHIFT": 12,
    "wire/websocket FRAGMENT": 0,
    "wire/websocket TEXT": 1,
    "wire/websocket BINARY": 2,
    "wire/websocket CLOSE": 8,
    "wire/websocket PING": 9,
    "wire/websocket PONG": 10,
    "wire/websocket MAX_CONTROL": 125,
    "wire/messages MessageField.repeated": False,
    "wire/spdy Frame.flags": 0,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)
