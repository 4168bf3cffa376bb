"""Reads from the API of `kubeletpy up`, as its administrator. Must never write, nor read secrets.

Only root has that kubeconfig. A node's own credentials do not suffice: a node may read neither
pods that are not bound to it nor the objects of a pod that does not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import run_together
from kubeletpy.cli.endings import run_until_signalled
from kubeletpy.observe.foresee.model import NeedKind, NeedState

if TYPE_CHECKING:
    from kubeletpy.kubeapi.client import KubeClient
    from kubeletpy.kubeapi.protocol import Resource

_Read = TypeVar("_Read")

TIMEOUT_S = 5.0
"""Maximum duration of all requests for one answer together."""
MAX_NEEDS = 200
"""Objects that are checked for one pod; the others count as not checked."""
MAX_PODS = 500
"""Pods without a node that are read, and events of theirs."""
MAX_EVENTS = 100
"""Events of one pod that are read."""
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class OwnApiUnavailable(Exception):
    """The API did not answer; the message contains the reason."""


def kubeconfig(socket: Path) -> Path | None:
    """The administrator's kubeconfig beside the agent's socket; None: this is no `up`."""
    found = socket.parent.parent / "api" / "admin.kubeconfig"
    return found if found.is_file() else None


def once(path: Path, read: Callable[[OwnApi], Awaitable[_Read]]) -> _Read:
    """Run one reading over its own connections and return its result. Raises Unread."""

    async def run() -> _Read:
        async with connected(path) as api:
            return await read(api)

    return run_until_signalled(run())


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[OwnApi]:
    """The API of a kubeconfig. Raises Unread."""
    from kubeletpy.kubeapi.client import JsonFormat, KubeClient
    from kubeletpy.kubeapi.kubeconfig import KubeconfigError, connect_kubeconfig
    from kubeletpy.kubeapi.protocol import CONFIGMAPS, SECRETS

    class NoData(JsonFormat):
        """Requests configMaps and secrets without what is in them."""

        def headers(self, resource: Resource) -> Mapping[str, str]:
            return {"Accept": METADATA} if resource in (CONFIGMAPS, SECRETS) else {}

    try:
        connection = await connect_kubeconfig(str(path))
    except KubeconfigError as error:
        raise OwnApiUnavailable(f"its API did not answer: {error}") from error
    client = KubeClient(connection, form=NoData())
    try:
        yield OwnApi(client)
    finally:
        await client.close()


class PodInApi(NamedTuple):
    """A pod as an API has it, its events, and the pods that explain why no node has it."""

    pod: dict[str, Any]
    events: list[dict[str, Any]]
    others: list[dict[str, Any]]


class OwnApi(Component):
    """Readings. Each raises Unread, after TIMEOUT_S at the latest."""

    client: KubeClient

    async def need_states(
        self, namespace: str, needs: Iterable[Mapping[str, Any]]
    ) -> dict[tuple[str, str], NeedState]:
        """The states in the API of the objects that a pod needs."""
        desired = [(each["kind"], each["name"]) for each in needs][:MAX_NEEDS]
        async with _in_time():
            states = await run_together(*(self._state(namespace, *each) for each in desired))
        return dict(zip(desired, states, strict=True))

    async def _state(self, namespace: str, kind: str, name: str) -> NeedState:
        from kubeletpy.kubeapi import errors, protocol

        resource = {
            NeedKind.CLAIM: protocol.PERSISTENTVOLUMECLAIMS,
            NeedKind.CONFIG_MAP: protocol.CONFIGMAPS,
            NeedKind.SECRET: protocol.SECRETS,
        }[NeedKind(kind)]
        try:
            found = await self.client.get(resource, name, namespace=namespace)
        except (errors.NotFound, errors.BadRequest):  # no object has a name that is no path segment
            return NeedState.MISSING
        if kind == NeedKind.CLAIM and (found.get("status") or {}).get("phase") != "Bound":
            return NeedState.UNBOUND
        return NeedState.EXISTS

    async def unplaced(self) -> list[dict[str, Any]]:
        """The pods that no node has, a line each (:mod:`kubeletpy.observe.explain.unplaced`)."""
        from kubeletpy.kubeapi.protocol import EVENTS, PODS
        from kubeletpy.observe.explain import unplaced

        async with _in_time():
            pods = await self._items(PODS, None, "spec.nodeName=", MAX_PODS)
            failed = f"reason={unplaced.FAILED_SCHEDULING},involvedObject.kind=Pod"
            events = await self._items(EVENTS, None, failed, MAX_PODS) if pods else []
        return unplaced.lines(pods, events)

    async def pod(self, namespace: str, name: str) -> PodInApi | None:
        """A pod, and what explains why no node has it; None: there is no such pod."""
        from kubeletpy.kubeapi.errors import BadRequest, NotFound
        from kubeletpy.kubeapi.protocol import PODS
        from kubeletpy.observe.explain.unplaced import wants_host_ports

        async with _in_time():
            try:
                pod = await self.client.get(PODS, name, namespace=namespace)
            except (NotFound, BadRequest):
                return None
            others = []
            if not (pod.get("spec") or {}).get("nodeName") and wants_host_ports(pod):
                others = await self._items(PODS, None, "spec.nodeName!=", MAX_PODS)
            return PodInApi(pod, await self._events(namespace, name), others)

    async def unplaced_pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """All about a pod that no node has; None: there is no such pod."""
        from kubeletpy.observe.explain import unplaced

        found = await self.pod(namespace, name)
        return None if found is None else unplaced.explain_unscheduled(*found)

    async def events(self, namespace: str, name: str) -> list[dict[str, Any]]:
        """Events of schedulers and controllers about a pod, in the form of the agent's events."""
        from kubeletpy.observe.explain import unplaced

        async with _in_time():
            return unplaced.events_of_others(await self._events(namespace, name))

    async def _events(self, namespace: str, name: str) -> list[dict[str, Any]]:
        from kubeletpy.kubeapi.protocol import EVENTS

        selector = f"involvedObject.kind=Pod,involvedObject.name={name}"
        return await self._items(EVENTS, namespace, selector, MAX_EVENTS)

    async def _items(
        self, resource: Resource, namespace: str | None, selector: str, limit: int
    ) -> list[dict[str, Any]]:
        found = await self.client.list(resource, namespace, field_selector=selector, limit=limit)
        return list(found.get("items") or ())


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    from kubeletpy.kubeapi.errors import ApiError

    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield
    except TimeoutError as error:
        raise OwnApiUnavailable(f"its API did not answer within {TIMEOUT_S:g} s") from error
    except ApiError as error:
        raise OwnApiUnavailable(f"its API did not answer: {error}") from error
