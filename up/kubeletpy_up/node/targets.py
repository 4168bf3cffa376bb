"""Targets on the node's own server for logs, streams and nodes/proxy. Pure.

Source: docs/reference/server.csv: endpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from urllib.parse import quote, urlencode

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy_up import errors

_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_LOG_FLAGS = ("follow", "previous", "timestamps")
_LOG_VALUES = ("sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream")
_STREAMS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
_PATHS = {"log": "containerLogs", "exec": "exec", "attach": "attach", "portforward": "portForward"}
Query = list[tuple[str, str]]


class NodeAddress(Struct, frozen=True):
    """Where a server of a node listens.

    Attributes:
        name: of the node.
        scheme: ``https`` or ``http``.
        is_agent: the node's own server, which is identified by its certificate; else another
            server on the same machine, which nothing vouches for.
    """

    host: str
    port: int
    name: str
    scheme: str = "https"
    is_agent: bool = True

    @property
    def base(self) -> str:
        """The URL without a path: ``SCHEME://HOST:PORT``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class ProxiedNode(Struct, frozen=True):
    """The name in a request for nodes/proxy: ``NAME``, ``NAME:PORT`` or ``SCHEME:NAME:PORT``."""

    name: str
    port: str = ""
    scheme: str = ""

    @classmethod
    def read(cls, text: str) -> ProxiedNode:
        """Parse such a name. Raises ApiError 400: it has another form."""
        parts = text.split(":")
        scheme = parts.pop(0) if len(parts) == 3 else ""
        if len(parts) > 2 or not parts[0] or scheme not in ("", "http", "https"):
            raise errors.bad_request(f'invalid node request "{text}"')
        return cls(parts[0], parts[1] if len(parts) == 2 else "", scheme)

    def address(self, node: JSON) -> NodeAddress:
        """The requested server; without a port, the node's own.

        Raises:
            ApiError: 503, the node has not reported its address, or that is no port.
        """
        own = node_address(node)
        if self.port in ("", str(own.port)):
            return own
        port = int(self.port) if self.port.isdecimal() and len(self.port) <= 5 else 0
        if not 0 < port < 1 << 16:
            raise errors.unavailable(f"error trying to reach service: {self.port}: unknown port")
        return NodeAddress(own.host, port, own.name, self.scheme or "http", is_agent=False)


def may_be_requested(address: str) -> bool:
    """Whether the API may connect to an IP address that a node reported as its own.

    A node must not name the API's own machine or link-local services.
    """
    found = ip_address(address.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    meant = mapped or found
    return not (
        meant.is_unspecified
        or meant.is_loopback
        or meant.is_multicast
        or meant.is_link_local
        or str(meant) == "255.255.255.255"
    )


def node_address(node: JSON) -> NodeAddress:
    """The reported address of a node's server. Raises ApiError 503: there is none, or no port."""
    name, status = node["metadata"]["name"], node.get("status") or {}
    endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    addresses: dict[str, str] = {}
    for each in status.get("addresses") or ():
        addresses.setdefault(each.get("type"), each.get("address"))
    for kind in ("InternalIP", "Hostname"):
        if addresses.get(kind):
            if not endpoint.get("Port"):
                raise errors.unavailable(f'node "{name}" has no server: it reports no port')
            return NodeAddress(addresses[kind], int(endpoint["Port"]), name)
    raise errors.unavailable(f'node "{name}" has not reported its address yet')


def pod_target(pod: JSON, subresource: str, query: Iterable[tuple[str, str]]) -> str:
    """Path and query on the node's server. Raises ApiError 400: container unknown or ambiguous."""
    supplied = list(query)
    about = pod["metadata"]
    parts = [about.get("namespace", ""), about["name"]]
    requested: Query = []
    if subresource == "portforward":
        requested = [("port", value) for key, value in supplied if key == "ports"]
    else:
        first: dict[str, str] = {}
        for key, value in supplied:
            first.setdefault(key, value)
        parts.append(container_name(pod, first.get("container", "")))
        if subresource == "log":
            requested = [(key, "true") for key in _LOG_FLAGS if first.get(key) in _TRUE]
            requested += [(key, first[key]) for key in _LOG_VALUES if first.get(key)]
        else:
            requested = [(_STREAMS[key], "1") for key in _STREAMS if first.get(key) in _TRUE]
            requested += [pair for pair in supplied if pair[0] == "command"]
    path = "/".join((_PATHS[subresource], *(quote(part, safe="") for part in parts)))
    return f"/{path}" + (f"?{urlencode(requested)}" if requested else "")


def container_name(pod: JSON, desired: str) -> str:
    """The requested container. Raises ApiError 400."""
    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    regular, init, ephemeral = (
        [container["name"] for container in spec.get(field) or ()]
        for field in ("containers", "initContainers", "ephemeralContainers")
    )
    if desired:
        if desired not in (*regular, *init, *ephemeral):
            raise errors.bad_request(f"container {desired} is not valid for pod {name}")
        return desired
    if len(regular) == 1:
        return str(regular[0])
    text = (
        f"a container name must be specified for pod {name}, choose one of: [{' '.join(regular)}]"
    )
    if init:
        text += f" or one of the init containers: [{' '.join(init)}]"
    raise errors.bad_request(text)
