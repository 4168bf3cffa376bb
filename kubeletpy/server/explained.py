"""/explain: why the pods of the node are as they are, for `kubectl why`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from aiohttp import web

from kubeletpy.server.app import Handler


class Explained(Protocol):
    """Explanations of the node and its pods; the answers are JSON."""

    def pods(self) -> list[dict[str, Any]]:
        """All pods of the node, a line each."""
        ...

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Everything about a pod; None: there is no such pod on this node."""
        ...

    def node(self) -> dict[str, Any]:
        """The node's shortages, and the parts that do not work."""
        ...


def handlers(explained: Explained) -> Mapping[str, Handler]:
    """Handlers by route name."""

    async def explain(request: web.Request) -> web.StreamResponse:
        if "pod" not in request.match_info:
            return _json({"node": explained.node(), "pods": explained.pods()})
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        found = explained.pod(namespace, name)
        if found is None:
            return _json({"error": f"no pod {namespace}/{name} on this node"}, 404)
        return _json(found)

    return {"explain": explain}


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(
        body=json.dumps(body).encode(), status=status, content_type="application/json"
    )
