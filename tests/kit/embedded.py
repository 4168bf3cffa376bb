"""The embedded API: a settable clock, a registry in memory, and a server over TLS on loopback."""

from __future__ import annotations

import json
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from kubeletpy_up.api import LocalApi
from kubeletpy_up.errors import ApiError
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, node_caller
from kubeletpy_up.storage.store import Store
from tests.kit.clocks import SetClock

NODE = node_caller("n1")


def make_registry(path: str = ":memory:", **options: Any) -> Registry:
    clock = options.pop("clock", None) or SetClock()
    options.setdefault("rng", random.Random(1))
    return Registry(clock, Store(path, clock), **options)


def pod(name: str = "web", **spec: Any) -> dict[str, Any]:
    containers = spec.pop("containers", [{"name": "c", "image": "busybox:1"}])
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def bound_pod(registry: Registry, name: str = "web", node: str = "n1", **spec: Any) -> Any:
    registry.create(ADMIN, "pods", pod(name, **spec), "default")
    target = {"target": {"kind": "Node", "name": node}}
    registry.create(ADMIN, "pods", target, "default", name=name, subresource="binding")
    return registry.get(ADMIN, "pods", name, "default")


def node(name: str = "n1", **status: Any) -> dict[str, Any]:
    room = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": room, "allocatable": room, "conditions": [ready], **status},
    }


def refusal(call: Any, *args: Any, **kwargs: Any) -> ApiError:
    """The error that a call ends with."""
    try:
        call(*args, **kwargs)
    except ApiError as error:
        return error
    raise AssertionError("nothing was refused")


class Client:
    """HTTP session of one identity."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, Any]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named.setdefault("Content-Type", "application/json")
        async with self.session.request(
            method, self.url + path, data=data, headers=named
        ) as response:
            text = await response.text()
            is_json = response.content_type == "application/json" and method != "HEAD"
            return response.status, json.loads(text) if is_json else text, response.headers


@asynccontextmanager
async def serving(
    tmp_path: Path, pki: Path, **options: Any
) -> AsyncIterator[tuple[LocalApi, Client, Client]]:
    """Yields the API and its clients as administrator and as node ``n1``; ``pki`` has the keys."""
    if not (tmp_path / "pki").exists():
        (tmp_path / "pki").symlink_to(pki)
    api = LocalApi(tmp_path, "n1", port=0, **options)
    endpoint = await api.start()
    clients = []
    try:
        for path in (endpoint.admin_kubeconfig, endpoint.node_kubeconfig):
            config = json.loads(path.read_text())
            token = config["users"][0]["user"]["token"]
            context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
            session = aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {token}"},
                connector=aiohttp.TCPConnector(ssl=context),
            )
            clients.append(Client(session, config["clusters"][0]["cluster"]["server"]))
        yield api, clients[0], clients[1]
    finally:
        for client in clients:
            await client.session.close()
        await api.stop()
