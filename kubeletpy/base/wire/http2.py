"""The client's side of HTTP/2 to untrusted servers: the protocol without I/O.

The library h2 has the protocol's state. Connections to the API server carry many streams
(:mod:`kubeletpy.kubeapi.http2`); an :class:`Exchange` is one small request on a connection of its
own, such as a gRPC health check. Must never open a socket, wait, or let a server's frames reach h2
before they were counted. Source: RFC 9113.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from h2.errors import ErrorCodes

from kubeletpy.base.structs import Struct

Headers = list[tuple[bytes, bytes]]

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


BROKEN = (FrameError, h2.exceptions.H2Error, ValueError, LookupError, TypeError, AssertionError)
"""Exceptions for bytes of a server: ours, h2's own, and those of cases that it does not check."""


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

    @property
    def reason(self) -> str:
        """The name of its code, and the server's text."""
        return f"{error_name(self.code)}{': ' if self.text else ''}{self.text}"


class FrameSplitter:
    """Splits bytes into whole frames; holds at most one incomplete frame.

    GOAWAY is read here and kept from h2, which would take no further frame after it
    (python-hyper/h2 issue 1181), while a server that shuts down ends its responses first. A frame
    that is too long is refused before it has arrived.
    """

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


class Http2Client(ABC):
    """One connection to an untrusted server: h2's state, and frames that are counted first.

    A flood costs no more than its first frames. Subclasses send the state's output.

    Attributes:
        handlers: by type of event; other events are ignored.
        state: h2's class.
        done: nothing more that arrives is handled.
    """

    handlers: Mapping[type[h2.events.Event], Callable[[Any, Any], None]]
    state: type[h2.connection.H2Connection] = h2.connection.H2Connection
    done = False

    def __init__(self, max_header_bytes: int, **settings: int) -> None:
        """Announce the bound of a block of headers, and settings by h2's names."""
        self._splitter = FrameSplitter()
        self._h2 = self.state(
            h2.config.H2Configuration(
                client_side=True,
                header_encoding=None,
                validate_outbound_headers=False,  # they are ours; a third of the time of sending
                normalize_outbound_headers=False,
            )
        )
        codes = h2.settings.SettingCodes
        values = {codes[name]: value for name, value in settings.items()}
        values |= {codes.ENABLE_PUSH: 0, codes.MAX_HEADER_LIST_SIZE: max_header_bytes}
        self._h2.local_settings = h2.settings.Settings(client=True, initial_values=values)
        # h2 applies the setting only once the server has acknowledged it
        self._h2.decoder.max_header_list_size = max_header_bytes

    def handle(self, data: bytes) -> None:
        """Handle the frames that are complete now, until done. Raises one of BROKEN."""
        for piece in self._splitter.split(data):
            self._count(piece)
            if isinstance(piece, GoAway):
                self._on_goaway(piece)
            else:
                for event in self._h2.receive_data(piece.data):
                    handler = self.handlers.get(type(event))
                    if handler is not None:
                        handler(self, event)
            if self.done:
                return

    def _send_part(self, stream: int, data: bytes, at: int = 0) -> int:
        """Send a body from ``at``, as much as the server takes now; returns how much that is."""
        window = self._h2.local_flow_control_window(stream)
        size = min(window, self._h2.max_outbound_frame_size, len(data) - at)
        if size > 0:
            last = at + size == len(data)
            self._h2.send_data(stream, data[at : at + size], end_stream=last)
        return max(size, 0)

    @abstractmethod
    def _count(self, piece: Frames | GoAway) -> None:
        """Take frames into account before they are handled; raises if they exceed a bound."""

    @abstractmethod
    def _on_goaway(self, event: GoAway) -> None:
        """Take no new streams; those above ``event.last_stream`` have not begun."""


