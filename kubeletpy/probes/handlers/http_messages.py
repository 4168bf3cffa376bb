"""The HTTP/1 messages of httpGet: bytes of a request, and a parser of responses. Pure.

Nothing that a pod's author writes can end a line: such values are refused or encoded. Source:
docs/reference/behaviour.md, m3; docs/reference/names.csv: prober.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from urllib.parse import quote, unquote, urljoin, urlsplit

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Component, Struct, replace
from kubeletpy.probes.handlers.outcome import HandlerError, host_port, resolve_port

_OURS = frozenset({"host", "connection", "content-length", "transfer-encoding", "trailer"})
_OF_CONNECTIONS = frozenset({"keep-alive", "proxy-connection", "te", "upgrade"})
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BAD_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BAD_HOST = re.compile(r"[\x00-\x20\x7f/?#@\\]")
_PATH_SAFE = "/%:@!$&'()*+,;=~-._[]|"
_LOOSE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class BadHandlerRequest(ValueError):
    """The action defines a request that cannot be sent."""


class HttpRequest(Struct, frozen=True):
    """A GET request, ready to be sent."""

    tls: bool
    host: str
    """Where to connect: a name or an address."""
    port: int
    target: str
    """Path and query, encoded."""
    headers: tuple[tuple[str, str], ...]
    """All except Host and Connection."""
    host_header: str = ""
    """The action's Host header; empty: host and port."""

    @property
    def url(self) -> str:
        """The URL of the request, as messages name it."""
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{host_port(self.host, self.port)}{self.target}"

    def encoded(self) -> bytes:
        """Return the request as sent. Raises BadHandlerRequest."""
        host, headers = self._checked()
        lines = [f"GET {self.target} HTTP/1.1", f"Host: {host}"]
        lines += [f"{name}: {value}" for name, value in headers]
        lines += ["Connection: close", "", ""]
        return "\r\n".join(lines).encode("utf-8", "replace")

    def http2_head(self) -> list[tuple[bytes, bytes]]:
        """Return the request's headers as HTTP/2 sends them. Raises BadHandlerRequest.

        Those of a connection, which HTTP/2 does not have (RFC 9113, 8.2.2), are left out.
        """
        host, headers = self._checked()
        head = [(":method", "GET"), (":scheme", "https" if self.tls else "http")]
        head += [(":authority", host), (":path", self.target)]
        lower = [(name.lower(), value) for name, value in headers]
        head += [(name, value) for name, value in lower if name not in _OF_CONNECTIONS]
        return [(name.encode("ascii"), value.encode("utf-8", "replace")) for name, value in head]

    def _checked(self) -> tuple[str, list[tuple[str, str]]]:
        """Return the Host header and the others. Raises BadHandlerRequest."""
        host = self.host_header or host_port(self.host, self.port)
        if _BAD_HOST.search(host):
            raise BadHandlerRequest("invalid Host header")
        for name, value in self.headers:
            if not _NAME.fullmatch(name):
                raise BadHandlerRequest(f"invalid header field name {name[:63]!r}")
            if _BAD_VALUE.search(value):
                raise BadHandlerRequest(f'invalid header field value for "{name}"')
        return host, [(name, value.strip()) for name, value in self.headers]


def request_for(
    action: api.HTTPGetAction, ports: Iterable[api.ContainerPort], pod_ip: str, agent: str
) -> HttpRequest:
    """The request of an action; ``agent`` is the User-Agent unless the action has one.

    Raises:
        HandlerError: the port is not known, or the scheme.
    """
    scheme = str(action.get("scheme") or "http").lower()
    if scheme not in ("http", "https"):
        raise HandlerError(f'unsupported protocol scheme "{scheme:.63}"')
    host = str(action.get("host") or "") or pod_ip
    port = resolve_port(action.get("port"), ports)
    headers, host_header = _headers(action.get("httpHeaders") or (), agent)
    return HttpRequest(
        scheme == "https",
        host,
        port,
        _target(str(action.get("path") or "")),
        tuple(headers),
        host_header,
    )


