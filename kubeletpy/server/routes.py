"""The routes of the agent's server, and the permissions that each requires.

Pure. Permissions belong to the route that answers, not to the text of the path, so that no spelling
of a path is authorized as one and served as another. Source: docs/reference/server.csv: endpoint;
KEP-2862 for the fine-grained subresources.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from urllib.parse import quote

from kubeletpy.structs import Struct

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
    """One endpoint.

    Attributes:
        name: which handler answers.
        paths: patterns of the path.
        methods: HTTP methods; others get 405.
        subresources: of ``nodes``; permission on any one of them is enough.
        debugging: refused with 405 when enableDebuggingHandlers is off, and on the read-only port.
        debugging_only: missing (404) when enableDebuggingHandlers is off.
        read_only: served on the read-only port too, without authentication.
        long_running: may last as long as the client stays connected.
    """

    name: str
    paths: tuple[str, ...]
    methods: tuple[str, ...]
    subresources: tuple[str, ...] = PROXY
    debugging: bool = False
    debugging_only: bool = False
    read_only: bool = False
    long_running: bool = False
    any_method: bool = False
    """Answers every method like the first of ``methods``, as Go's plain handlers do."""

    @property
    def folder(self) -> str:
        """The first segment of its path, for metrics the first two: how requests are counted."""
        parts = self.paths[0].split("/")[1:]
        return "/".join(parts[:2] if parts[0] == "metrics" else parts[:1])


_POD = "/{namespace}/{pod}"
_UID = "/{namespace}/{pod}/{uid}"
_BOTH = ("GET", "POST")

ROUTES: tuple[Route, ...] = (
    Route(
        "healthz",
        ("/healthz", "/healthz/{check}"),
        ("GET",),
        ("healthz", "proxy"),
        read_only=True,
        any_method=True,
    ),
    Route("pods", ("/pods", "/pods/"), ("GET",), ("pods", "proxy"), read_only=True),
    Route(
        "runningpods",
        ("/runningpods", "/runningpods/"),
        ("GET",),
        ("pods", "proxy"),
        debugging=True,
    ),
    Route(
        "allocated_pods",
        ("/allocatedPods", "/allocatedPods/"),
        ("GET",),
        ("pods", "proxy"),
        debugging_only=True,
    ),
    Route(
        "allocated_pod",
        (f"/allocatedPods{_POD}", f"/allocatedPods{_UID}"),
        ("GET",),
        ("pods", "proxy"),
        debugging_only=True,
    ),
    Route(
        "configz",
        ("/configz",),
        ("GET",),
        ("configz", "proxy"),
        debugging_only=True,
        any_method=True,
    ),
    Route("flagz", ("/flagz",), ("GET",), ("configz",), debugging_only=True, any_method=True),
    Route("statusz", ("/statusz",), ("GET",), ("statusz",), debugging_only=True, any_method=True),
    Route("metrics", ("/metrics",), ("GET",), ("metrics",), read_only=True, any_method=True),
    Route(
        "probe_metrics",
        ("/metrics/probes",),
        ("GET",),
        ("metrics",),
        read_only=True,
        any_method=True,
    ),
    Route(
        "resource_metrics",
        ("/metrics/resource",),
        ("GET",),
        ("metrics",),
        read_only=True,
        any_method=True,
    ),
    Route(
        "cadvisor_metrics",
        ("/metrics/cadvisor",),
        ("GET",),
        ("metrics",),
        read_only=True,
        any_method=True,
    ),
    Route(
        "sli_metrics", ("/metrics/slis",), ("GET",), ("metrics",), read_only=True, any_method=True
    ),
    Route("stats_summary", ("/stats/summary",), ("GET",), ("stats",), read_only=True),
    Route(
        "explain",
        ("/explain", f"/explain{_POD}"),
        ("GET",),
        ("explain", "proxy"),
        debugging_only=True,
    ),
    Route(
        "container_logs",
        (f"/containerLogs{_POD}/{{container}}",),
        ("GET",),
        debugging=True,
        long_running=True,
    ),
    Route(
        "exec",
        (f"/exec{_POD}/{{container}}", f"/exec{_UID}/{{container}}"),
        _BOTH,
        debugging=True,
        long_running=True,
    ),
    Route(
        "attach",
        (f"/attach{_POD}/{{container}}", f"/attach{_UID}/{{container}}"),
        _BOTH,
        debugging=True,
        long_running=True,
    ),
    Route(
        "port_forward",
        (f"/portForward{_POD}", f"/portForward{_UID}"),
        _BOTH,
        debugging=True,
        long_running=True,
    ),
    Route(
        "run",
        (f"/run{_POD}/{{container}}", f"/run{_UID}/{{container}}"),
        ("POST",),
        debugging=True,
        long_running=True,
    ),
    Route(
        "checkpoint",
        (f"/checkpoint{_POD}/{{container}}",),
        ("POST",),
        ("checkpoint",),
        debugging_only=True,
        long_running=True,
    ),
    Route(
        "logs",
        ("/logs", "/logs/{path:.*}"),
        ("GET",),
        ("log",),
        debugging=True,
        long_running=True,
    ),
    Route(
        "pprof",
        ("/debug/pprof/{profile:.*}",),
        ("GET",),
        debugging=True,
        long_running=True,
    ),
    Route("log_level", ("/debug/flags/v",), ("PUT",), debugging_only=True),
)


def verb_of(method: str) -> str:
    """The API's verb for an HTTP method; empty for methods that have none."""
    return VERBS.get(method, "")


def refusal(user: str, verb: str, subresources: tuple[str, ...]) -> str:
    """The text of a 403, as the kubelet words it."""
    listed = " ".join(subresources)
    return f"Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{listed}])"


def canonical(path: str) -> str:
    """Where Go's multiplexer sends a client: no doubled slash, no ``.`` or ``..``.

    ``path`` is as it was received: an escaped slash or dot is a character of a name. The answer
    begins with one slash, so it can only lead to this server. A non-path (``*``) is unchanged.
    """
    if not path.startswith("/"):
        return path
    made = posixpath.normpath("/" + path.lstrip("/"))
    if path.endswith(("/", "/.", "/..")) and made != "/":
        made += "/"
    return path if made == path else quote(made, safe="/%:@!$&'()*+,;=~")
