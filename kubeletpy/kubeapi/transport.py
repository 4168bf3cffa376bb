"""Carries requests to an API server: one interface for HTTP/1.1 and HTTP/2.

Neither retries, and neither interprets a status. Must never put a header or a body into an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.usage import Usage

MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""Bytes of a response that is read as a whole; a page of a list holds 500 objects."""


class TransportError(Exception):
    """There is no response, or it broke off; the message contains the reason."""


def why(error: BaseException) -> str:
    """The message of an error; its type for one without."""
    return str(error) or type(error).__name__


class NotHttp2(TransportError):
    """Nothing was sent: the server has chosen HTTP/1.1."""


class Attempt(Struct, frozen=True):
    """One attempt of a request; its text has no header and no body, which may be secret.

    Attributes:
        path: path and query, percent-encoded.
        seconds: from now to the end of the body.
        connect_seconds: for a new connection.
        lasting: a watch.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    data: bytes | None
    seconds: float
    connect_seconds: float
    lasting: bool

    def __repr__(self) -> str:
        return f"{self.method} {self.path}"


class Response(Protocol):
    """A response whose head has arrived. Close it when done; closing it twice is harmless."""

    @property
    def status(self) -> int:
        """The HTTP status code."""
        ...

    @property
    def content_length(self) -> int | None:
        """Bytes of the body as the server announced them; None if it did not."""
        ...

    def header(self, name: str) -> str:
        """A header's value, or an empty string; ``name`` in lower case."""
        ...

    async def read(self, limit: int = MAX_ANSWER_BYTES) -> bytes:
        """The whole body, decompressed, at most ``limit`` bytes.

        Raises:
            TransportError: it breaks off, or is longer.
        """
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, decompressed. Raises TransportError when it breaks off."""
        ...

    def close(self) -> None:
        """Drop what has not been read."""
        ...


class Transport(Protocol):
    """The connections to one server with one set of credentials."""

    async def request(self, attempt: Attempt) -> Response:
        """Wait for the response's head. Raises TransportError: there is no response."""
        ...

    @property
    def watch_capacity(self) -> int:
        """Watches of pods' objects that it carries at once; changes with the server's settings."""
        ...

    @property
    def usage(self) -> Usage:
        """The current load of its connections; which streams are watches is left to others."""
        ...

    @property
    def idle(self) -> bool:
        """Whether no response is being read or waited for."""
        ...

    def retire(self) -> None:
        """Take no more requests, and close each connection when its last response has ended."""
        ...

    async def close(self) -> None:
        """Drop all connections; whoever still reads a response gets an error."""
        ...
