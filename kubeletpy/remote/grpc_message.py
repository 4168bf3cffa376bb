"""A unary gRPC call as one HTTP/2 request, and the reading of its response. Pure.

Compression is not offered. Source: the gRPC protocol over HTTP/2 (PROTOCOL-HTTP2.md) and its
mapping of HTTP statuses and reset codes; texts are those of gRPC in Go.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from kubeletpy.base.structs import Struct
from kubeletpy.remote.errors import Code

MAX_DETAILS = 1024
"""Characters of a server's message that are kept."""
_PREFIX = 5
"""Bytes before a message: whether it is compressed, and its length."""
_CODES = tuple(Code)
"""In gRPC's order: OK is 0."""
_BY_HTTP_STATUS = {
    400: Code.INTERNAL,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.UNIMPLEMENTED,
    429: Code.UNAVAILABLE,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.UNAVAILABLE,
}
_BY_RESET = {
    "REFUSED_STREAM": Code.UNAVAILABLE,
    "CANCEL": Code.CANCELLED,
    "ENHANCE_YOUR_CALM": Code.RESOURCE_EXHAUSTED,
    "INADEQUATE_SECURITY": Code.PERMISSION_DENIED,
}


class CallFailed(Exception):
    """A call without an answer; ``code`` is its status, ``details`` the text."""

    def __init__(self, code: Code, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details[:MAX_DETAILS]


class GrpcResponse(Struct, frozen=True):
    """A complete HTTP/2 response."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    trailers: Mapping[str, str]


def head(
    authority: str, path: str, user_agent: str, within: float, *, tls: bool = False
) -> list[tuple[bytes, bytes]]:
    """The request's head; ``within``: seconds that the server may take."""
    supplied = {
        ":method": "POST",
        ":scheme": "https" if tls else "http",
        ":path": path,
        ":authority": authority,
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": user_agent,
        "grpc-timeout": f"{min(max(int(within * 1000), 1), 99_999_999)}m",
    }
    return [(name.encode(), value.encode()) for name, value in supplied.items()]


def framed(message: bytes) -> bytes:
    """The request's body: one message, not compressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def read_message(response: GrpcResponse) -> bytes:
    """The one message of a response. Raises CallFailed."""
    trailers = response.trailers or response.headers
    kind = response.headers.get("content-type", "")
    if response.status != 200 or not _is_grpc(kind):
        code = _BY_HTTP_STATUS.get(response.status, Code.UNKNOWN)
        text = f"unexpected HTTP status code received from server: {response.status}"
        if not _is_grpc(kind):
            text += f"; transport: received unexpected content-type {kind[:100]!r}"
        raise CallFailed(code, text)
    status = trailers.get("grpc-status")
    if status is None:
        raise CallFailed(Code.INTERNAL, "server closed the stream without sending trailers")
    known = status.isascii() and status.isdigit() and len(status) < 4
    number = int(status) if known else -1
    if number != 0:
        code = _CODES[number] if 0 < number < len(_CODES) else Code.UNKNOWN
        raise CallFailed(code, unquote(trailers.get("grpc-message", ""), errors="replace"))
    return _only_message(response.body)


def reset_code(name: str) -> Code:
    """The status that the reset of a stream means."""
    return _BY_RESET.get(name, Code.INTERNAL)


def _is_grpc(kind: str) -> bool:
    rest = kind.lower().removeprefix("application/grpc")
    return kind.lower().startswith("application/grpc") and rest[:1] in ("", "+", ";")


def _only_message(body: bytes) -> bytes:
    if len(body) < _PREFIX:
        raise CallFailed(Code.INTERNAL, "received no response message")
    size = int.from_bytes(body[1:_PREFIX], "big")
    if body[0]:
        raise CallFailed(Code.UNIMPLEMENTED, "the answer is compressed, which was not offered")
    if len(body) < _PREFIX + size:
        raise CallFailed(Code.INTERNAL, "unexpected EOF in the response message")
    if len(body) > _PREFIX + size:
        raise CallFailed(Code.INTERNAL, "received more than one response message")
    return body[_PREFIX:]
