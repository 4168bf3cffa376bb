"""One HTTP/2 connection to an API server: its streams, and whether the server is alive.

The library h2 has the protocol's state; it is imported when a server has chosen HTTP/2. Must never
let an error of h2 out, wait for anything but a stream's own progress, or hold more than
:mod:`kubeletpy.kubeapi.http2_limits` allows. Source: RFC 9113.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import cast

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from h2.errors import ErrorCodes

from kubeletpy.base.wire import http2 as wire
from kubeletpy.kubeapi import http2_limits as limits
from kubeletpy.kubeapi.http2_limits import Load
from kubeletpy.kubeapi.transport import Response, StreamRefused, TransportError

_FLOOD = "too many frames that carry no answer"
_PING = b"kubelet?"


class _State(h2.connection.H2Connection):
    MAX_CLOSED_STREAMS = 1024  # 65,536 of them would take 10 MB


class Http2Connection(wire.Http2Client, asyncio.Protocol):
    """An open connection; :attr:`load` states what it can take."""

    def __init__(
        self, changed: Callable[[], None], lost: Callable[[str], None] = lambda why: None
    ) -> None:
        """Make the protocol of a connection that is being opened.

        Args:
            changed: called when a stream has ended, or when the connection is lost.
            lost: called once with the reason when it breaks, or when the server ends it.
        """
        super().__init__(
            limits.MAX_HEADER_BYTES,
            INITIAL_WINDOW_SIZE=limits.STREAM_WINDOW,
            MAX_FRAME_SIZE=wire.MAX_FRAME_BYTES,
        )
        self._loop = asyncio.get_running_loop()
        self._changed = changed
        self._streams: dict[int, Stream] = {}
        self._senders: set[Stream] = set()
        self._transport: asyncio.Transport | None = None
        self._error: TransportError | None = None
        self.ending = False
        """It takes no new streams, and closes with its last one."""
        self._paused = False
        self._flushing = False
        self._allowed = limits.FIRST_STREAMS
        self._arrived = 0
        """Bytes of bodies that were not yet returned to the flow-control window."""
        self.opened_at = self._heard = self._quiet_since = self._loop.time()
        """On the loop's clock."""
        self._lost = lost
        self._notified = False
        self._requested: float | None = None
        """When a PING was sent; nothing has arrived since."""
        self._suspect = False
        """A request's time is up without a sign of the server; nothing has arrived since."""
        self._guard = limits.FloodGuard(self._heard)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def load(self) -> Load:
        """Its streams, and whether it takes more."""
        usable = not self.ending and self._error is None and not self._suspect
        return Load(usable, len(self._streams), self._allowed)

    @property
    def lost(self) -> bool:
        """Whether it is closed."""
        return self._error is not None

    async def request(self, head: wire.Headers, data: bytes | None, deadline: float) -> Stream:
        """Send a request and wait for the response's head.

        The stream is open when this first waits.

        Args:
            head: with the pseudo-headers, names in lower case.
            deadline: for the whole response, on the loop's clock.

        Raises:
            StreamRefused: the server has not begun with it.
            TransportError: no response.
        """
        stream = self._open(head, data, deadline)
        try:
            if data:
                await self._send(stream, data)
            await stream.head()
            return stream
        except BaseException:
            stream.close()
            raise

    def _open(self, head: wire.Headers, data: bytes | None, deadline: float) -> Stream:
        if self._error is not None:
            raise StreamRefused(str(self._error))
        try:
            number = self._h2.get_next_available_stream_id()
            self._h2.send_headers(number, head, end_stream=not data)
        except h2.exceptions.TooManyStreamsError:
            raise StreamRefused("the server allows no more streams") from None
        except h2.exceptions.NoAvailableStreamIDError:
            self.retire()
            raise StreamRefused("the connection has had all its streams") from None
        except wire.BROKEN as error:
            raise self.abandon(wire.broken(error)) from None
        if not self._streams:
            self._quiet_since = self._loop.time()
        stream = self._streams[number] = Stream(self, number, deadline)
        self._guard.opened()
        self._flush_soon()
        self._set_timer()
        return stream

    async def _send(self, stream: Stream, data: bytes) -> None:
        """Send a body as far as the server takes it: it may answer before its end."""
        self._senders.add(stream)
        at = 0
        try:
            while at < len(data) and not stream.closed:
                size = 0 if self._paused else self._send_part(stream.number, data, at)
                if not size:
                    await stream.changed()
                    continue
                self._flush_soon()
                at += size
        except wire.BROKEN as error:
            raise self.abandon(wire.broken(error)) from None
        finally:
            self._senders.discard(stream)

    def retire(self) -> None:
        """Take no new streams; close with the last one."""
        self.ending = True
        self._close_if_over()

    # asyncio's part

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send our settings on the new connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(limits.CONNECTION_WINDOW - 65535)
        self._flush()
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        """Handle what has arrived, within the bounds."""
        if self._error is not None:
            return
        now = self._loop.time()
        self._heard = self._quiet_since = now
        self._requested = None
        if self._suspect:
            self._suspect = False
            self._changed()
        try:
            self.handle(data)
        except wire.BROKEN as error:
            self.abandon(wire.broken(error))
        else:
            self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Make all streams fail."""
        self.abandon(str(exc) if exc is not None and str(exc) else "the server closed it")

    def pause_writing(self) -> None:
        """Stop sending bodies: the transport's buffer is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """Continue to send bodies."""
        self._paused = False
        self._wake_senders()

    # events from the server

    def _count(self, piece: wire.Frames | wire.GoAway) -> None:
        if isinstance(piece, wire.Frames) and self._guard.exceeded(piece.control, self._heard):
            raise wire.FrameError(_FLOOD)

    def _on_head(self, event: h2.events.ResponseReceived) -> None:
        status = wire.status_of(event.headers)
        stream = self._streams.get(event.stream_id or 0)
        if stream is not None:
            stream.answered(status, event.headers)

    def _on_interim(self, _event: h2.events.InformationalResponseReceived) -> None:
        if self._guard.exceeded(1, self._heard):
            raise wire.FrameError(_FLOOD)

    def _on_data(self, event: h2.events.DataReceived) -> None:
        size = event.flow_controlled_length or 0
        self._arrived += size
        if self._arrived >= limits.CONNECTION_WINDOW // 4:
            self._h2.increment_flow_control_window(self._arrived)
            self._arrived = 0
        stream = self._streams.get(event.stream_id or 0)
        if stream is not None:
            data = event.data or b""
            if data:
                stream.received(bytes(data))
            if size > len(data) and not event.stream_ended:
                self._h2.increment_flow_control_window(size - len(data), stream.number)

    def _on_end(self, event: h2.events.StreamEnded) -> None:
        stream = self._forget(event.stream_id)
        if stream is not None:
            stream.end()
            if stream in self._senders:  # it needs no more of the request
                # the server may have reset it itself, in the same packet
                with contextlib.suppress(h2.exceptions.NoSuchStreamError):
                    self._h2.reset_stream(stream.number, ErrorCodes.CANCEL)

    def _on_reset(self, event: h2.events.StreamReset) -> None:
        stream = self._forget(event.stream_id)
        if stream is None:
            return
        if event.error_code == ErrorCodes.REFUSED_STREAM:
            stream.fail(StreamRefused("the server refused the stream"))
        else:
            stream.fail(
                TransportError(f"the server reset the stream: {wire.error_name(event.error_code)}")
            )

    def _on_window(self, _event: h2.events.WindowUpdated) -> None:
        self._wake_senders()

    def _on_settings(self, _event: h2.events.RemoteSettingsChanged) -> None:
        allowed = self._h2.remote_settings.max_concurrent_streams
        self._allowed = min(allowed, limits.MAX_STREAMS)
        table = min(self._h2.remote_settings.header_table_size, limits.HEADER_TABLE_BYTES)
        if self._h2.encoder.header_table_size != table:
            self._h2.encoder.header_table_size = table
        self._wake_senders()
        self._changed()

    def _on_goaway(self, event: wire.GoAway) -> None:
        self.ending = True
        self._report_lost(f"the server ended it ({event.reason})")
        for number in [each for each in self._streams if each > event.last_stream]:
            stream = self._forget(number)
            if stream is not None:
                stream.fail(StreamRefused(f"the server ended the connection ({event.reason})"))
        self._close_if_over()
        self._changed()

    state = _State
    handlers = {  # noqa: RUF012
        h2.events.ResponseReceived: _on_head,
        h2.events.InformationalResponseReceived: _on_interim,
        h2.events.DataReceived: _on_data,
        h2.events.StreamEnded: _on_end,
        h2.events.StreamReset: _on_reset,
        h2.events.WindowUpdated: _on_window,
        h2.events.RemoteSettingsChanged: _on_settings,
    }

    # requests from streams

    def give_back(self, stream: Stream, size: int) -> None:
        """Let the server send more on a stream."""
        if self._streams.get(stream.number) is stream:
            try:
                self._h2.increment_flow_control_window(size, stream.number)
            except wire.BROKEN as error:
                self.abandon(wire.broken(error))
                return
            self._flush_soon()

    def cancel(self, stream: Stream) -> None:
        """End a stream that nobody reads."""
        if self._streams.get(stream.number) is not stream:
            return
        try:
            self._h2.reset_stream(stream.number, ErrorCodes.CANCEL)
        except wire.BROKEN as error:
            self.abandon(wire.broken(error))
            return
        self._forget(stream.number)
        self._flush_soon()

    def unanswered(self, stream: Stream) -> None:
        """A request timed out: check with a PING whether a silent server is alive."""
        if not stream.status and self._heard <= stream.opened_at and self._error is None:
            self._suspect = True
            if self._requested is None:
                self._ping()
            self._changed()

    # health

    def _ping(self) -> None:
        self._requested = self._loop.time()
        try:
            self._h2.ping(_PING)
        except wire.BROKEN as error:
            self.abandon(wire.broken(error))
            return
        self._flush()
        self._set_timer()

    def _set_timer(self) -> None:
        due = self._due()
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._check)

    def _due(self) -> float:
        if self._requested is not None:
            return self._requested + limits.PING_TIMEOUT_S
        return self._quiet_since + (limits.READ_IDLE_S if self._streams else limits.IDLE_S)

    def _check(self) -> None:
        self._timer = None
        if self._error is not None:
            return
        if self._loop.time() < self._due():
            self._set_timer()
        elif self._requested is not None:
            self.abandon(f"the server did not answer a PING within {limits.PING_TIMEOUT_S:.0f} s")
        elif self._streams:
            self._ping()
        else:
            self.retire()

    # the rest

    def _forget(self, number: int | None) -> Stream | None:
        stream = self._streams.pop(number or 0, None)
        if stream is not None:
            if not self._streams:
                self._quiet_since = self._loop.time()
                self._close_if_over()
            self._changed()
        return stream

    def _wake_senders(self) -> None:
        for stream in self._senders:
            stream.wake()

    def _flush_soon(self) -> None:
        """Write all data of one turn of the loop at once."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._error is not None or self._transport is None:
            return
        data = self._h2.data_to_send()
        if not data:
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > limits.MAX_WRITE_BUFFER:
            self.abandon("the server does not read what it is sent")

    def _close_if_over(self) -> None:
        if not self.ending or self._streams or self._error is not None:
            return
        with contextlib.suppress(*wire.BROKEN):
            self._h2.close_connection()
        self._flush()
        if self._error is None:
            self._error = TransportError("the connection was closed")
            self._end(closing=True)

    def abandon(self, why: str) -> TransportError:
        """Close at once; returns the error that all streams fail with."""
        if self._error is None:
            self._error = TransportError(f"HTTP/2 connection lost: {why}")
            self._report_lost(why)
            self._end(closing=False)
        return self._error

    def _report_lost(self, why: str) -> None:
        if not self._notified:
            self._notified = True
            self._lost(why)

    def _end(self, *, closing: bool) -> None:
        self.done = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            if closing:
                self._transport.close()
            else:
                self._transport.abort()
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            stream.fail(TransportError(str(self._error)))
        self._changed()


class Stream(Response):
    """One request and its response, which can be read once its head is there."""

    def __init__(self, owner: Http2Connection, number: int, deadline: float) -> None:
        """``deadline``: on the loop's clock; then it is cancelled."""
        loop = asyncio.get_running_loop()
        self._owner = owner
        self.number = number
        self.opened_at = loop.time()
        self._deadline = loop.call_at(deadline, self._expire)
        self.status = 0
        """The HTTP status code; 0 before the head is there."""
        self._headers: wire.Headers = []
        self._waiting: list[bytes] = []
        self._read = 0
        """Bytes that the reader has taken, not yet returned to the flow-control window."""
        self._ended = False
        self._error: TransportError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def closed(self) -> bool:
        """Whether the server has ended it, or we have."""
        return self._ended or self._error is not None

    def header(self, name: str) -> str:
        desired = name.encode()
        return next((value.decode("latin-1") for key, value in self._headers if key == desired), "")

    async def head(self) -> None:
        """Wait for the response's head. Raises TransportError."""
        while not self.status:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise TransportError("the server ended the stream without an answer")
            await self.changed()

    async def encoded_chunks(self) -> AsyncIterator[bytes]:
        while True:
            if self._waiting:
                chunk = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
                self._waiting.clear()
                self._read += len(chunk)
                if self._read >= limits.STREAM_WINDOW // 2 and not self.closed:
                    self._owner.give_back(self, self._read)
                    self._read = 0
                yield chunk
            elif self._error is not None:
                raise self._error
            elif self._ended:
                return
            else:
                await self.changed()

    def close(self) -> None:
        """Drop what has not been read; the stream is reset."""
        self._waiting.clear()
        if not self.closed:
            self._owner.cancel(self)
            self.fail(TransportError("the response was closed"))

    async def changed(self) -> None:
        """Wait until something has arrived, or may be sent; only one task waits."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """Something has changed for whoever waits."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def answered(self, status: int, headers: wire.Headers) -> None:
        """The head has arrived."""
        self.status, self._headers = status, headers
        length = self.header("content-length")  # h2 compares it with what comes
        self.content_length = int(length) if length.isascii() and length.isdigit() else None
        self.wake()

    def received(self, data: bytes) -> None:
        """A part of the body has arrived."""
        self._waiting.append(data)
        self.wake()

    def end(self) -> None:
        """The server has sent all of it."""
        self._ended = True
        self._over()

    def fail(self, error: TransportError) -> None:
        """It has broken off; what arrived before can still be read."""
        if not self.closed:
            self._error = error
            self._over()

    def _over(self) -> None:
        self._deadline.cancel()
        self.wake()

    def _expire(self) -> None:
        seconds = asyncio.get_running_loop().time() - self.opened_at
        self._owner.unanswered(self)
        self._owner.cancel(self)
        self.fail(TransportError(f"no answer within {seconds:.0f} s"))
