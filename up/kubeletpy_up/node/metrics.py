"""metrics.k8s.io: what nodes and pods use, for ``kubectl top``, as a metrics server has it.

The numbers are the node's own, scraped only on request. The first request waits for a second
scrape, since cpu usage is measured between two; so does one just after a container has
started.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy_up import errors
from kubeletpy_up.auth.authorizer import Request
from kubeletpy_up.errors import ApiError
from kubeletpy_up.node.usage_samples import (
    NODE,
    Samples,
    Usage,
    has_unreported,
    parse,
    pod_usages,
    used,
)
from kubeletpy_up.registry.reading import ListOptions
from kubeletpy_up.requests import CONTROLLER, Caller, Route
from kubeletpy_up.resources import ResourceInfo

if TYPE_CHECKING:
    from kubeletpy_up.node.proxy import NodeProxy
    from kubeletpy_up.registry.registry import Registry

APART_S = 1.2
"""Time between two scrapes when there is no earlier one; a node's own numbers are at most a second
old."""
OLD_S = 60.0
"""Age from which an earlier scrape is not used."""
_PATH = "/metrics/resource"


class NodeMetrics:
    """Answers requests for metrics of nodes and pods."""

    def __init__(self, registry: Registry, nodes: NodeProxy) -> None:
        self._registry = registry
        self._nodes = nodes
        self._scrapes: dict[str, tuple[Samples, Samples]] = {}
        self._asking = asyncio.Lock()

    async def read(self, caller: Caller, route: Route, labels: str, fields: str) -> JSON:
        """Get or list.

        Args:
            labels: a label selector, on the labels of the node or pod.
            fields: a field selector, likewise.

        Raises:
            ApiError: 400, 403, 404, 405.
        """
        info = route.info
        verb = "get" if route.name else "list"
        if route.subresource:
            raise errors.unknown_path()
        namespace = route.namespace or ""
        request = Request(verb, info.key, "", namespace, route.name)
        self._registry.check(caller, info, request)
        if route.name:
            core = self._registry.resource(info.plural)
            found = self._registry.stored(core, namespace, route.name)
            items = await self._items(info, [found])
            if not items:
                raise errors.not_found(info.plural, route.name, info.group)
            return items[0]
        listed = self._registry.list(
            CONTROLLER,
            info.plural,
            route.namespace,
            options=ListOptions(label_selector=labels, field_selector=fields),
        )
        return {
            "kind": f"{info.kind}List",
            "apiVersion": info.group_version,
            "metadata": {},
            "items": await self._items(info, listed["items"]),
        }

    async def _items(self, info: ResourceInfo, objects: list[JSON]) -> list[JSON]:
        """The metrics of those nodes or pods that have any."""
        if info.plural == "nodes":
            nodes = {obj["metadata"]["name"] for obj in objects}
        else:
            nodes = {(obj.get("spec") or {}).get("nodeName") or "" for obj in objects} - {""}
        scrapes = {name: await self._pair(name) for name in sorted(nodes)}
        if info.plural == "nodes":
            return [
                _node_metrics(obj, usage)
                for obj in objects
                if (pair := scrapes.get(obj["metadata"]["name"])) is not None
                and (usage := used(*pair, NODE)) is not None
            ]
        usages = {
            key: found
            for pair in scrapes.values()
            if pair is not None
            for key, found in pod_usages(*pair)
        }
        return [
            _pod_metrics(obj, found)
            for obj in objects
            if (found := usages.get((obj["metadata"]["namespace"], obj["metadata"]["name"])))
        ]

    async def _pair(self, name: str) -> tuple[Samples, Samples] | None:
        """Two scrapes of a node; None when it does not answer or is not there."""
        node = self._registry.find("nodes", "", name)
        if node is None:
            return None
        async with self._asking:
            known = self._scrapes.get(name)
            now = self._registry.clock.now()
            if known is not None and 0 <= now - known[1].at < 1.0:
                return known
            try:
                newest = await self._scrape(node)
                before = known[1] if known is not None and now - known[1].at < OLD_S else None
                if before is None or before.at >= newest.at:
                    before = newest
                    newest = await self._later(node)
                if has_unreported(before, newest):
                    before, newest = newest, await self._later(node)
            except ApiError:
                self._scrapes.pop(name, None)
                return None
            self._scrapes[name] = (before, newest)
            return before, newest

    async def _later(self, node: JSON) -> Samples:
        await asyncio.sleep(APART_S)
        return await self._scrape(node)

    async def _scrape(self, node: JSON) -> Samples:
        return parse(await self._nodes.read_text(node, _PATH))


def _amounts(usage: Usage) -> JSON:
    return {"cpu": f"{round(usage.cores * 1e9)}n", "memory": f"{usage.memory >> 10}Ki"}


def _about(obj: JSON, kind: str, usage: Usage) -> JSON:
    supplied = obj["metadata"]
    kept = {key: supplied[key] for key in ("name", "namespace", "labels") if supplied.get(key)}
    return {
        "kind": kind,
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {**kept, "creationTimestamp": format_time(usage.at)},
        "timestamp": format_time(usage.at),
        "window": f"{usage.window:.3f}s",
    }


def _node_metrics(node: JSON, usage: Usage) -> JSON:
    return {**_about(node, "NodeMetrics", usage), "usage": _amounts(usage)}


def _pod_metrics(pod: JSON, containers: dict[str, Usage]) -> JSON:
    oldest = min(containers.values(), key=lambda usage: usage.at)
    return {
        **_about(pod, "PodMetrics", oldest),
        "containers": [
            {"name": name, "usage": _amounts(usage)} for name, usage in sorted(containers.items())
        ],
    }
