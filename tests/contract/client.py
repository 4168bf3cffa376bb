"""A client that hides nothing: status code, headers and body as the server sent them."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from kubeletpy.base.structs import replace

JSON = dict[str, Any]
ANSWER_S = 30.0
"""Timeout for an answer, in seconds."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request. ``body`` is the parsed document, or the text if it is not JSON."""

    code: int
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class Client:
    """One identity at one API server."""

    url: str
    context: ssl.SSLContext
    token: str = ""

    def as_bearer(self, token: str, authority: str) -> Client:
        """A client of the same server with a token (or without credentials when empty)."""
        return replace(self, context=trusting(authority), token=token)

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """Send one request on a connection of its own; ``body`` is JSON, or bytes as they are."""
        headers = {"Accept": accept, "Content-Type": content_type}
        connection, response = self._send(method, _target(path, query), body, headers)
        try:
            text = response.read()
        finally:
            connection.close()
        supplied = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, supplied, parsed(text))

    def follow(
        self,
        path: str,
        until: Callable[[list[JSON]], bool] = lambda _: False,
        *,
        seconds: float = ANSWER_S,
        query: Mapping[str, object] | None = None,
        accept: str = "application/json",
        begun: Callable[[], object] = lambda: None,
    ) -> tuple[int, Any]:
        """The code and events of a watch, until a condition holds, the server or time ends it.

        Args:
            begun: called when the server has accepted the watch.

        Returns:
            the events, or the refusal if the code is not 200.
        """
        requested = {"watch": "true", **(query or {})}
        headers = {"Accept": accept}
        connection, response = self._send("GET", _target(path, requested), None, headers)
        deadline = time.monotonic() + seconds
        events: list[JSON] = []
        try:
            if response.status != 200:
                return response.status, parsed(response.read())
            begun()
            while not until(events) and (left := deadline - time.monotonic()) > 0:
                if connection.sock is not None:
                    connection.sock.settimeout(left)
                line = response.readline()
                if not line:
                    break
                events.append(json.loads(line))
        except TimeoutError:
            pass
        finally:
            connection.close()
        return 200, events

    def _send(
        self, method: str, target: str, body: object, headers: dict[str, str]
    ) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        server = urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            server.hostname or "", server.port or 443, context=self.context, timeout=ANSWER_S
        )
        headers = {**headers, "User-Agent": "contract/1"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        payload = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        if payload is None:
            headers.pop("Content-Type", None)
        connection.request(method, target, payload, headers)
        return connection, connection.getresponse()


def _target(path: str, query: Mapping[str, object] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def trusting(authority: str) -> ssl.SSLContext:
    """A context that trusts one authority (PEM) and shows no certificate."""
    return ssl.create_default_context(cadata=authority)


def parsed(text: bytes) -> Any:
    """Parsed JSON, or the text if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")
