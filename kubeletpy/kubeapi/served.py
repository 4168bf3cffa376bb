"""Which version of a kind a server has: for servers of several Kubernetes versions."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.kubeapi.errors import NotFound
from kubeletpy.kubeapi.protocol import KubeApi, Resource


async def first_served(
    api: KubeApi, versions: Sequence[Resource], *, field_selector: str = ""
) -> Resource:
    """The first version that the server lists.

    Args:
        api: the server.
        versions: of one kind, best first.
        field_selector: what this node may list.

    Raises:
        NotFound: the server has none of them.
        ApiError: the server does not report it.
    """
    for resource in versions:
        try:
            await api.list(resource, field_selector=field_selector, limit=1)
        except NotFound:
            continue
        return resource
    names = ", ".join(each.version for each in versions)
    kind = versions[0]
    raise NotFound(f"the API server has no {kind.plural} ({kind.group} {names})", code=404)
