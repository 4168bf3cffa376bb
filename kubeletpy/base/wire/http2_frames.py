"""Splits the bytes of an HTTP/2 server into complete frames before h2 reads them. Pure.

GOAWAY is read here and kept from h2, which would take no further frame after it
(python-hyper/h2 issue 1181), while a server that shuts down ends its responses first. Frames that
carry no answer are counted, and one that is too long is refused before it has arrived.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeletpy.base.structs import Struct

MAX_FRAME_BYTES = 16384
"""The smallest that the protocol allows."""
SLICE_BYTES = 16384
"""Bytes of frames that are passed on together, before the caller checks its bounds again."""
_HEADER = 9
_DATA, _HEADERS, _SETTINGS, _GOAWAY, _CONTINUATION = 0, 1, 4, 7, 9
_SETTING = 6
"""Bytes of one setting."""
_STREAM = 0x7FFFFFFF
_MAX_DEBUG = 200


class FrameError(Exception):
    """The server broke the protocol; the message states how."""


class Frames(Struct, frozen=True):
    """Whole frames, in order: ``count`` of them, of which ``control`` carry no answer.

    A SETTINGS frame counts once for each setting in it: each costs as much as a frame.
    """

    data: bytes
    control: int
    count: int


class GoAway(Struct, frozen=True):
    """The server takes no new streams, and has not begun with those above ``last_stream``."""

    last_stream: int
    code: int
    text: str


class FrameSplitter:
    """Holds at most one incomplete frame."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def split(self, data: bytes) -> Iterator[Frames | GoAway]:
        """The frames that are complete now. Raises FrameError; those yielded before are sound."""
        buffer = self._rest
        buffer += data
        start = at = control = count = 0
        while len(buffer) - at >= _HEADER:
            length = int.from_bytes(buffer[at : at + 3], "big")
            if length > MAX_FRAME_BYTES:
                raise FrameError(f"a frame of {length} bytes, more than {MAX_FRAME_BYTES}")
            end = at + _HEADER + length
            if len(buffer) < end:
                break
            kind = buffer[at + 3]
            if kind == _GOAWAY:
                if at > start:
                    yield Frames(bytes(buffer[start:at]), control, count)
                yield _goaway(bytes(buffer[at + _HEADER : end]))
                start, control, count = end, 0, 0
            else:
                weight = max(length // _SETTING, 1) if kind == _SETTINGS else 1
                count += weight
                if kind not in (_HEADERS, _CONTINUATION) and not (kind == _DATA and length):
                    control += weight
                if end - start >= SLICE_BYTES:
                    yield Frames(bytes(buffer[start:end]), control, count)
                    start, control, count = end, 0, 0
            at = end
        if at > start:
            yield Frames(bytes(buffer[start:at]), control, count)
        del buffer[:at]


def _goaway(body: bytes) -> GoAway:
    if len(body) < 8:
        raise FrameError("a GOAWAY without a stream")
    last = int.from_bytes(body[:4], "big") & _STREAM
    text = body[8 : 8 + _MAX_DEBUG].decode("ascii", "replace")
    return GoAway(last, int.from_bytes(body[4:8], "big"), text if text.isprintable() else "")
