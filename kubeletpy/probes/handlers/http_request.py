"""Turns an httpGet action into the bytes of its request. Pure.

Nothing that a pod's author writes can end a line: such values are refused or encoded. Source:
docs/reference/behaviour.md, m3; docs/reference/names.csv: prober.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote, urljoin, urlsplit

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, replace
from kubeletpy.probes.handlers.outcome import HandlerError
from kubeletpy.probes.handlers.ports import host_port, resolve_port

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
        """For messages."""
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{host_port(self.host, self.port)}{self.target}"

    def encoded(self) -> bytes:
        """The request as sent. Raises BadRequest."""
        host, headers = self._checked()
        lines = [f"GET {self.target} HTTP/1.1", f"Host: {host}"]
        lines += [f"{name}: {value}" for name, value in headers]
        lines += ["Connection: close", "", ""]
        return "\r\n".join(lines).encode("utf-8", "replace")

    def http2_head(self) -> list[tuple[bytes, bytes]]:
        """The request's headers as HTTP/2 sends them. Those of a connection, which HTTP/2 does not
        have (RFC 9113, 8.2.2), are left out. Raises BadRequest."""
        host, headers = self._checked()
        head = [(":method", "GET"), (":scheme", "https" if self.tls else "http")]
        head += [(":authority", host), (":path", self.target)]
        lower = [(name.lower(), value) for name, value in headers]
        head += [(name, value) for name, value in lower if name not in _OF_CONNECTIONS]
        return [(name.encode("ascii"), value.encode("utf-8", "replace")) for name, value in head]

    def _checked(self) -> tuple[str, list[tuple[str, str]]]:
        """The Host header and the others. Raises BadRequest."""
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
    action: api.HTTPGetAction,
    ports: Iterable[api.ContainerPort],
    pod_ip: str,
    agent: str,
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
    """The request that follows a redirect; None: it leads to another host. Raises BadRequest."""
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
    wanted: Iterable[Mapping[str, object]], agent: str
) -> tuple[list[tuple[str, str]], str]:
    """Headers to send, and the Host header; our own are omitted if empty."""
    given = [(str(each.get("name") or ""), str(each.get("value") or "")) for each in wanted]
    names = {name.lower() for name, _ in given}
    first = {name.lower(): value for name, value in reversed(given)}
    headers = [
        (name, value)
        for name, value in given
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
