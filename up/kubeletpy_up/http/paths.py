"""Parsing of request paths into resource, object and subresource.

Pure. A path that names nothing we serve yields None: the caller answers 404.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from kubeletpy_up.resources import ResourceInfo, find_in_group

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class Route:
    """A resource path. ``namespace`` None is all namespaces, or a cluster-wide resource."""

    info: ResourceInfo
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    watch: bool = False


def split(raw_path: str) -> list[str]:
    """The path's parts, unquoted one by one; empty parts are dropped."""
    return [unquote(part) for part in raw_path.split("/") if part]


def parse(parts: list[str]) -> Route | None:
    """Read the parts of a resource path, or None."""
    if len(parts) >= 3 and parts[0] == "api":
        return _resource("", parts[1], parts[2:])
    if len(parts) >= 4 and parts[0] == "apis":
        return _resource(parts[1], parts[2], parts[3:])
    return None


def _goes_on(info: ResourceInfo, subresource: str) -> bool:
    """Whether a path of the node's own server follows the subresource."""
    return subresource == "proxy" and info.is_proxied(subresource)


def _resource(group: str, version: str, rest: list[str]) -> Route | None:
    watch = rest[0] == "watch"
    if watch:
        rest = rest[1:]
    namespace: str | None = None
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    info = find_in_group(group, version, rest[0]) if rest else None
    if info is None or (len(rest) > 3 and not _goes_on(info, rest[2])):
        return None
    if namespace is not None and not info.namespaced:
        return None
    name = rest[1] if len(rest) > 1 else ""
    if name and info.namespaced and namespace is None:
        return None
    return Route(info, namespace, name, rest[2] if len(rest) > 2 else "", watch)
