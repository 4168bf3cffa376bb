"""Reads from the API of `kubeletpy up`, as its administrator. Must never write, nor read secrets.

Only root has that kubeconfig. A node's own credentials do not suffice: a node may read neither
pods that are not bound to it nor the objects of a pod that does not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kubeletpy.foresee.model import NeedKind, NeedState

if TYPE_CHECKING:
    from kubeletpy.kubeapi.client import KubeClient
    from kubeletpy.kubeapi.protocol import Resource

_Read = TypeVar("_Read")

TIMEOUT_S = 5.0
"""Of all requests for one answer together."""
MAX_NEEDS = 200
"""Objects that are checked for one pod; the others count as not checked."""
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


def kubeconfig(socket: Path) -> Path | None:
    """The administrator's kubeconfig beside the agent's socket; None: this is no `up`."""
    found = socket.parent.parent / "api" / "admin.kubeconfig"
    return found if found.is_file() else None


def need_states(
    path: Path, namespace: str, needs: Iterable[Mapping[str, Any]]
) -> tuple[dict[tuple[str, str], NeedState], str]:
    """What the API has of the objects that a pod needs, and why some are not known (or empty)."""

    async def read(client: KubeClient) -> dict[tuple[str, str], NeedState]:
        wanted = [(each["kind"], each["name"]) for each in needs][:MAX_NEEDS]
        states = await asyncio.gather(*(_state(client, namespace, *each) for each in wanted))
        return dict(zip(wanted, states, strict=True))

    return _read(path, read, {})


async def _state(client: KubeClient, namespace: str, kind: str, name: str) -> NeedState:
    from kubeletpy.kubeapi import errors, protocol

    resource = {
        NeedKind.CLAIM: protocol.PERSISTENTVOLUMECLAIMS,
        NeedKind.CONFIG_MAP: protocol.CONFIGMAPS,
        NeedKind.SECRET: protocol.SECRETS,
    }[NeedKind(kind)]
    try:
        found = await client.get(resource, name, namespace=namespace)
    except (errors.NotFound, errors.BadRequest):  # no object has a name that is no part of a path
        return NeedState.MISSING
    if kind == NeedKind.CLAIM and (found.get("status") or {}).get("phase") != "Bound":
        return NeedState.UNBOUND
    return NeedState.EXISTS


def _read(
    path: Path, read: Callable[[KubeClient], Awaitable[_Read]], nothing: _Read
) -> tuple[_Read, str]:
    """What was read, and why nothing was (or empty)."""
    from kubeletpy.kubeapi.credentials import KubeconfigError
    from kubeletpy.kubeapi.errors import ApiError

    async def run() -> _Read:
        async with asyncio.timeout(TIMEOUT_S), _client(path) as client:
            return await read(client)

    try:
        return asyncio.run(run()), ""
    except TimeoutError:
        return nothing, f"its API did not answer within {TIMEOUT_S:g} s"
    except (ApiError, KubeconfigError) as error:
        return nothing, f"its API did not answer: {error}"


@asynccontextmanager
async def _client(path: Path) -> AsyncIterator[KubeClient]:
    from kubeletpy.kubeapi.client import KubeClient
    from kubeletpy.kubeapi.credentials import connect_kubeconfig
    from kubeletpy.kubeapi.formats import JsonFormat
    from kubeletpy.kubeapi.protocol import CONFIGMAPS, SECRETS

    class NoData(JsonFormat):
        """Requests configMaps and secrets without what is in them."""

        def headers(self, resource: Resource) -> Mapping[str, str]:
            return {"Accept": METADATA} if resource in (CONFIGMAPS, SECRETS) else {}

    client = KubeClient(await connect_kubeconfig(str(path)), form=NoData())
    try:
        yield client
    finally:
        await client.close()