def redirected(request: HttpRequest, location: str) -> HttpRequest | None:
    """Return the request that follows a redirect, or None if it leads to another host.

    Raises BadHandlerRequest.
    """
    try:
        new = urlsplit(urljoin(request.url, location.strip()))
        scheme, host, port = new.scheme.lower(), new.hostname or "", new.port
    except ValueError as error:
        raise BadHandlerRequest(f"failed to parse Location header {location[:200]!r}") from error
    if host != request.host.lower():
        return None
    if scheme not in ("http", "https"):
        raise BadHandlerRequest(f'unsupported protocol scheme "{scheme[:63]}"')
    tls = scheme == "https"
    absolute = bool(urlsplit(location.strip()).netloc)
    return replace(
        request,
        tls=tls,
        port=port or (443 if tls else 80),
        target=_encode(new.path, new.query),
        host_header="" if absolute else request.host_header,
    )


def _headers(
    desired: Iterable[Mapping[str, object]], agent: str
) -> tuple[list[tuple[str, str]], str]:
    """Headers to send, and the Host header; our own are omitted if empty."""
    supplied = [(str(each.get("name") or ""), str(each.get("value") or "")) for each in desired]
    names = {name.lower() for name, _ in supplied}
    first = {name.lower(): value for name, value in reversed(supplied)}
    headers = [
        (name, value)
        for name, value in supplied
        if name.lower() not in _OURS
        and not (name.lower() in ("user-agent", "accept") and not first[name.lower()])
    ]
    if "user-agent" not in names:
        headers.append(("User-Agent", agent))
    if "accept" not in names:
        headers.append(("Accept", "*/*"))
    return headers, first.get("host", "")


def _target(path: str) -> str:
    """Path and query of a request from an action's path, which may hold anything."""
    try:
        parts = urlsplit(path)
    except ValueError:
        return _encode(path, "")
    return _encode(parts.path, parts.query)


def _encode(path: str, query: str) -> str:
    path = path if path.startswith("/") else f"/{path}"
    if _LOOSE_PERCENT.search(path):
        path = unquote(path).replace("%", "%25")
    encoded = quote(path, safe=_PATH_SAFE, errors="replace")
    if query:
        encoded += "?" + quote(query, safe=_PATH_SAFE + '?{}"`^<>', errors="replace")
    return encoded


# Responses

MAX_HEAD = 64 * 1024
"""Maximum bytes of all heads of a response: the final one and interim ones (1xx) before it."""
MAX_INTERIM = 64
"""Maximum interim heads before a response."""
MAX_CHUNK_LINE = 256
"""Maximum bytes of the line with a chunk's size."""
MAX_CHUNK_EXCESS = 16 * 1024
"""Maximum bytes of chunk size lines, beyond 16 per chunk and two per byte of the body. A body with
more is malformed, as in Go's net/http."""
MAX_CHUNKS = 256
"""Chunks after which a body counts as complete: its status decides, and the rest of its text is
omitted. A chunk of one byte costs as much time as one of a kilobyte."""

