"""The API server of a fleet: counts what arrives, makes it wait or refuses it, and can go down.

The embedded API's registry answers the requests. Each node has a registry of its own, because no
agent reads an object of another node: what they share is the server's time.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

from bench.fleet.seats import RETRY_AFTER_S, Busy, level_of, new_levels
from kubeletpy_up import errors
from kubeletpy_up.http import query_options
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import (
    WriteOptions,
    node_caller,
    parse_path,
    read_delete_options,
    split_path,
)
from kubeletpy_up.storage.watch import Subscription

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
WORK_S = {"get": 0.003, "list": 0.010, "watch": 0.005}
"""Mean seconds of a seat by verb; a write takes WRITE_S."""
WRITE_S = 0.010

Counted = Counter[tuple[int, str, str, int]]
"""Requests by (second, verb, resource, code); code 0 never reached a server."""


class Lost(Exception):
    """The connection is refused, or breaks."""


class FleetServer:
    """One API server for all nodes. Create it inside a running event loop."""

    def __init__(self, rng: random.Random, part: float = 1.0) -> None:
        """``part``: size of the server, as a factor of the default seats and queues."""
        self.rng = rng
        self.up = True
        self.generation = 0
        """Number of restarts."""
        self.counted: Counted = Counter()
        self.connections: Counter[int] = Counter()
        """Number of connections opened, by second."""
        self.renewals: dict[str, list[float]] = {}
        """When each node's lease was renewed."""
        self.levels = new_levels(part)
        self.registries: dict[str, Registry] = {}
        self._watches: set[Subscription] = set()

    def down(self) -> None:
        """Refuse connections from now on, and break all existing ones."""
        self.up = False
        for subscription in list(self._watches):
            subscription.close()

    def restart(self) -> None:
        """The server runs again without history: a watch from before the restart is too old.

        Etcd's revision has grown meanwhile, so that no bookmark is new enough.
        """
        for registry in self.registries.values():
            store = registry.store
            lease = {"metadata": {"name": "other", "namespace": "kube-system"}}
            store.put("leases.coordination.k8s.io", "kube-system", "other", lease)
            store._history = type(store._history)(store.revision, 200, 3600.0, 128 << 10)
        self.generation += 1
        self.up = True

    def count(self, verb: str, resource: str, code: int) -> None:
        """Count one attempt of a request."""
        second = int(asyncio.get_running_loop().time())
        self.counted[second, verb, resource, code] += 1

    async def answer(self, node: str, requested: Asked) -> tuple[int, Any]:
        """Status and the object or Subscription that answers a request. Raises Lost."""
        if not self.up:
            self.count(requested.verb, requested.resource, 0)
            raise Lost("connection refused")
        status, answer = await self._served(node, requested)
        if not self.up:
            if isinstance(answer, Subscription):
                answer.close()
            self.count(requested.verb, requested.resource, 0)
            raise Lost("connection lost")
        return status, answer

    async def _served(self, node: str, requested: Asked) -> tuple[int, Any]:
        arrived = int(asyncio.get_running_loop().time())
        try:
            async with self.levels[level_of(requested.resource)].seat(node):
                mean = WORK_S.get(requested.verb, WRITE_S)
                await asyncio.sleep(mean * self.rng.uniform(0.5, 1.5))
                status, answer = requested.answer(self.registries[node], node)
        except Busy:
            busy = errors.ApiError(429, "TooManyRequests", "too many requests, try again later")
            status, answer = 429, busy.status()
        except errors.ApiError as refusal:
            status, answer = refusal.code, refusal.status()
        self.counted[arrived, requested.verb, requested.resource, status] += 1
        if requested.resource == "leases" and status < 300:
            now = asyncio.get_running_loop().time()
            self.renewals.setdefault(node, []).append(now)
        return status, answer

    async def lines(self, subscription: Subscription) -> AsyncIterator[bytes]:
        """The events of a watch as text. Raises Lost when the server goes down."""
        self._watches.add(subscription)
        try:
            while (event := await subscription.next()) is not None:
                text = event.text or json.dumps(event.object)
                yield f'{{"type":"{event.type}","object":{text}}}\n'.encode()
            if not self.up:
                raise Lost("connection lost")
        finally:
            self._watches.discard(subscription)
            subscription.close()


class Asked:
    """A request, read from its path."""

    def __init__(self, method: str, path: str, content_type: str, data: bytes | None) -> None:
        where, _, query = path.partition("?")
        route = parse_path(split_path(where))
        assert route is not None, f"no agent requests {path}"
        self._route, self._query = route, dict(parse_qsl(query))
        self._content_type, self._data = content_type, data
        if method == "GET":
            listing = "get" if route.name else "list"
            self.verb = "watch" if query_options.flag(self._query, "watch") else listing
        else:
            self.verb = VERBS[method]
        below = f"/{route.subresource}" if route.subresource else ""
        self.resource = route.info.plural + below

    def answer(self, registry: Registry, node: str) -> tuple[int, Any]:
        """The answer of the registry. Raises ApiError."""
        route, query = self._route, self._query
        about = (node_caller(node), route.info.key)
        sent: Any = json.loads(self._data) if self._data else None
        match self.verb:
            case "get":
                return 200, registry.get(
                    *about, route.name, route.namespace, subresource=route.subresource
                )
            case "list":
                return 200, registry.list(*about, route.namespace, query_options.of_list(query))
            case "watch":
                options = query_options.of_watch(query, route.name)
                return 200, registry.watch(*about, route.namespace, options)
            case "create":
                return 201, registry.create(
                    *about, sent, route.namespace, name=route.name, subresource=route.subresource
                )
            case "update":
                return 200, registry.update(
                    *about, sent, route.namespace, name=route.name, subresource=route.subresource
                )
            case "patch":
                return 200, registry.patch(
                    *about,
                    route.name,
                    sent,
                    route.namespace,
                    patch_type=self._content_type,
                    subresource=route.subresource,
                    options=WriteOptions(
                        field_manager="kubelet", force="force" in query, is_patch=True
                    ),
                )
            case "delete" if route.name:
                options_of_delete = read_delete_options(sent, query)
                return 200, registry.delete(*about, route.name, route.namespace, options_of_delete)
        raise errors.unknown_path()


RETRY_AFTER = str(RETRY_AFTER_S)
