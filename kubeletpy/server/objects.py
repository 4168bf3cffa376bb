"""Handlers for the agent's own objects: pods, settings, health, metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from kubeletpy.base.api.types import JSON
from kubeletpy.metrics.families import CONTENT_TYPE
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.server.app import Handler
from kubeletpy.server.health import healthz_text
from kubeletpy.server.node_view import NodeView


def pod_list(items: list[Any]) -> JSON:
    """A v1 PodList."""
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}


def running_pod(status: PodRuntimeStatus) -> JSON | None:
    """A pod as the runtime has it; None when nothing of it runs."""
    running = status.running_containers
    if not running:
        return None
    containers = [{"name": c.name, "image": c.image, "resources": {}} for c in running]
    metadata = {"name": status.name, "namespace": status.namespace, "uid": status.uid}
    return {"metadata": metadata, "spec": {"containers": containers}, "status": {}}


def handlers(view: NodeView) -> Mapping[str, Handler]:
    """Handlers by route name."""

    async def pods(_request: web.Request) -> web.StreamResponse:
        items: list[Any] = []
        for pod in view.pods.pods():
            obj: JSON = {**pod.object}
            if pod.is_static:
                obj["status"] = view.status(pod)
            items.append(obj)
        return _json(pod_list(items))

    async def running_pods(_request: web.Request) -> web.StreamResponse:
        found = (running_pod(status) for uid in view.cache if (status := view.cache.status(uid)))
        return _json(pod_list([pod for pod in found if pod is not None]))

    async def configz(_request: web.Request) -> web.StreamResponse:
        version = view.version()
        own = {"kubeletpy": {"kubernetesVersion": dict(version)}} if version is not None else {}
        return _json({"kubeletconfig": dict(view.configz()), **own})

    async def healthz(request: web.Request) -> web.StreamResponse:
        if (name := request.match_info.get("check")) is not None:
            check = view.checks.get(name)
            if check is None:
                return web.Response(text="404 page not found\n", status=404)
            problem = check()
            return web.Response(text=problem or "ok", status=500 if problem else 200)
        excluded = set(request.query.getall("exclude", []))
        checks = {name: check for name, check in view.checks.items() if name not in excluded}
        healthy, text = healthz_text(checks, verbose="verbose" in request.query)
        return web.Response(text=text, status=200 if healthy else 500)

    async def metrics(_request: web.Request) -> web.StreamResponse:
        logs = await view.stats.log_metrics() if view.stats is not None else b""
        body = view.render_metrics() + logs
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def probe_metrics(_request: web.Request) -> web.StreamResponse:
        body = view.render_probe_metrics()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def sli_metrics(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=view.render_slis(), headers={"Content-Type": CONTENT_TYPE})

    return {
        "pods": pods,
        "runningpods": running_pods,
        "configz": configz,
        "healthz": healthz,
        "metrics": metrics,
        "probe_metrics": probe_metrics,
        "sli_metrics": sli_metrics,
    }


def allocated_handlers(view: NodeView) -> dict[str, Handler]:
    """``/allocatedPods``: the pods of the node as they are run. Source:
    docs/reference/behaviour.md, t6."""

    async def pods(_request: web.Request) -> web.StreamResponse:
        return _json(pod_list([_without_status(pod) for pod in view.allocated()]))

    async def pod(request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        uid = request.match_info.get("uid", "")
        for each in view.allocated():
            if (each.namespace, each.name) == (namespace, name) and uid in ("", each.uid):
                return _json({"kind": "Pod", "apiVersion": "v1", **_without_status(each)})
        return web.Response(status=404, text="pod not found")

    return {"allocated_pods": pods, "allocated_pod": pod}


def _without_status(pod: Pod) -> JSON:
    return {**pod.object, "status": {}}


def _json(value: JSON) -> web.Response:
    body = json.dumps(value, separators=(",", ":")).encode()
    return web.Response(body=body, content_type="application/json")
