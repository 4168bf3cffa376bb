"""The routes of the agent's server, the permissions that each requires, and clients' identities.

Pure. Permissions belong to the route that answers, not to the text of the path, so that no spelling
of a path is authorized as one and served as another. Source: docs/reference/server.csv: endpoint;
KEP-2862 for the fine-grained subresources.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from ssl import cert_time_to_seconds
from typing import Any
from urllib.parse import quote

from kubeletpy.base.structs import Struct

VERBS: Mapping[str, str] = {
    "GET": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
PROXY = ("proxy",)
"""Required for everything without a subresource of its own, and for what is not served."""


class Route(Struct, frozen=True):
    """An endpoint of the server.

    Attributes:
        name: of the handler that answers.
        paths: patterns of the path.
        subresources: of ``nodes``; permission on any one of them is enough.
        methods: HTTP methods; others get 405.
        debugging: refused with 405 when enableDebuggingHandlers is off, and on the read-only port.
        debugging_only: missing (404) when enableDebuggingHandlers is off.
        read_only: served on the read-only port too, without authentication.
        long_running: may last as long as the client stays connected.
    """

    name: str
    paths: tuple[str, ...]
    subresources: tuple[str, ...] = PROXY
    methods: tuple[str, ...] = ("GET",)
    debugging: bool = False
    debugging_only: bool = False
    read_only: bool = False
    long_running: bool = False
    any_method: bool = False
    """It answers each method like the first of ``methods``, as Go's plain handlers do."""

    @property
    def folder(self) -> str:
        """Returns the label in metrics: the first segment of the path, or two for metrics."""
        parts = self.paths[0].split("/")[1:]
        return "/".join(parts[:2] if parts[0] == "metrics" else parts[:1])


_POD = "/{namespace}/{pod}"
_UID = "/{namespace}/{pod}/{uid}"
_PODS = ("pods", "proxy")
_BOTH = ("GET", "POST")


def _scrape(name: str, path: str) -> Route:
    return Route(name, (path,), ("metrics",), read_only=True, any_method=True)


def _stream(name: str, *paths: str, methods: tuple[str, ...] = _BOTH) -> Route:
    return Route(name, paths, methods=methods, debugging=True, long_running=True)


ROUTES: tuple[Route, ...] = (
    Route(
        "healthz",
        ("/healthz", "/healthz/{check}"),
        ("healthz", "proxy"),
        read_only=True,
        any_method=True,
    ),
    Route("pods", ("/pods", "/pods/"), _PODS, read_only=True),
    Route("runningpods", ("/runningpods", "/runningpods/"), _PODS, debugging=True),
    Route("allocated_pods", ("/allocatedPods", "/allocatedPods/"), _PODS, debugging_only=True),
    Route(
        "allocated_pod",
        (f"/allocatedPods{_POD}", f"/allocatedPods{_UID}"),
        _PODS,
        debugging_only=True,
    ),
    Route("configz", ("/configz",), ("configz", "proxy"), debugging_only=True, any_method=True),
    Route("flagz", ("/flagz",), ("configz",), debugging_only=True, any_method=True),
    Route("statusz", ("/statusz",), ("statusz",), debugging_only=True, any_method=True),
    _scrape("metrics", "/metrics"),
    _scrape("probe_metrics", "/metrics/probes"),
    _scrape("resource_metrics", "/metrics/resource"),
    _scrape("cadvisor_metrics", "/metrics/cadvisor"),
    _scrape("sli_metrics", "/metrics/slis"),
    Route("stats_summary", ("/stats/summary",), ("stats",), read_only=True),
    Route("explain", ("/explain", f"/explain{_POD}"), ("explain", "proxy"), debugging_only=True),
    _stream("container_logs", f"/containerLogs{_POD}/{{container}}", methods=("GET",)),
    _stream("exec", f"/exec{_POD}/{{container}}", f"/exec{_UID}/{{container}}"),
    _stream("attach", f"/attach{_POD}/{{container}}", f"/attach{_UID}/{{container}}"),
    _stream("port_forward", f"/portForward{_POD}", f"/portForward{_UID}"),
    _stream("run", f"/run{_POD}/{{container}}", f"/run{_UID}/{{container}}", methods=("POST",)),
    Route(
        "checkpoint",
        (f"/checkpoint{_POD}/{{container}}",),
        ("checkpoint",),
        ("POST",),
        debugging_only=True,
        long_running=True,
    ),
    Route("logs", ("/logs", "/logs/{path:.*}"), ("log",), debugging=True, long_running=True),
    _stream("pprof", "/debug/pprof/{profile:.*}", methods=("GET",)),
    Route("log_level", ("/debug/flags/v",), methods=("PUT",), debugging_only=True),
)


def verb_of(method: str) -> str:
    """Return the API's verb for an HTTP method, or "" if it has none."""
    return VERBS.get(method, "")


def refusal(user: str, verb: str, subresources: tuple[str, ...]) -> str:
    """Return the text of a 403, as the kubelet phrases it."""
    listed = " ".join(subresources)
    return f"Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{listed}])"


def canonical(path: str) -> str:
    """Return the path to which Go's multiplexer redirects: no doubled slash, no ``.`` or ``..``.

    ``path`` is as it was received: an escaped slash or dot is a character of a name. The answer
    begins with one slash, so it can only lead to this server. A non-path (``*``) is unchanged.
    """
    if not path.startswith("/"):
        return path
    made = posixpath.normpath("/" + path.lstrip("/"))
    if path.endswith(("/", "/.", "/..")) and made != "/":
        made += "/"
    return path if made == path else quote(made, safe="/%:@!$&'()*+,;=~")


AUTHENTICATED = "system:authenticated"


class Identity(Struct, frozen=True):
    """An authenticated client, or the anonymous one."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS = Identity("system:anonymous", ("system:unauthenticated",))


def identity_from_certificate(certificate: Mapping[str, Any] | None, now: float) -> Identity | None:
    """Return the identity in a client certificate (common name, organizations), or None.

    Args:
        certificate: a verified one, as ``ssl.SSLSocket.getpeercert`` returns it.
        now: Unix seconds; a connection may outlive the certificate that it started with.
    """
    if not certificate or cert_time_to_seconds(certificate["notAfter"]) < now:
        return None
    user, groups = "", []
    for names in certificate.get("subject", ()):
        for key, value in names:
            if key == "commonName":
                user = value
            elif key == "organizationName":
                groups.append(value)
    return Identity(user, _authenticated(groups)) if user else None


def identity_from_review(user: Mapping[str, Any]) -> Identity | None:
    """Return the user of a TokenReview's status, or None if it has no name."""
    name = str(user.get("username") or "")
    if not name:
        return None
    extra = tuple(
        (str(key), tuple(str(value) for value in values or ()))
        for key, values in sorted((user.get("extra") or {}).items())
    )
    groups = [str(group) for group in user.get("groups") or ()]
    return Identity(name, _authenticated(groups), str(user.get("uid") or ""), extra)


def _authenticated(groups: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*groups, AUTHENTICATED]))


class ServerError(Exception):
    """Raised if the server can't serve; the text states the setting and the remedy."""
