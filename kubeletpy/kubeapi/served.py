"""Which version of a kind a server has: servers of several Kubernetes versions are asked."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.kubeapi.errors import NotFound
from kubeletpy.kubeapi.protocol import KubeApi, Resource


async def first_served(
    api: KubeApi, versions: Sequence[Resource], *, field_selector: str = ""
) -> Resource:
    """The first version that the server lists; the last one is not asked for.

    ``field_selector``: what this node may list.

    Raises:
        ApiError: the server does not say.
    """
    *preferred, last = versions
    for resource in preferred:
        try:
            await api.list(resource, field_selector=field_selector, limit=1)
        except NotFound:
            continue
        return resource
    return last
