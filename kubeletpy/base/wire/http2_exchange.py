"""One HTTP/2 request and its response on a connection of its own: the protocol without I/O.

For small requests to untrusted servers, such as gRPC health checks. The library h2 has the protocol
state; frames are counted before h2 sees them, so that a flood costs no more than its first frames.
Must never open a socket, wait, or read more than :class:`Bounds` allows. Source: RFC 9113.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, cast

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from h2.errors import ErrorCodes

from kubeletpy.base.structs import Struct
from kubeletpy.base.wire.http2_frames import FrameError, Frames, FrameSplitter, GoAway

Headers = list[tuple[bytes, bytes]]

_MALFORMED = (h2.exceptions.H2Error, ValueError, LookupError, TypeError, AssertionError)
"""Exceptions of h2 for hostile bytes: its own, and those of cases that it does not check."""
_SETTINGS_FRAME = 4
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


class Exchange:
    """The request is sent once the server has sent its settings.

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
        self.greeted = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.trailers: dict[str, str] = {}
        self.done = False
        self._greeting = greeting
        self._head = head
        self._unsent = body
        self._bounds = bounds
        self._enough = enough
        self._splitter = FrameSplitter()
        self._bytes = self._frames = self._pieces = self._interim = 0
        self._stream = 0
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=True,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self._h2.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: bounds.headers,
            },
        )
        # h2 applies the setting only once the server has acknowledged it
        self._h2.decoder.max_header_list_size = bounds.headers

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
            text = f"the server sent its answer in more than {self._bounds.pieces} pieces"
            raise ExchangeFailed(ExchangeFailure.BOUNDS, text)
        try:
            for piece in self._splitter.split(data[:left]):
                self._handle_frame(piece)
                if self.done:
                    self._h2.close_connection()
                    break
        except (FrameError, *_MALFORMED) as error:
            why = str(error)[:200] or type(error).__name__
            raise ExchangeFailed(
                ExchangeFailure.PROTOCOL, f"the server broke HTTP/2: {why}"
            ) from None
        if len(data) > left and not self.done:
            text = f"the server sent more than {self._bounds.bytes} bytes"
            raise ExchangeFailed(ExchangeFailure.BOUNDS, text)
        return self._h2.data_to_send()

    def end(self) -> ExchangeFailed:
        """The failure that the server's close of the connection means."""
        return ExchangeFailed(ExchangeFailure.CLOSED, "the server closed the connection")

    def _handle_frame(self, piece: Frames | GoAway) -> None:
        self._frames += piece.count if isinstance(piece, Frames) else 1
        if self._frames > self._bounds.frames:
            text = f"the server sent more than {self._bounds.frames} frames"
            raise ExchangeFailed(ExchangeFailure.BOUNDS, text)
        if isinstance(piece, GoAway):
            if piece.last_stream < self._stream or not self._stream:
                why = f"{_name(piece.code)}{': ' if piece.text else ''}{piece.text}"
                text = f"the server ended the connection ({why})"
                raise ExchangeFailed(ExchangeFailure.CLOSED, text)
            return
        if not self.greeted and piece.data[3] != _SETTINGS_FRAME:
            raise FrameError("its first frame is not SETTINGS")
        for event in self._h2.receive_data(piece.data):
            handle = _HANDLERS.get(type(event))
            if handle is not None:
                handle(self, event)

    def _on_settings(self, _event: h2.events.RemoteSettingsChanged) -> None:
        if not self.greeted:
            self.greeted = True
            self._greeting()
            self._open()
        self._send()

    def _on_window(self, _event: h2.events.WindowUpdated) -> None:
        self._send()

    def _open(self) -> None:
        try:
            self._stream = self._h2.get_next_available_stream_id()
            self._h2.send_headers(
                self._stream, cast("Any", self._head), end_stream=not self._unsent
            )
        except h2.exceptions.TooManyStreamsError:
            raise ExchangeFailed(ExchangeFailure.CLOSED, "the server allows no streams") from None

    def _send(self) -> None:
        """Send the body as far as the server's windows allow."""
        while self._unsent and not self.done:
            window = self._h2.local_flow_control_window(self._stream)
            size = min(window, self._h2.max_outbound_frame_size, len(self._unsent))
            if size <= 0:
                return
            part, self._unsent = self._unsent[:size], self._unsent[size:]
            self._h2.send_data(self._stream, part, end_stream=not self._unsent)

    def _on_head(self, event: h2.events.ResponseReceived) -> None:
        headers = _headers(event.headers)
        status = headers.pop(":status", "")
        if not (status.isdecimal() and 200 <= int(status[:4]) <= 599):
            raise FrameError("a response without a status")
        self.status, self.headers = int(status), headers

    def _on_interim(self, _event: h2.events.InformationalResponseReceived) -> None:
        self._interim += 1
        if self._interim > self._bounds.interim:
            text = f"the server sent more than {self._bounds.interim} interim responses"
            raise ExchangeFailed(ExchangeFailure.BOUNDS, text)

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
            name = _name(event.error_code)
            raise ExchangeFailed(
                ExchangeFailure.RESET, f"the server reset the stream: {name}", name
            )


_HANDLERS: dict[type[h2.events.Event], Callable[[Exchange, Any], None]] = {
    h2.events.RemoteSettingsChanged: Exchange._on_settings,
    h2.events.WindowUpdated: Exchange._on_window,
    h2.events.ResponseReceived: Exchange._on_head,
    h2.events.InformationalResponseReceived: Exchange._on_interim,
    h2.events.DataReceived: Exchange._on_data,
    h2.events.TrailersReceived: Exchange._on_trailers,
    h2.events.StreamEnded: Exchange._on_end,
    h2.events.StreamReset: Exchange._on_reset,
}


def _headers(found: Iterable[Any] | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in found or ():
        headers.setdefault(name.decode("latin-1"), value.decode("utf-8", "replace"))
    return headers


def _name(code: Any) -> str:
    try:
        return ErrorCodes(code).name
    except ValueError:
        return f"code {code}"
