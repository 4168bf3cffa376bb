"""Reads an HTTP/1 response as its bytes come. Pure, and bounded whatever the server sends.

Only as much is read as handlers need: status, headers, and a body's first bytes. Each byte is
looked at a fixed number of times, however the server cuts what it sends: a container must not
make the agent work longer than it worked itself.
"""

from __future__ import annotations

import re
from enum import Enum, auto

MAX_HEAD = 64 * 1024
"""Bytes of all heads of a response: the last one, and the interim ones (1xx) ahead of it."""
MAX_INTERIM = 64
"""Interim heads ahead of a response."""
MAX_CHUNK_LINE = 256
"""Bytes of the line with a chunk's size."""
MAX_CHUNK_EXCESS = 16 * 1024
"""Bytes of lines with sizes beyond 16 for each chunk and two for each byte of the body. As in Go's
net/http, where such a body is malformed too."""

_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_LONGEST_END = 4
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9][0-9])(?: [^\r\n]*)?\r?\n?")
_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}")


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
        """What came and is not taken yet, up to ``_at``: taken, and dropped when feed is over."""
        self._at = 0
        self._searched = 0
        """Where in the buffer no end of a head begins."""
        self._heads = 0
        """Bytes of interim heads."""
        self._interim = 0
        self._kind = _Body.NONE
        self._left = 0
        """Bytes of the body, or of the chunk, still to come."""
        self._after_chunk = False
        """Whether the line break after a chunk is still to come."""
        self._excess = 0

    def feed(self, data: bytes) -> None:
        """Take what came. Raises MalformedResponse."""
        if self.done:
            return
        self._buffer += data
        while not self.status and self._head():
            pass
        if self.status:
            self._take_body()
        del self._buffer[: self._at]
        self._searched = max(self._searched - self._at, 0)
        self._at = 0

    def end(self) -> None:
        """The server closed. Raises MalformedResponse: too early."""
        if self.done:
            return
        if not self.status or self._kind is not _Body.UNTIL_CLOSE:
            raise MalformedResponse("unexpected EOF" if self.status else "EOF")
        self.done = True

    def _head(self) -> bool:
        """Take the head if it has all come; whether to look again (an interim one was skipped)."""
        buffer, at = self._buffer, self._at
        most = MAX_HEAD - self._heads
        found = _END_OF_HEAD.search(buffer, max(self._searched, at), at + most)
        if found is None:
            if len(buffer) - at > most:
                raise MalformedResponse(f"server response headers exceeded {MAX_HEAD} bytes")
            if len(buffer) - at >= 7 and not buffer.startswith(b"HTTP/1.", at):
                raise _malformed(buffer[at : at + 40])
            self._searched = max(len(buffer) - _LONGEST_END + 1, at)
            return False
        head = bytes(buffer[at : found.start()])
        self._heads += found.end() - at
        self._at = self._searched = found.end()
        line, _, rest = head.partition(b"\n")
        status = _STATUS.fullmatch(line)
        if status is None:
            raise _malformed(line[:40])
        code = int(status[1])
        if 100 <= code < 200 and code != 101:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise MalformedResponse(f"more than {MAX_INTERIM} interim responses")
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
                self._keep_some(len(self._buffer) - self._at)
            case _Body.LENGTH:
                self._left -= self._keep_some(self._left)
                self.done = self.done or self._left == 0
            case _Body.CHUNKED:
                while not self.done and self._chunk():
                    pass

    def _keep_some(self, most: int) -> int:
        """Move up to ``most`` bytes to the body; how many. Enough of a body is all of it."""
        end = min(self._at + most, len(self._buffer))
        size = end - self._at
        self.body += self._buffer[self._at : min(end, self._at + self._keep - len(self.body))]
        self._at = end
        if len(self.body) >= self._keep:
            self.done = True
        return size

    def _chunk(self) -> bool:
        """Take what is there of a chunk, its size or its end; whether to go on."""
        if self._left:
            self._left -= self._keep_some(self._left)
            self._after_chunk = True
            return not self._left
        line = self._chunk_line()
        if line is None:
            return False
        if self._after_chunk:
            if line.rstrip(b"\r"):
                raise MalformedResponse("malformed chunked encoding")
            self._after_chunk = False
            return True
        size = line.split(b";", 1)[0].strip()
        if not _SIZE.fullmatch(size):
            raise MalformedResponse("malformed chunked encoding")
        self._left = int(size, 16)
        self._excess = max(self._excess + len(line) + 1 - 16 - 2 * self._left, 0)
        if self._excess > MAX_CHUNK_EXCESS:
            raise MalformedResponse("chunked encoding contains too much non-data")
        self.done = self._left == 0
        return True

    def _chunk_line(self) -> bytes | None:
        """The next line of a chunked body, without its end; None: it has not all come."""
        end = self._buffer.find(b"\n", self._at, self._at + MAX_CHUNK_LINE)
        if end < 0:
            if len(self._buffer) - self._at >= MAX_CHUNK_LINE:
                raise MalformedResponse("malformed chunked encoding")
            return None
        line = bytes(self._buffer[self._at : end])
        self._at = end + 1
        return line


def _malformed(start: bytes | bytearray) -> MalformedResponse:
    return MalformedResponse(f"malformed HTTP response {bytes(start)!r}")
