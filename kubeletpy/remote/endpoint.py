"""From the endpoint as configured to the target gRPC dials. Must never touch the socket."""

from __future__ import annotations

import os
from urllib.parse import quote, unquote

MAX_SOCKET_PATH = 107
"""Maximum bytes of a unix socket's path on Linux (sun_path without the terminating zero)."""


class EndpointError(ValueError):
    """An endpoint that can't be a CRI runtime's socket."""


def socket_path(endpoint: str) -> str:
    """The absolute path of the socket that ``endpoint`` names.

    Accepts ``unix:///run/containerd/containerd.sock``, ``unix:/run/…`` and the plain path. Raises
    EndpointError for everything else: CRI runtimes listen on unix sockets, and there is no TLS
    here that would make a network endpoint safe.
    """
    scheme, colon, rest = endpoint.partition(":")
    if endpoint.startswith("/"):
        path = endpoint
    elif colon and scheme == "unix":
        path = unquote(rest.removeprefix("//"))
    elif colon:
        raise EndpointError(
            f"container runtime endpoint {endpoint!r}: {scheme}: is not supported; "
            "give the runtime's unix socket, such as unix:///run/containerd/containerd.sock"
        )
    else:
        raise EndpointError(
            f"container runtime endpoint {endpoint!r}: give the socket's absolute path, "
            "such as unix:///run/containerd/containerd.sock"
        )
    if not path.startswith("/") or "\0" in path:
        raise EndpointError(
            f"container runtime endpoint {endpoint!r}: the socket's path must be absolute; "
            "mind the third slash of unix:///"
        )
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise EndpointError(
            f"container runtime endpoint {endpoint!r}: the path is longer than the "
            f"{MAX_SOCKET_PATH} bytes that a unix socket may have"
        )
    return path


def dial_target(endpoint: str) -> str:
    """The gRPC target of ``endpoint``. Raises EndpointError."""
    return "unix:" + quote(socket_path(endpoint), safe="/")
