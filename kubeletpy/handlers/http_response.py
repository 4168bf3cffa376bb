"""Reads an HTTP/1 response as its bytes come. Pure, and bounded whatever the server sends.

Only as much is read as handlers need: status, headers, and a body's first bytes.
"""

from __future__ import annotations

import re
from enum import Enum, auto

MAX_HEAD = 64 * 1024
"""Bytes of a response's status line and headers, and of anything sent ahead of them."""

_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9][0-9])(?: [^\r\n]*)?\r?\n?")


class MalformedResponse(ValueError):
    """What came is no HTTP/1 response; the message says why."""


class _Body(Enum):
    NONE = auto()
    LENGTH = auto()
    CHUNKED = auto()
    UNTIL_CLOSE = auto()


class ResponseReader:
    """Takes bytes until ``done``.

    Attributes:
        status: 0 until the head has come.
        headers: by lower-case name; of several of one name the first.
        body: at most ``keep`` bytes of it.
        done: nothing more is needed, though the server may send more.
    """

    def __init__(self, keep: int) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.done = False
        self._keep = keep
        self._buffer = bytearray()
        self._kind = _Body.NONE
        self._left = 0
        """Bytes of the body, or of the chunk, still to come."""

    def feed(self, data: bytes) -> None:
        """Take what came. Raises MalformedResponse."""
        if self.done:
            return
        self._buffer += data
        while not self.status and self._head():
            pass
        if self.status:
            self._take_body()

    def end(self) -> None:
        """The server closed. Raises MalformedResponse: too early."""
        if self.done:
            return
        if not self.status or self._kind is not _Body.UNTIL_CLOSE:
            raise MalformedResponse("unexpected EOF" if self.status else "EOF")
        self.done = True

    def _head(self) -> bool:
        """Take the head if it has all come; whether to look again (an interim one was skipped)."""
        found = _END_OF_HEAD.search(self._buffer)
        if found is None or found.end() > MAX_HEAD:
            if len(self._buffer) > MAX_HEAD:
                raise MalformedResponse(f"server response headers exceeded {MAX_HEAD} bytes")
            if len(self._buffer) >= 7 and not self._buffer.startswith(b"HTTP/1."):
                raise MalformedResponse(f"malformed HTTP response {bytes(self._buffer[:40])!r}")
            return False
        head = bytes(self._buffer[: found.start()])
        del self._buffer[: found.end()]
        line, _, rest = head.partition(b"\n")
        status = _STATUS.fullmatch(line)
        if status is None:
            raise MalformedResponse(f"malformed HTTP response {line[:40]!r}")
        code = int(status[1])
        if 100 <= code < 200 and code != 101:
            return True
        self._read_headers(rest)
        self.status = code
        self._kind = self._body_kind()
        return False

    def _read_headers(self, lines: bytes) -> None:
        for line in lines.split(b"\n"):
            name, colon, value = line.partition(b":")
            if colon:
                key = name.strip().decode("latin-1").lower()
                self.headers.setdefault(key, value.strip().decode("latin-1"))

    def _body_kind(self) -> _Body:
        if self.status in (101, 204, 304):
            return _Body.NONE
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            return _Body.CHUNKED
        length = self.headers.get("content-length")
        if length is None:
            return _Body.UNTIL_CLOSE
        if not (length.isascii() and length.isdigit() and len(length) < 19):
            raise MalformedResponse(f"bad Content-Length {length[:40]!r}")
        self._left = int(length)
        return _Body.LENGTH

    def _take_body(self) -> None:
        match self._kind:
            case _Body.NONE:
                self.done = True
            case _Body.UNTIL_CLOSE:
                self._keep_some(len(self._buffer))
            case _Body.LENGTH:
                self._left -= self._keep_some(self._left)
                self.done = self.done or self._left == 0
            case _Body.CHUNKED:
                self._take_chunks()

    def _keep_some(self, most: int) -> int:
        """Move up to ``most`` bytes to the body; how many. Enough of a body is all of it."""
        piece = self._buffer[:most]
        del self._buffer[:most]
        self.body += piece[: self._keep - len(self.body)]
        if len(self.body) >= self._keep:
            self.done = True
        return len(piece)

    def _take_chunks(self) -> None:
        while not self.done:
            if self._left:
                self._left -= self._keep_some(self._left)
                if self._left:
                    return
                continue
            line, newline, _ = self._buffer.partition(b"\n")
            if not newline:
                if len(line) > 256:
                    raise MalformedResponse("malformed chunked encoding")
                return
            del self._buffer[: len(line) + 1]
            size = line.split(b";")[0].strip()
            if not size and not self._left:
                continue  # the end of the line after a chunk
            if len(size) > 15 or not re.fullmatch(rb"[0-9a-fA-F]+", bytes(size)):
                raise MalformedResponse("malformed chunked encoding")
            self._left = int(size, 16)
            if self._left == 0:
                self.done = True