def status_of(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The HTTP status in the headers of a response. Raises FrameError if there is none."""
    status = next((value for name, value in headers if name == b":status"), b"")
    if not (status.isdigit() and 200 <= int(status[:4]) <= 599):
        raise FrameError("a response without a status")
    return int(status[:4])


def error_name(code: Any) -> str:
    """The name of an error code, such as ``REFUSED_STREAM``."""
    try:
        return ErrorCodes(code).name
    except ValueError:
        return f"code {code}"


def broken(error: BaseException) -> str:
    """The message for one of BROKEN."""
    return f"the server broke HTTP/2: {str(error)[:200] or type(error).__name__}"


# One exchange

_HTTP1 = b"HTTP/1."


class Bounds(Struct, frozen=True):
    """The most that one server may send in one exchange.

    Attributes:
        bytes: all that is received.
        frames: frames of any kind, and settings in them.
        pieces: how many pieces the received bytes may come in.
        headers: bytes of one block of headers, decoded as RFC 9113 (6.5.2) counts them.
        interim: heads of interim responses (1xx).
    """

    bytes: int = 16 * 1024
    frames: int = 64
    pieces: int = 128
    headers: int = 8 * 1024
    interim: int = 2


BOUNDS = Bounds()


class ExchangeFailure(StrEnum):
    """Why an exchange failed."""

    BOUNDS = "bounds"
    """The server sent more than the bounds allow."""
    PROTOCOL = "protocol"
    """The server does not speak HTTP/2, or broke it."""
    RESET = "reset"
    """The server reset the stream."""
    CLOSED = "closed"
    """The server closed the connection, or refuses streams on it."""


class ExchangeFailed(Exception):
    """The exchange has no response; the text contains the reason.

    Attributes:
        cause: the kind of failure.
        reset: name of the error code that reset the stream, such as ``REFUSED_STREAM``.
    """

    def __init__(self, cause: ExchangeFailure, text: str, reset: str = "") -> None:
        super().__init__(text)
        self.cause = cause
        self.reset = reset


class Exchange(Http2Client):
    """One request and its response. The request is sent once the server has sent its settings.

    Attributes:
        greeted: the server's settings have arrived.
        status: 0 until the response's head has arrived.
        headers: of the response's head by name in lower case, without pseudo-headers; the first of
            several with the same name.
        body: what has arrived of it.
        trailers: the headers after the body.
        done: the response is complete.
    """

    def __init__(
        self,
        head: Headers,
        body: bytes,
        bounds: Bounds = BOUNDS,
        *,
        enough: int | None = None,
        greeting: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin an exchange with the request's head and body.

        Args:
            head: with the pseudo-headers, names in lower case.
            body: may be empty.
            enough: bytes of the response's body after which it is done; None: only its end is.
            greeting: called when the server's settings have arrived.
        """
        super().__init__(bounds.headers)
        self.greeted = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.trailers: dict[str, str] = {}
        self._greeting = greeting
        self._head = head
        self._unsent = body
        self._bounds = bounds
        self._enough = enough
        self._bytes = self._frames = self._pieces = self._interim = 0
        self._stream = 0

    @property
    def most(self) -> int:
        """How many received bytes can matter: all that is allowed, and one more."""
        return self._bounds.bytes - self._bytes + 1

    def start(self) -> bytes:
        """The client's preface, to be sent first."""
        self._h2.initiate_connection()
        return self._h2.data_to_send()

    def feed(self, data: bytes) -> bytes:
        """Process received bytes; returns what must be sent. Raises ExchangeFailed."""
        if self.done:
            return b""
        if not self._bytes and data.startswith(_HTTP1):
            raise ExchangeFailed(ExchangeFailure.PROTOCOL, "the server speaks HTTP/1, not HTTP/2")
        left = self._bounds.bytes - self._bytes
        self._bytes += len(data)
        self._pieces += 1
        if self._pieces > self._bounds.pieces:
            raise _exceeded(f"sent its answer in more than {self._bounds.pieces} pieces")
        try:
            self.handle(data[:left])
            if self.done:
                self._h2.close_connection()
        except BROKEN as error:
            raise ExchangeFailed(ExchangeFailure.PROTOCOL, broken(error)) from None
        if len(data) > left and not self.done:
            raise _exceeded(f"sent more than {self._bounds.bytes} bytes")
        return self._h2.data_to_send()

    def end(self) -> ExchangeFailed:
        """The failure that the server's close of the connection means."""
        return ExchangeFailed(ExchangeFailure.CLOSED, "the server closed the connection")

    def _count(self, piece: Frames | GoAway) -> None:
        self._frames += piece.count if isinstance(piece, Frames) else 1
        if self._frames > self._bounds.frames:
            raise _exceeded(f"sent more than {self._bounds.frames} frames")
        if isinstance(piece, Frames) and not self.greeted and piece.data[3] != _SETTINGS:
            raise FrameError("its first frame is not SETTINGS")

    def _on_goaway(self, event: GoAway) -> None:
        if event.last_stream < self._stream or not self._stream:
            text = f"the server ended the connection ({event.reason})"
            raise ExchangeFailed(ExchangeFailure.CLOSED, text)

    def _on_settings(self, _event: h2.events.RemoteSettingsChanged) -> None:
        if not self.greeted:
            self.greeted = True
            self._greeting()
            self._open()
        self._send()

    def _on_window(self, _event: h2.events.WindowUpdated) -> None:
        self._send()

    def _open(self) -> None:
        self._stream = self._h2.get_next_available_stream_id()
        try:
            self._h2.send_headers(self._stream, self._head, end_stream=not self._unsent)
        except h2.exceptions.TooManyStreamsError:
            raise ExchangeFailed(ExchangeFailure.CLOSED, "the server allows no streams") from None

    def _send(self) -> None:
        """Send the body as far as the server's windows allow."""
        while self._unsent and not self.done:
            size = self._send_part(self._stream, self._unsent)
            if not size:
                return
            self._unsent = self._unsent[size:]

    def _on_head(self, event: h2.events.ResponseReceived) -> None:
        self.status = status_of(event.headers)
        self.headers = _headers(event.headers)

    def _on_interim(self, _event: h2.events.InformationalResponseReceived) -> None:
        self._interim += 1
        if self._interim > self._bounds.interim:
            raise _exceeded(f"sent more than {self._bounds.interim} interim responses")

    def _on_data(self, event: h2.events.DataReceived) -> None:
        self.body += event.data or b""
        if self._enough is not None and len(self.body) >= self._enough:
            self.done = True

    def _on_trailers(self, event: h2.events.TrailersReceived) -> None:
        self.trailers = _headers(event.headers)

    def _on_end(self, _event: h2.events.StreamEnded) -> None:
        self.done = True

    def _on_reset(self, event: h2.events.StreamReset) -> None:
        if not self.done:
            name = error_name(event.error_code)
            text = f"the server reset the stream: {name}"
            raise ExchangeFailed(ExchangeFailure.RESET, text, name)

    handlers = {  # noqa: RUF012
        h2.events.RemoteSettingsChanged: _on_settings,
        h2.events.WindowUpdated: _on_window,
        h2.events.ResponseReceived: _on_head,
        h2.events.InformationalResponseReceived: _on_interim,
        h2.events.DataReceived: _on_data,
        h2.events.TrailersReceived: _on_trailers,
        h2.events.StreamEnded: _on_end,
        h2.events.StreamReset: _on_reset,
    }


def _exceeded(what: str) -> ExchangeFailed:
    return ExchangeFailed(ExchangeFailure.BOUNDS, f"the server {what}")


def _headers(found: Iterable[Any] | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in found or ():
        if not name.startswith(b":"):
            headers.setdefault(name.decode("latin-1"), value.decode("utf-8", "replace"))
    return headers
