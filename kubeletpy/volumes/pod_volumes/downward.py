"""The values of downwardAPI files: those of environment variables, and whole maps too.

Pure. Source: docs/reference/behaviour.md, i4; KEP-368.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.pods.environment import DownwardError, NodeFacts, field_value, resource_value
from kubeletpy.pods.pod import Pod

_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


class Renderer:
    """Renders the items of one source; maps and texts that many items share are rendered once."""

    def __init__(self, pod: Pod, facts: NodeFacts) -> None:
        self._pod = pod
        self._facts = facts
        self._known: dict[str, bytes] = {}

    def item(self, item: Mapping[str, Any]) -> bytes:
        """The content of one file. Raises DownwardError."""
        path = (item.get("fieldRef") or {}).get("fieldPath") or ""
        known = self._known.get(path)
        if known is not None:
            return known
        data = item_value(item, self._pod, self._facts).encode("utf-8", "surrogatepass")
        if path:
            self._known[path] = data
        return data


def item_value(item: Mapping[str, Any], pod: Pod, facts: NodeFacts) -> str:
    """The content of one file.

    Raises:
        DownwardError: its reference cannot be resolved.
    """
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        path = field.get("fieldPath")
        if path == "metadata.labels":
            return format_map(pod.labels)
        if path == "metadata.annotations":
            return format_map(pod.annotations)
        return field_value(cast(api.ObjectFieldSelector, field), pod, facts)
    if resource is not None:
        if not resource.get("containerName"):
            raise DownwardError("resourceFieldRef of a volume: containerName is missing")
        selector = cast(api.ResourceFieldSelector, resource)
        return resource_value(selector, pod, next(iter(pod.containers)), facts)
    raise DownwardError(f"downwardAPI item {item.get('path')!r} has neither field nor resource")


def format_map(values: Mapping[str, str]) -> str:
    """``key="value"`` lines, sorted by key, values quoted as Go writes strings."""
    return "\n".join(f"{key}={quoted(values[key])}" for key in sorted(values))


def quoted(text: str) -> str:
    """A double-quoted Go string literal: printable characters stay as they are."""
    if not (text.isprintable() and "\\" not in text and '"' not in text):
        text = "".join(map(_escaped, text))
    return f'"{text}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\U{code:08x}" if code >> 16 else f"\\u{code:04x}"
