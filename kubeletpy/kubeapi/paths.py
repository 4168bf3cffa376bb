"""Paths of the Kubernetes API. Pure. Names that could escape to another path are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from kubeletpy.kubeapi.errors import BadRequest

if TYPE_CHECKING:
    from kubeletpy.kubeapi.protocol import Resource


def resource_path(
    resource: Resource, namespace: str | None = None, name: str | None = None, subresource: str = ""
) -> str:
    """The path of a collection (``name`` None) or of an object.

    Raises:
        BadRequest: a name or namespace cannot be part of a path, or a name comes without a
            namespace.
    """
    parts = ["apis", resource.group] if resource.group else ["api"]
    parts.append(resource.version)
    if resource.namespaced and namespace is not None:
        parts += ["namespaces", _segment(namespace, "namespace")]
    elif resource.namespaced and name is not None:
        raise BadRequest(f"{resource.plural} {name!r}: a namespace is needed")
    parts.append(resource.plural)
    if name is not None:
        parts.append(_segment(name, f"name of {resource.plural}"))
    if subresource:
        parts.append(subresource)
    return "/" + "/".join(parts)


def _segment(text: str, what: str) -> str:
    if text in ("", ".", "..") or "/" in text or "%" in text:
        raise BadRequest(f"{text!r} cannot be a {what}")
    return quote(text, safe="")
