"""One request on an HTTP/2 connection, and its response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from kubeletpy.kubeapi.http2.limits import STREAM_WINDOW
from kubeletpy.kubeapi.transport import MAX_ANSWER_BYTES, TransportError, decompressed

Headers = Sequence[tuple[bytes, bytes]]


class StreamRefused(TransportError):
    """The server has not begun with the request: it can be sent again."""


class StreamOwner(Protocol):
    """Methods of a connection that its streams call."""

    def give_back(self, stream: Stream, size: int) -> None:
        """Let the server send ``size`` more bytes on a stream."""
        ...

    def cancel(self, stream: Stream) -> None:
        """End a stream that nobody reads."""
        ...

    def unanswered(self, stream: Stream) -> None:
        """Check whether the server is alive: no answer came before the stream's deadline."""
        ...


class Stream:
    """A response (:class:`~kubeletpy.kubeapi.transport.Response`), once its head is there."""

    def __init__(self, owner: StreamOwner, number: int, deadline: float) -> None:
        """``deadline``: on the loop's clock; then it is cancelled."""
        loop = asyncio.get_running_loop()
        self._owner = owner
        self.number = number
        self.opened_at = loop.time()
        self._deadline = loop.call_at(deadline, self._expire)
        self.status = 0
        """The HTTP status code; 0 before the head is there."""
        self._headers: Headers = ()
        self._waiting: list[bytes] = []
        self._read = 0
        """Bytes that the reader has taken, not yet returned to the flow-control window."""
        self._ended = False
        self._error: TransportError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def content_length(self) -> int | None:
        """The announced length of the body; h2 has compared it with what came."""
        length = self.header("content-length")
        return int(length) if length.isascii() and length.isdigit() else None

    @property
    def closed(self) -> bool:
        """Whether the server has ended it, or we have."""
        return self._ended or self._error is not None

    def header(self, name: str) -> str:
        """A header's value, or an empty string."""
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

    async def read(self, limit: int = MAX_ANSWER_BYTES) -> bytes:
        """The whole body. Raises TransportError."""
        parts: list[bytes] = []
        size = 0
        async for chunk in self.chunks():
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                self.close()
                raise TransportError(f"the answer is larger than {limit} bytes")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises TransportError."""
        try:
            async for piece in decompressed(self.header("content-encoding"), self._chunks()):
                yield piece
        except TransportError:
            self.close()
            raise

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            if self._waiting:
                chunk = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
                self._waiting.clear()
                self._read += len(chunk)
                if self._read >= STREAM_WINDOW // 2 and not self.closed:
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

    def answered(self, status: int, headers: Headers) -> None:
        """The head has arrived."""
        self.status, self._headers = status, headers
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
