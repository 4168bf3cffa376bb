"""The connections to the API server, as a line of a node's explanation.

Pure; works on the socket's JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeletpy.observe.explain.moments import since
from kubeletpy.observe.explain.texts import one_line


def connections(found: Mapping[str, Any] | None, now: float) -> str:
    """A paragraph; empty when there is no API server. ``now``: Unix seconds."""
    if found is None:
        return ""
    kinds = [f"{count} over {name}" for name, count in sorted(found["protocols"].items())]
    begun = f" since {since(found['since'], now)}" if found["since"] else ""
    text = f"connections: {', '.join(kinds)}{begun}" if kinds else "no connection"
    text += f", in {found['content_type']}" if found.get("content_type") else ""
    text += f"; {found['watches']} watches, {found['streams'] - found['watches']} requests"
    if found["lost"]:
        text += f"; {found['lost']} lost, the last at {since(found['lost_at'], now)}"
        text += f": {one_line(found['lost_why'])}"
    return f"\nAPI server\n  {text}\n"