_ENDS_OF_HEAD = (b"\n\n", b"\n\r\n")
_UNSEARCHED = 2
"""Last bytes of a buffer in which an end of a head may have begun: the longest has one more."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9][0-9])(?: [^\r\n]*)?\r?\n?")
_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}")


class MalformedResponse(ValueError):
    """The input is not an HTTP/1 response; the message contains the reason."""


class _Body(Enum):
    NONE = auto()
    LENGTH = auto()
    CHUNKED = auto()
    UNTIL_CLOSE = auto()


class ResponseReader(Component):
    """Parses an HTTP/1 response incrementally, bounded whatever the server sends.

    It reads only what handlers need: status, a few headers, and the body's first bytes, and takes
    bytes until ``done``. Each byte is examined a fixed number of times, however the server splits
    what it sends. The work per response is bounded as well: lines of a head are searched, not
    split, and of a chunked body at most MAX_CHUNKS chunks are read.

    Attributes:
        status: 0 until the head has arrived.
        body: at most ``keep`` bytes of it.
        done: nothing more is needed, though the server may send more.
    """

    keep: int
    needs_body: Callable[[ResponseReader], bool] = lambda _: True
    """Called once the head has arrived; its errors leave :meth:`feed`."""

    def __post_init__(self) -> None:
        self.status = 0
        self.body = bytearray()
        self.done = False
        self._lines = b""
        """The header lines, each after a newline."""
        self._names = b""
        """The same in lower case: a name is found where it stands here."""
        self._buffer = bytearray()
        """Received bytes; those before ``_at`` are consumed, and dropped at the end of feed."""
        self._at = 0
        self._searched = 0
        """Up to here the buffer contains no end of a head."""
        self._heads = 0
        """Bytes of interim heads so far."""
        self._interim = 0
        self._kind = _Body.NONE
        self._left = 0
        """Bytes of the body or chunk still to come."""
        self._after_chunk = False
        """Whether the line break after a chunk is still to come."""
        self._excess = 0
        self._chunks = 0

    def header(self, name: str) -> str | None:
        """The first header with that name (lower case), without surrounding blanks."""
        sought = b"\n%s:" % name.encode()
        at = self._names.find(sought)
        if at < 0:
            return None
        value = self._lines[at + len(sought) :].partition(b"\n")[0]
        return value.strip().decode("latin-1")

    def feed(self, data: bytes | memoryview) -> None:
        """Process received bytes. Raises MalformedResponse."""
        if self.done:
            return
        self._buffer += data
        while not self.status and self._head():
            pass
        if self.status:
            self._take_body()
        del self._buffer[: self._at]
        self._searched -= self._at
        self._at = 0

    def end(self) -> None:
        """The server closed. Raises MalformedResponse if that was too early."""
        if self.done:
            return
        if self._kind is not _Body.UNTIL_CLOSE:
            raise MalformedResponse("unexpected EOF" if self.status else "EOF")
        self.done = True

    def _head(self) -> bool:
        """Take the next head once complete; whether it was."""
        buffer, at = self._buffer, self._at
        most = MAX_HEAD - self._heads
        start, end = self._end_of_head(at + most)
        if start < 0:
            if len(buffer) - at > most:
                raise MalformedResponse(f"server response headers exceeded {MAX_HEAD} bytes")
            if len(buffer) - at >= 7 and not buffer.startswith(b"HTTP/1.", at):
                raise _malformed(buffer[at : at + 40])
            self._searched = max(len(buffer) - _UNSEARCHED, at)
            return False
        head = bytes(buffer[at:start]).removesuffix(b"\r")
        self._heads += end - at
        self._at = self._searched = end
        line = head.partition(b"\n")[0]
        status = _STATUS.fullmatch(line)
        if status is None:
            raise _malformed(line[:40])
        code = int(status[1])
        if code < 200 and code != 101:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise MalformedResponse(f"more than {MAX_INTERIM} interim responses")
        else:
            self._lines, self._names = head, head.lower()
            self.status = code
            self._kind = self._body_kind() if self.needs_body(self) else _Body.NONE
        return True

    def _end_of_head(self, limit: int) -> tuple[int, int]:
        """Where the first empty line begins and ends; a negative number where there is none."""
        found = (-1, -1)
        for each in _ENDS_OF_HEAD:
            at = self._buffer.find(each, self._searched, limit)
            if at >= 0:
                found = at, at + len(each)
                limit = at + 1
        return found

    def _body_kind(self) -> _Body:
        if self.status in (101, 204, 304):
            return _Body.NONE
        if "chunked" in (self.header("transfer-encoding") or "").lower():
            return _Body.CHUNKED
        length = self.header("content-length")
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
                while not self.done and self._chunk():
                    pass

    def _keep_some(self, most: int) -> int:
        """Move up to ``most`` bytes to the body; how many. Enough of a body counts as all."""
        end = min(self._at + most, len(self._buffer))
        size = end - self._at
        self.body += self._buffer[self._at : min(end, self._at + self.keep - len(self.body))]
        self._at = end
        if len(self.body) >= self.keep:
            self.done = True
        return size

    def _chunk(self) -> bool:
        """Take what has arrived of a chunk, its size or its end; returns whether to go on."""
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
        size = line.partition(b";")[0].strip()
        if not _SIZE.fullmatch(size):
            raise MalformedResponse("malformed chunked encoding")
        self._left = int(size, 16)
        self._excess = max(self._excess + len(line) + 1 - 16 - 2 * self._left, 0)
        if self._excess > MAX_CHUNK_EXCESS:
            raise MalformedResponse("chunked encoding contains too much non-data")
        self._chunks += 1
        self.done = self._left == 0 or self._chunks > MAX_CHUNKS
        return True

    def _chunk_line(self) -> bytes | None:
        """The next line of a chunked body, without its line break; None: incomplete."""
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
