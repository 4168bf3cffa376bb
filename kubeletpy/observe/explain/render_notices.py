"""Settings without effect and failing parts of the agent, as text.

Pure; works on the socket's JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeletpy.observe.explain.texts import one_line

MAX_TROUBLE = 1000


def notices(found: Sequence[Mapping[str, Any]]) -> str:
    """A paragraph at the end of a node's explanation; empty when all settings take effect."""
    if not found:
        return ""
    lines = [f"  {one_line(n['name'] + '=' + n['value'])}: {n['consequence']}" for n in found]
    return "\nSet without effect\n" + "\n".join(lines) + "\n"


def first(node: str, found: Sequence[str]) -> str:
    """Failures of the node, shown before the list of pods: any pod may suffer from them."""
    return "".join(f"node {one_line(node)}: {one_line(each, MAX_TROUBLE)}\n" for each in found)


def troubles(found: Sequence[str]) -> str:
    """A paragraph on what does not work; empty when everything works."""
    if not found:
        return ""
    return "\nDoes not work\n" + "\n".join(f"  {one_line(each)}" for each in found) + "\n"
