"""The Kubernetes API of a simulation: the embedded registry behind a wire with latency and faults.

The agent speaks to it as ``system:node:NAME`` within the Node authorizer; one client per life. A
dead life's client makes no call and answers none.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host import x509
from kubeletpy.kubeapi.client import decode_json
from kubeletpy.kubeapi.errors import ApiError, Removed, Unavailable, from_status
from kubeletpy.kubeapi.protocol import (
    CERTIFICATESIGNINGREQUESTS,
    RESOURCESLICES,
    Call,
    KubeApi,
    PatchType,
    Resource,
    WatchEvent,
)
from kubeletpy.kubeapi.transport import Inflater
from kubeletpy_up import errors as refusals
from kubeletpy_up.registry.reading import NOT_OLDER, ListOptions
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import DeleteOptions, WriteOptions, node_caller
from kubeletpy_up.storage.watch import Subscription
from tests.kit.messages import member
from tests.sim.client import Step
from tests.sim.faults import FaultKind, Faults
from tests.sim.history import History
from tests.sim.storage import PLURALS, Storage

T = TypeVar("T")

NODE = "sim-node"
LATENCY = (0.001, 0.008)
DEADLINE = 30.0


class ApiServer:
    """The API as all lives share it: whether it answers, and the state of its watches."""

    def __init__(self, registry: Registry, rng: random.Random, history: History) -> None:
        self.registry = registry
        self.history = history
        self.rng = rng
        self.up = True
        self.watch_lag = 0.0
        """Seconds by which watches are late, at most."""
        self.removed = False
        """Each watch is answered with 410."""
        self.graph_delay = 0.0
        """Seconds until the authorizer accepts requests about a new pod."""
        self.first_seen: dict[str, float] = {}
        self._watches: dict[Subscription, None] = {}
        self.watch_count = 0
        self.storage: Storage | None = None
        """None: the registry has all objects."""

    def break_watches(self) -> None:
        """End all watches that are open."""
        if self.storage is not None:
            self.storage.break_watches()
        for subscription in list(self._watches):
            subscription.close()

    @contextmanager
    def opened(self, subscription: Subscription) -> Iterator[Subscription]:
        """Keep account of a watch."""
        self._watches[subscription] = None
        self.watch_count += 1
        try:
            yield subscription
        finally:
            self._watches.pop(subscription, None)
            subscription.close()


def _translated(refusal: refusals.ApiError) -> ApiError:
    return from_status(refusal.code, refusal.status())


class SimKubeApi(KubeApi):
    """:class:`~kubeletpy.kubeapi.protocol.KubeApi` for one life of the agent."""

    def __init__(self, server: ApiServer, faults: Faults, rng: random.Random, step: Step) -> None:
        self._server = server
        self._registry = server.registry
        self._caller = node_caller(NODE)
        self._faults = faults
        self._rng = rng
        self._step = step
        self._writes: Counter[str] = Counter()

    async def _call(self, what: str, work: Callable[[], T]) -> T:
        self._step("call", what)
        fault = self._faults.draw()
        kind = None if fault is None else fault.kind
        await asyncio.sleep(self._rng.uniform(*LATENCY))
        if fault is not None and kind is FaultKind.SLOW:
            await asyncio.sleep(fault.seconds)
        if not self._server.up:
            raise Unavailable(f"{what}: connection refused")
        if kind is FaultKind.BEFORE:
            raise self._refusal(what)
        if kind is FaultKind.HANG:
            await asyncio.sleep(DEADLINE)
            raise Unavailable(f"{what}: timeout")
        self._step("check", what)
        try:
            result = work()
        except refusals.ApiError as refusal:
            await asyncio.sleep(self._rng.uniform(*LATENCY))
            raise _translated(refusal) from refusal
        await asyncio.sleep(self._rng.uniform(*LATENCY))
        self._step("answer", what)
        if kind in (FaultKind.AFTER, FaultKind.HANG_DONE):
            if kind is FaultKind.HANG_DONE:
                await asyncio.sleep(DEADLINE)
            raise Unavailable(f"{what}: the answer was lost")
        return result

    def _refusal(self, what: str) -> ApiError:
        code, reason = self._rng.choice(
            (
                (500, "InternalError"),
                (503, "ServiceUnavailable"),
                (429, "TooManyRequests"),
                (504, "Timeout"),
                (409, "Conflict"),
            )
            if what.startswith(("patch", "update"))
            else ((500, "InternalError"), (503, "ServiceUnavailable"), (429, "TooManyRequests"))
        )
        message = f"{what}: injected {code}"
        return from_status(code, {"message": message, "reason": reason, "code": code})

    def _known_to_authorizer(self, namespace: str, pod_name: str) -> None:
        pod = self._registry.find("pods", namespace, pod_name)
        if pod is None or not self._server.graph_delay:
            return
        since = self._server.first_seen.get(pod["metadata"]["uid"], 0.0)
        if asyncio.get_running_loop().time() - since < self._server.graph_delay:
            raise refusals.forbidden("pods", pod_name, "no relationship found yet")

    @contextmanager
    def _one_at_a_time(self, plural: str, uid: str, subresource: str) -> Iterator[None]:
        key = f"{plural}/{uid}/{subresource}"
        self._writes[key] += 1
        if self._writes[key] > 1 and (plural, subresource) == ("pods", "status"):
            self._server.history.violated(f"two status writes of pod {uid} at once")
        try:
            yield
        finally:
            self._writes[key] -= 1

    async def answer(self, call: Call) -> JSON:
        plural = call.resource.plural
        if call.verb != "patch":
            what = f"{call.verb} {plural} {call.name}".rstrip()
            return await _received(await self._call(what, lambda: self._answer(call)))
        uid = call.name
        if isinstance(call.body, dict):
            uid = call.body.get("metadata", {}).get("uid", uid)
        with self._one_at_a_time(plural, uid, call.subresource):
            what = f"patch {plural}/{call.subresource} {call.name}"
            return await _received(await self._call(what, lambda: self._answer(call)))

    def _answer(self, call: Call) -> JSON:
        if self._server.storage is not None and call.resource.plural in PLURALS:
            return self._server.storage.answer(call)
        about = (self._caller, _key(call.resource))
        namespace, below = call.namespace, call.subresource
        match call.verb:
            case "get":
                return self._registry.get(*about, call.name, namespace)
            case "list":
                return self._registry.list(
                    *about,
                    namespace,
                    options=ListOptions(
                        field_selector=call.field_selector,
                        label_selector=call.label_selector,
                        limit=call.limit,
                        continue_=call.continue_,
                        resource_version=call.resource_version,
                    ),
                )
            case "create":
                return self._registry.create(
                    *about,
                    _sent(call.body),
                    namespace,
                    name=call.name,
                    subresource=below,
                    options=WriteOptions(subject=_subject(call)),
                )
            case "update":
                return self._registry.update(
                    *about, _sent(call.body), namespace, name=call.name, subresource=below
                )
            case "patch":
                return self._patch(call)
            case "delete":
                options = DeleteOptions(
                    grace_period_seconds=call.grace_period_seconds, uid=call.uid or ""
                )
                return self._registry.delete(*about, call.name, namespace, options)
            case "deletecollection" if call.resource == RESOURCESLICES:
                raise refusals.unknown_path()  # the embedded API has none
        raise AssertionError(f"{call.verb} is not simulated")

    def _patch(self, call: Call) -> JSON:
        if call.resource.plural == "pods":
            self._known_to_authorizer(call.namespace or "", call.name)
        apply = call.patch_type is PatchType.APPLY
        return self._registry.patch(
            self._caller,
            _key(call.resource),
            call.name,
            _sent(call.body),
            call.namespace,
            patch_type=call.patch_type.value,
            subresource=call.subresource,
            options=WriteOptions(field_manager="kubelet", force=apply),
        )

    async def follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        server, what = self._server, f"watch {call.resource.plural}"
        if server.storage is not None and call.resource.plural in PLURALS:
            await self._call(what, lambda: None)
            async for change in server.storage.watch(call):
                await asyncio.sleep(self._rng.uniform(*LATENCY))
                self._step("answer", what)
                if change.type == "ERROR":
                    raise Removed("injected: the watch broke", code=410)
                yield change

        def start() -> Subscription:
            if server.removed:
                raise refusals.removed("injected: too old resource version")
            return self._registry.watch(
                self._caller,
                _key(call.resource),
                call.namespace,
                options=ListOptions(
                    field_selector=call.field_selector,
                    label_selector=call.label_selector,
                    resource_version=call.resource_version,
                    match=NOT_OLDER if call.send_initial_events else "",
                    send_initial_events=True if call.send_initial_events else None,
                    bookmarks=call.allow_bookmarks,
                    timeout_seconds=call.timeout_seconds,
                ),
            )

        subscription = await self._call(what, start)
        inflater = Inflater() if call.send_initial_events else None
        with server.opened(subscription):
            yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": call.resource_version}})
            while (event := await subscription.next()) is not None:
                if server.watch_lag:
                    await asyncio.sleep(self._rng.uniform(0, server.watch_lag))
                else:
                    await asyncio.sleep(self._rng.uniform(*LATENCY))
                if not server.up:
                    raise Unavailable("watch: connection lost")
                self._step("answer", what)
                if event.type == "ERROR":
                    raise from_status(0, event.object)
                text = _on_the_wire(event.object, compressed=inflater is not None)
                if inflater is not None:
                    text = await _inflated(inflater, text)
                yield WatchEvent(event.type, await decode_json(text))
            if not server.up:
                raise Unavailable("watch: connection lost")
            if server.removed:
                raise Removed("injected: too old resource version", code=410)


async def _received(obj: JSON) -> JSON:
    """An object as the agent's client decodes it."""
    decoded: JSON = await decode_json(_on_the_wire(obj))
    return decoded


async def _inflated(inflater: Inflater, member: bytes) -> bytes:
    """A gzip member decompressed as the client does it: each piece is a turn of the loop.

    kube-apiserver 1.37 sends a member for each flush of a watch that begins with a list.
    """
    pieces = []
    for piece in inflater.decompress(member):
        pieces.append(piece)
        await asyncio.sleep(0)
    return b"".join(pieces)


def _on_the_wire(obj: JSON, *, compressed: bool = False) -> bytes:
    """The bytes as the server sends them; encoding them is no work of the agent."""
    text = json.dumps(obj).encode()
    return member(text) if compressed else text


def _sent(body: Any) -> Any:
    """A body as it arrives: it went through JSON."""
    return json.loads(json.dumps(body))


def _subject(call: Call) -> str | None:
    """Whom a certificate request is for, as the wire's end reads it."""
    if call.resource is not CERTIFICATESIGNINGREQUESTS or not isinstance(call.body, dict):
        return None
    return x509.read_request(base64.b64decode(call.body["spec"]["request"])).common_name


def _key(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
