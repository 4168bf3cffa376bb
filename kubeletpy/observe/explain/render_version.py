"""The Kubernetes version of a node and of its API server, as text. Pure; works on the socket's
JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeletpy.observe.explain.texts import one_line


def version(found: Mapping[str, Any] | None) -> str:
    """A paragraph of a node's explanation; empty when the agent does not report it."""
    if found is None:
        return ""
    server = one_line(found["server"]) if found["server"] else "unknown"
    lines = [f"runs as {one_line(found['running'])}: {one_line(found['why'])}"]
    if found["source"] != "standalone":
        lines.append(f"API server: {server}")
    if found["restart"]:
        lines.append(one_line(found["restart"]))
    return "\nKubernetes version\n" + "".join(f"  {line}\n" for line in lines)
